"""From a plan to what the load process plays: the calls on disk, the levels, the warm-up."""

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from harness.adapter import Adapter
from harness.config import RunConf, WarmupMode
from harness.errors import StoreWriteError
from harness.load.calls import http_bytes, write_calls
from harness.load.decode import Planned, PlayedLevel
from harness.load.job import LevelJob, LoadJob
from harness.plan.plan import Plan, warmup_requests
from harness.plan.tokenizer import Tokenizer
from harness.types import Request

_QUICK_USERS = 2  # a quick warm-up plays at most so many requests, all at once
_STEADY_USERS = 8
_STEADY_RATIO = 0.02  # method.md 3.1: three windows in a row within 2 %
_STEADY_REQUESTS_PER_USER = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLoad:
    """A load ready to be played, and what is needed to decode its journal."""

    job: LoadJob
    levels: tuple[PlayedLevel, ...]
    lengths: "tuple[array[int], array[int]]"  # array is only generic to the type checker

    def planned(self, index: int) -> Planned:
        """Planned lengths of a request, warm-up included."""
        input_tokens, output_tokens = self.lengths
        return Planned(input_tokens=input_tokens[index], output_tokens=output_tokens[index])


def warmup_size(conf: RunConf) -> tuple[int, int]:
    """Users and requests of the warm-up."""
    is_steady = conf.warmup.mode is WarmupMode.STEADY
    most = _STEADY_USERS if is_steady else _QUICK_USERS
    users = min(conf.engine.max_running or most, most)
    return users, users * (_STEADY_REQUESTS_PER_USER if is_steady else 1)


def prepare_load(
    conf: RunConf,
    plan: Plan,
    tokenizer: Tokenizer,
    adapter: Adapter,
    *,
    base_url: str,
    folder: Path,
) -> PreparedLoad:
    """Write the calls of all levels and of the warm-up into `folder`; returns the job.

    StoreWriteError if the disk refuses.
    """
    lengths = (array("L"), array("L"))
    users, count = warmup_size(conf)
    warmup = warmup_requests(conf, tokenizer, count)
    host, prefix = urlsplit(base_url).netloc, urlsplit(base_url).path

    def calls() -> Iterator[tuple[bytes, float | None]]:
        for request in _all_requests(plan, warmup):
            lengths[0].append(request.input_tokens)
            lengths[1].append(request.max_output_tokens)
            call = adapter.encode(request)
            if prefix:
                call = replace(call, path=prefix + call.path)
            data = http_bytes(call, host=host, request_id=str(len(lengths[0]) - 1))
            yield data, request.due_s

    try:
        total = write_calls(folder, calls())
    except OSError as error:
        raise StoreWriteError(f"{folder}: cannot be written: {error.strerror}") from error
    warm = LevelJob(
        name="warm-up",
        first=total - len(warmup),
        count=len(warmup),
        users=users,
        duration_s=conf.warmup.max_s,
        is_warmup=True,
        steady_ratio=_STEADY_RATIO if conf.warmup.mode is WarmupMode.STEADY else None,
    )
    return PreparedLoad(
        job=_job(conf, plan, warm, base_url, folder),
        levels=(_warm_row(warm), *_level_rows(plan)),
        lengths=lengths,
    )


def _all_requests(plan: Plan, warmup: list[Request]) -> Iterator[Request]:
    for level in plan.levels:
        yield from level.requests()
    yield from warmup


def _job(conf: RunConf, plan: Plan, warm: LevelJob, base_url: str, folder: Path) -> LoadJob:
    address = urlsplit(base_url)
    measured = tuple(
        LevelJob(
            name=planned.level.label,
            first=planned.first_index,
            count=planned.count,
            users=planned.level.users,
            think_s=planned.level.think_s,
            duration_s=planned.level.duration_s,
        )
        for planned in plan.levels
    )
    return LoadJob(
        zero_s=time.monotonic(),
        host=address.hostname or "127.0.0.1",
        port=address.port or 80,
        calls=str(folder),
        journal=str(folder / "journal.bin"),
        levels=(warm, *measured),
        request_timeout_s=conf.load.request_timeout_s,
        drain_timeout_s=conf.load.drain_timeout_s,
        settle_s=conf.load.settle_s,
    )


def _warm_row(warm: LevelJob) -> PlayedLevel:
    return PlayedLevel(
        name=warm.name,
        shape="users",
        users=warm.users,
        rate_rps=None,
        is_warmup=True,
        planned=warm.count,
    )


def _level_rows(plan: Plan) -> Iterator[PlayedLevel]:
    for planned in plan.levels:
        yield PlayedLevel(
            name=planned.level.label,
            shape=planned.level.shape.value,
            users=planned.level.users,
            rate_rps=planned.level.rate_rps,
            is_warmup=False,
            planned=planned.count,
        )
