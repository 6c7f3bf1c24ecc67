"""From planned levels to what the load process plays: their calls on disk, and their rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.adapter import Adapter
from harness.config import RunConf, Shape, WarmupMode
from harness.errors import StoreWriteError
from harness.load.calls import Planned, PlannedCall, call_bytes, write_calls
from harness.load.decode import PlayedLevel
from harness.load.job import Lane, LevelJob, LevelsJob, Target
from harness.plan.level import PlannedLevel
from harness.plan.tokenizer import Tokenizer
from harness.plan.warmup import warmup_requests
from harness.run.load_job import load_target
from harness.types import Request

_WARMUP = "warm-up"
_QUICK_USERS = 2  # a quick warm-up plays at most so many requests, all at once
_STEADY_USERS = 8
_STEADY_RATIO = 0.02  # method.md 3.1: three windows in a row within 2 %
_STEADY_REQUESTS_PER_USER = 40
_EMPTY_PLACE = PlannedCall(b"", None, Planned(input_tokens=0, output_tokens=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Levels whose calls are on disk: the job to play them, and their rows for the decoder."""

    job: LevelsJob
    rows: tuple[PlayedLevel, ...]


def write_levels(
    conf: RunConf,
    levels: Sequence[PlannedLevel],
    adapter: Adapter,
    folder: Path,
    *,
    base_url: str,
    first_number: int,
) -> Written:
    """Write the calls of levels that are played one after another.

    Args:
        conf: the job's.
        levels: whose indices follow each other without a gap: a plan's, or one probe.
        adapter: makes the requests' bytes.
        folder: of these calls alone.
        base_url: of the server: its path comes before the adapter's.
        first_number: the first level's place in the run, the warm-up included.

    Raises:
        ConfigError: not a base URL.
        StoreWriteError: the disk refuses.
    """
    target = load_target(conf, base_url)
    calls = (call for level in levels for call in _level_calls(level, adapter, target))
    _write(folder, calls, first=levels[0].first_index)
    jobs = tuple(_level_job(level, first_number + k) for k, level in enumerate(levels))
    return Written(
        job=LevelsJob(calls=str(folder), levels=jobs),
        rows=tuple(_level_row(level) for level in levels),
    )


def write_warmup(
    conf: RunConf,
    tokenizer: Tokenizer,
    adapter: Adapter,
    folder: Path,
    *,
    base_url: str,
    first_index: int,
    number: int = 0,
) -> Written:
    """Write the calls of the warm-up, of index `first_index` on; see `write_levels`."""
    target = load_target(conf, base_url)
    users, count = warmup_size(conf)
    requests = warmup_requests(conf, tokenizer, count, first_index=first_index)
    _write(folder, (_call(one, adapter, target) for one in requests), first=first_index)
    is_steady = conf.warmup.mode is WarmupMode.STEADY
    warm = LevelJob(
        number=number,
        name=_WARMUP,
        first=first_index,
        count=count,
        lanes=(Lane(first=first_index, count=count, users=users),),
        duration_s=conf.warmup.max_s,
        is_warmup=True,
        steady_ratio=_STEADY_RATIO if is_steady else None,
    )
    row = PlayedLevel(name=_WARMUP, shape="users", users=users, is_warmup=True, planned=count)
    return Written(job=LevelsJob(calls=str(folder), levels=(warm,)), rows=(row,))


def warmup_size(conf: RunConf) -> tuple[int, int]:
    """Users and requests of the warm-up; no more at once than the engine runs together."""
    is_steady = conf.warmup.mode is WarmupMode.STEADY
    most = _STEADY_USERS if is_steady else _QUICK_USERS
    users = min(conf.engine.max_running or most, most)
    return users, users * (_STEADY_REQUESTS_PER_USER if is_steady else 1)


def _level_row(planned: PlannedLevel) -> PlayedLevel:
    """What a level was meant to be, for its row in `run.json`."""
    level = planned.level
    return PlayedLevel(
        name=level.label,
        shape=level.shape.value,
        users=level.user_count or None,
        rate_rps=level.rate_rps,
        planned=planned.planned,
        think_s=level.think_s,
        trace=planned.trace,
        plan_sha256=planned.sha256,
    )


def _level_job(planned: PlannedLevel, number: int) -> LevelJob:
    lanes, first = [], planned.first_index
    for lane in planned.lanes:
        lanes.append(Lane(first=first, count=lane.count, users=lane.users, name=lane.name))
        first += lane.count
    return LevelJob(
        number=number,
        name=planned.level.label,
        first=planned.first_index,
        count=planned.count,
        lanes=tuple(lanes),
        think_s=planned.level.think_s,
        duration_s=planned.level.duration_s,
        turns=tuple(planned.size.turns),
        turns_max=planned.size.turns_max,
    )


def _level_calls(planned: PlannedLevel, adapter: Adapter, target: Target) -> Iterator[PlannedCall]:
    """A call for every place: of sessions the request itself, for a turn never played nothing."""
    is_session = planned.level.shape is Shape.SESSIONS
    following = planned.first_index
    for request in planned.requests():
        yield from [_EMPTY_PLACE] * (request.index - following)
        following = request.index + 1
        if is_session:  # encoded when its history is known
            yield PlannedCall(msgspec.json.encode(request), request.due_s, _planned(request))
        else:
            yield _call(request, adapter, target)
    yield from [_EMPTY_PLACE] * (planned.first_index + planned.count - following)


def _call(request: Request, adapter: Adapter, target: Target) -> PlannedCall:
    data = call_bytes(adapter.encode(request), target, request.index)
    return PlannedCall(data, request.due_s, _planned(request))


def _planned(request: Request) -> Planned:
    return Planned(
        input_tokens=request.input_tokens,
        output_tokens=request.max_output_tokens,
        prefix_tokens=request.prefix_tokens,
        session=request.session,
        turn=request.turn,
        group=request.group,
        lora=request.lora,
    )


def _write(folder: Path, calls: Iterable[PlannedCall], *, first: int) -> None:
    try:
        write_calls(folder, calls, first=first)
    except OSError as error:
        raise StoreWriteError(f"{folder}: cannot be written: {error.strerror}") from error
