"""Fresh runs that try a search's answer again: each a server start with other prompts."""

from collections.abc import Iterator
from dataclasses import replace

from harness.config import RunConf, Shape
from harness.run.outcome import JobResult
from harness.store import read_run


def confirming(conf: RunConf, result: JobResult) -> Iterator[RunConf]:
    """The configurations of the fresh runs; none for what is no search, or found nothing.

    Each tries the highest rate that passed and the lowest that failed.
    """
    search = conf.load.search
    if conf.load.shape is not Shape.SEARCH or search.confirm_rates or result.exit_code:
        return
    found = read_run(result.folder).info.search
    if found is None or found.low_rps is None:
        return
    rates = [found.low_rps] + ([found.high_rps] if found.high_rps is not None else [])
    for number in range(1, search.confirm_runs + 1):
        again = replace(search, confirm_rates=rates, confirms=result.run_id, confirm_number=number)
        yield replace(conf, load=replace(conf.load, search=again))
