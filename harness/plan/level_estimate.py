"""What one level takes, in bounds: requests, seconds, and tokens of the answers."""

import math
from dataclasses import dataclass

from harness.config import Lengths, LevelConf, RunConf, Shape
from harness.plan.answer_tokens import answer_tokens
from harness.plan.bounds import Bounds, exactly
from harness.plan.level_identity import plan_seed
from harness.plan.sizes import FASTEST_REQUEST_S, FASTEST_TOKEN_S, LevelSize
from harness.plan.trace_level import level_trace, output_tokens_sum

# A stream at 4 tokens/s is slower than people read; slower engines are cut off by the time-outs.
_SLOWEST_TOKEN_S = 0.25
_SLOWEST_PROMPT_TOKEN_S = 0.02
# A sequential test has mostly decided after 850 requests (method.md 2.1: .99 against .98).
_PROBE_REQUESTS = 4 * 850
_LEAST_PROBES = 2  # one rate that holds and one that does not


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelEstimate:
    """What a level takes. `output_tokens`: of all its answers together."""

    requests: Bounds
    seconds: Bounds
    output_tokens: Bounds


def request_s(conf: RunConf, turns: int = 1) -> Bounds:
    """Sent to ended, of one request; of the last turn of a session, whose history is read too."""
    scenario = conf.scenario
    longest = scenario.longest_output_tokens
    prompt = turns * scenario.longest_input_tokens + (turns - 1) * longest
    slowest_s = _SLOWEST_TOKEN_S * longest + _SLOWEST_PROMPT_TOKEN_S * prompt
    shortest = answer_tokens(scenario).low
    return Bounds(
        low=max(FASTEST_REQUEST_S, FASTEST_TOKEN_S * shortest),
        high=min(slowest_s, conf.load.request_timeout_s),
    )


def level_estimate(conf: RunConf, level: LevelConf, size: LevelSize) -> LevelEstimate:
    """What a level of this size takes, the pause after it included."""
    requests = _requests(conf, level, size)
    tokens = answer_tokens(conf.scenario)
    output_tokens = Bounds(low=requests.low * tokens.low, high=requests.high * tokens.high)
    if level.shape is Shape.TRACE and conf.scenario.lengths is Lengths.TRACE:
        trace = level_trace(level.trace, plan_seed(conf))
        output_tokens = exactly(output_tokens_sum(trace, conf.scenario, size.count))
    return LevelEstimate(
        requests=requests,
        seconds=_seconds(conf, level, size).plus(exactly(conf.load.settle_s)),
        output_tokens=output_tokens,
    )


def _requests(conf: RunConf, level: LevelConf, size: LevelSize) -> Bounds:
    if level.duration_s is None or not level.is_closed:
        return exactly(size.planned)
    slowest_s = request_s(conf, size.turns_max).high + level.think_s
    fewest = level.user_count * max(1.0, (size.span_s or level.duration_s) // slowest_s)
    return Bounds(low=min(fewest, size.planned), high=size.planned)


def _seconds(conf: RunConf, level: LevelConf, size: LevelSize) -> Bounds:
    each_s = request_s(conf, size.turns_max)
    turns = size.turns_max if size.turns else 1
    think_s = level.think_s * (turns - 1 if size.turns else 1)
    session = each_s.times(turns).plus(exactly(think_s))
    if level.is_closed and not size.is_bound:
        rounds = max(math.ceil(lane.count / size.turns_max / lane.users) for lane in size.lanes)
        seconds = session.times(rounds)
        return _cut(seconds, level.duration_s, each_s, conf)
    span_s = size.span_s or 0.0
    if size.turns and level.duration_s is None:  # the last session is played to its end
        return exactly(span_s).plus(session)
    drain_s = min(each_s.high, conf.load.drain_timeout_s)
    return Bounds(low=span_s, high=span_s + drain_s)


def _cut(seconds: Bounds, duration_s: float | None, each_s: Bounds, conf: RunConf) -> Bounds:
    if duration_s is None:
        return seconds
    drain_s = min(each_s.high, conf.load.drain_timeout_s)
    return Bounds(low=min(seconds.low, duration_s), high=min(seconds.high, duration_s + drain_s))


def search_estimate(conf: RunConf) -> LevelEstimate:
    """What the probes of a search take on one server, its confirmation left out."""
    search, each_s, tokens = conf.load.search, request_s(conf), answer_tokens(conf.scenario)
    by_rate = math.inf if search.rate_high_rps is None else search.rate_high_rps
    most: float = _PROBE_REQUESTS
    if search.rate_high_rps is not None:  # within its time, and as long as it must last to pass
        least = 2 * by_rate * search.probe_min_s
        most = min(by_rate * search.probe_max_s, max(most, least))
    probes = len(search.confirm_rates) or search.probes_max
    requests = Bounds(low=_LEAST_PROBES, high=probes * most)
    drain_s = min(each_s.high, conf.load.drain_timeout_s)
    probe_s = search.probe_max_s + drain_s + conf.load.settle_s
    return LevelEstimate(
        requests=requests,
        seconds=Bounds(
            low=_LEAST_PROBES * (each_s.low + conf.load.settle_s), high=probes * probe_s
        ),
        output_tokens=Bounds(low=requests.low * tokens.low, high=requests.high * tokens.high),
    )
