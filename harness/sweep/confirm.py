"""Fresh runs that try a search's answer again: each a server start with other prompts.

Each tries the highest rate that all runs so far have passed and the lowest that all have failed,
so that an end that does not hold is followed, downwards or upwards, until one does.
"""

from collections.abc import Generator
from dataclasses import replace

from harness.analysis.agreement import agreed, tried_rates
from harness.config import RunConf, Shape
from harness.run.outcome import JobResult
from harness.store import read_run

_MOST = 2  # so many times the fresh runs asked for, where the answer moves


def confirming(conf: RunConf, result: JobResult) -> Generator[RunConf, JobResult, None]:
    """The configurations of the fresh runs, one after another; each is sent how it ended.

    None for what is no search, or found nothing. Ends when `load.search.confirm_runs` fresh runs
    agree with both ends.
    """
    search = conf.load.search
    if conf.load.shape is not Shape.SEARCH or search.confirm_rates or result.exit_code:
        return
    found = read_run(result.folder).info.search
    runs = [found.probes] if found is not None else []
    for number in range(1, _MOST * search.confirm_runs + 1):
        tried = tried_rates(runs)
        low, high = agreed(tried)
        if low is None:
            return
        if high is not None and min(low.passes, high.fails) > search.confirm_runs:
            return
        beyond = tried[-1].rate_rps * search.ratio
        rates = [low.rate_rps, high.rate_rps if high else beyond]
        fresh = replace(search, confirm_rates=rates, confirms=result.run_id, confirm_number=number)
        ended = yield replace(conf, load=replace(conf.load, search=fresh))
        probed = read_run(ended.folder).info.search
        runs.append(probed.probes if probed is not None else ())
