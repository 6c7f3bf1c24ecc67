"""What is played before the first level: like the measured requests, but nobody else's prompts."""

from collections.abc import Iterator

from harness.config import Lengths, RunConf, Shape
from harness.plan.level_identity import plan_seed
from harness.plan.requests import make_requests
from harness.plan.tokenizer import Tokenizer
from harness.plan.trace_level import TraceSupply, level_trace
from harness.types import Request
from scenarios.wanted import Wanted


def warmup_requests(
    conf: RunConf, tokenizer: Tokenizer, n: int, *, first_index: int = 0
) -> Iterator[Request]:
    """`n` requests to warm up with, of index `first_index` on.

    Their prompts are numbers -1, -2, ... of the plan's own seed: streams and openings that no
    measured request has. Where the trace brings the lengths, they are of rows all over it.

    Raises:
        ConfigError: a trace that cannot be read.
    """
    lengths = _trace_lengths(conf, n)
    asked = (
        (
            first_index + number,
            Wanted(index=-1 - number, input_tokens=size[0], output_tokens=size[1]),
        )
        for number, size in enumerate(lengths)
    )
    return make_requests(conf.scenario, tokenizer, plan_seed(conf), asked)


def _trace_lengths(conf: RunConf, n: int) -> list[tuple[int | None, int | None]]:
    if conf.scenario.lengths is not Lengths.TRACE:
        return [(None, None)] * n
    level = next(one for one in conf.load.played_levels() if one.shape is Shape.TRACE)
    trace = level_trace(level.trace, plan_seed(conf))
    supply = TraceSupply(trace=trace, scenario=conf.scenario)
    rows = [supply.wanted(number * len(trace) // n) for number in range(n)]
    return [(row.input_tokens, row.output_tokens) for row in rows]
