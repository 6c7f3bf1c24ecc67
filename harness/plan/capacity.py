"""What a job asks of this machine before it starts: connections, memory, disk for its calls."""

import math
from collections.abc import Sequence

from harness.config import Lengths, LevelConf, RunConf, Shape
from harness.plan.answer_tokens import answer_tokens
from harness.plan.level_estimate import request_s, search_estimate
from harness.plan.level_identity import plan_seed
from harness.plan.sizes import LevelSize, level_sizes
from harness.plan.trace_level import level_trace, output_tokens_sum
from scenarios.traces import Trace

# Requests that are open at once are taken to be those due within the time that the slowest
# plausible one takes, at most so long: an engine that needs longer for most of them is far beyond
# its capacity, and the time-out of 600 s would refuse every load.
OPEN_REQUEST_S = 30.0
BURST_USERS = 512  # a search that is not told where to look plays at most so many at once

_ROW_BYTES = 48  # of the index of calls, kept by the parent and by every load process
_DUE_BYTES = 8
_TRACE_ROW_BYTES = 24  # offset, input and output tokens
_BLOCKS_ROW_BYTES = 56  # a tuple
_BLOCK_BYTES = 40  # its place in the tuple, and a number of its own
_HEAD_BYTES = 500  # method, headers and the fields of the body beside the prompt
_BYTES_PER_TOKEN = 6  # English takes 4 to 5, Chinese up to 6 once it is escaped in JSON


def peak_connections(conf: RunConf) -> int:
    """The most connections that a job is taken to need at once.

    Closed levels: their users. Open ones: the most requests that are due within
    min(slowest plausible request, `OPEN_REQUEST_S`); of sessions, begun within the time that all
    their turns take. A search: the same at its highest rate, and at least the users of its
    largest burst, if it has to find that rate itself.

    Raises:
        ConfigError: a level cannot be played.
    """
    window_s = min(request_s(conf).high, OPEN_REQUEST_S)
    if conf.load.shape is Shape.SEARCH:
        rates = [*conf.load.search.confirm_rates, conf.load.search.rate_high_rps or 0.0]
        return math.ceil(max(rates) * window_s) or BURST_USERS
    levels = zip(conf.load.played_levels(), level_sizes(conf), strict=True)
    return max(_connections(level, size, window_s) for level, size in levels)


def _connections(level: LevelConf, size: LevelSize, window_s: float) -> int:
    if size.due_s is None:
        return level.user_count
    turns = size.turns_max
    return most_due(size.due_s, turns * window_s + (turns - 1) * level.think_s)


def most_due(due_s: Sequence[float], window_s: float) -> int:
    """The largest number of ascending due times inside any span of `window_s`, ends included."""
    most = first = 0
    for last, due in enumerate(due_s):
        while due - due_s[first] > window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def plan_memory_bytes(conf: RunConf) -> int:
    """Memory for what is planned, over the parent and all load processes on this machine.

    The index of the calls, due times, and a trace's rows; prompts stay on disk.

    Raises:
        ConfigError: a level cannot be played.
    """
    processes = 1 + conf.load.workers - conf.load.remote_workers
    if conf.load.shape is Shape.SEARCH:
        most = search_estimate(conf).requests.high / conf.load.search.probes_max
        return math.ceil(most * (_ROW_BYTES * processes + _DUE_BYTES))
    count = sum(size.count for size in level_sizes(conf))
    traces = {id(trace): trace for trace in _traces(conf)}
    kept = sum(
        len(trace) * _TRACE_ROW_BYTES
        + sum(_BLOCKS_ROW_BYTES + _BLOCK_BYTES * len(ids) for ids in trace.hash_ids or ())
        for trace in traces.values()
    )
    return count * (_ROW_BYTES * processes + _DUE_BYTES) + kept


def _traces(conf: RunConf) -> list[Trace]:
    seed = plan_seed(conf)
    return [
        level_trace(level.trace, seed)
        for level in conf.load.played_levels()
        if level.shape is Shape.TRACE
    ]


def calls_bytes(conf: RunConf) -> int:
    """Disk that the requests of a job take while it is played, at most; deleted afterwards.

    Raises:
        ConfigError: a level cannot be played.
    """
    scenario = conf.scenario
    each = _HEAD_BYTES + _BYTES_PER_TOKEN * scenario.longest_input_tokens
    if conf.load.shape is Shape.SEARCH:
        return math.ceil(search_estimate(conf).requests.high * each)
    taken = 0
    for level, size in zip(conf.load.played_levels(), level_sizes(conf), strict=True):
        taken += size.planned * each
        if level.shape is Shape.TRACE and scenario.lengths is Lengths.TRACE:
            trace = level_trace(level.trace, plan_seed(conf))
            tokens = sum(min(n, scenario.input_tokens) for n in trace.input_tokens[: size.count])
            taken += _BYTES_PER_TOKEN * (tokens - size.planned * scenario.longest_input_tokens)
    return taken


def offered_tokens_per_s(conf: RunConf) -> float | None:
    """Answer tokens a second that the load asks for at its highest rate, on average over a level.

    Of a ramp its steeper end. None if no level has a rate: what users get depends on the engine.

    Raises:
        ConfigError: a level cannot be played.
    """
    tokens = answer_tokens(conf.scenario).mean
    if conf.load.shape is Shape.SEARCH:
        rates = [*conf.load.search.confirm_rates, conf.load.search.rate_high_rps or 0.0]
        return max(rates) * tokens or None
    levels = zip(conf.load.played_levels(), level_sizes(conf), strict=True)
    offered = [_offered(conf, level, size, tokens) for level, size in levels]
    return max((one for one in offered if one is not None), default=None)


def _offered(conf: RunConf, level: LevelConf, size: LevelSize, tokens: float) -> float | None:
    if size.due_s is None or not size.span_s:
        return None
    if level.shape is Shape.TRACE and conf.scenario.lengths is Lengths.TRACE:
        trace = level_trace(level.trace, plan_seed(conf))
        return output_tokens_sum(trace, conf.scenario, size.count) / size.span_s
    mean_rate_rps = size.planned / size.span_s
    return tokens * max(mean_rate_rps, level.rate_rps or 0.0, level.rate_to_rps or 0.0)
