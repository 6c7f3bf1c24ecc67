"""The plan of a run: how every request and due time is made, fixed before any engine starts.

Requests are not kept: each is made again whenever it is asked for, in batches, and comes out the
same, so a plan of 200,000 requests costs no memory and its hash no time. The hash covers the
generator and all its inputs; engine, model file, store and name are not among them, so engines
that share a tokenizer share a plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from harness.config import LevelConf, RunConf
from harness.plan.identity import plan_facts, plan_sha256
from harness.plan.sizes import level_counts, plan_seed
from harness.plan.tokenizer import Tokenizer
from harness.types import Request
from scenarios.prompts import PromptMaker
from scenarios.streams import draw_int, stream

_BATCH = 256  # prompts made at once: enough to share the tokenizer's overhead
_MAX_SAMPLING_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMaker:
    """Makes requests of any index: a pure function of (scenario, tokenizer, seed, index)."""

    prompts: PromptMaker
    seed: str
    exact: bool

    def requests(self, indices: range) -> Iterator[Request]:
        """Requests without due times, in the order of `indices`, made batch by batch."""
        numbers = iter(indices)
        while batch := list(islice(numbers, _BATCH)):
            for prompt in self.prompts.prompts(batch):
                rng = stream(self.seed, "sampling", prompt.index)
                yield Request(
                    index=prompt.index,
                    prompt=prompt.text,
                    input_tokens=prompt.input_tokens,
                    max_output_tokens=prompt.output_tokens,
                    input_tokens_exact=self.exact,
                    seed=draw_int(rng, 0, _MAX_SAMPLING_SEED),
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLevel:
    """One level: requests `first_index` to `first_index + count - 1`.

    `due_s`: seconds from the level's start, shape (count,), of an open level; None if closed.
    `is_bound`: a closed level that ends by time; `count` is more than it can use.
    """

    number: int
    level: LevelConf
    first_index: int
    count: int
    is_bound: bool
    due_s: Sequence[float] | None
    maker: RequestMaker = field(repr=False)

    def requests(self, *, shard: int = 0, shards: int = 1) -> Iterator[Request]:
        """The level's requests in order of index, made as they are asked for.

        Args:
            shard: which worker asks, 0 to shards - 1; it gets every `shards`-th request.
            shards: how many workers share the level.
        """
        indices = range(self.first_index + shard, self.first_index + self.count, shards)
        for request in self.maker.requests(indices):
            if self.due_s is None:
                yield request
            else:
                yield replace(request, due_s=self.due_s[request.index - self.first_index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All levels of a run. `facts`: JSON-able, what makes every request and due time."""

    plan_hash: str
    levels: tuple[PlannedLevel, ...]
    facts: Mapping[str, Any]

    @property
    def count(self) -> int:
        """Requests in all levels."""
        return sum(level.count for level in self.levels)

    def describe(self) -> dict[str, Any]:
        """What `plans/<hash>.json` holds: the inputs, and which requests each level plays."""
        levels = [
            {
                "level": planned.level.label,
                "first_index": planned.first_index,
                "count": planned.count,
                "is_bound": planned.is_bound,
            }
            for planned in self.levels
        ]
        return {"plan_hash": self.plan_hash, **self.facts, "levels": levels}


def request_maker(conf: RunConf, tokenizer: Tokenizer) -> RequestMaker:
    """What makes the requests of a run, measured and warm-up ones."""
    seed = plan_seed(conf)
    return RequestMaker(
        prompts=PromptMaker(conf.scenario, tokenizer, seed), seed=seed, exact=tokenizer.exact
    )


def build_plan(conf: RunConf, tokenizer: Tokenizer) -> Plan:
    """The plan of a run; starts nothing and generates no request yet.

    Indices run on over the levels, so that no prompt is used twice on one server.

    Raises:
        ConfigError: a level cannot be played.
    """
    maker = request_maker(conf, tokenizer)
    levels: list[PlannedLevel] = []
    first_index = 0
    for number, (level, size) in enumerate(
        zip(conf.load.played_levels(), level_counts(conf), strict=True)
    ):
        levels.append(
            PlannedLevel(
                number=number,
                level=level,
                first_index=first_index,
                count=size.count,
                is_bound=size.is_bound,
                due_s=size.due_s,
                maker=maker,
            )
        )
        first_index += size.count
    facts = plan_facts(conf, tokenizer, maker.seed)
    return Plan(plan_hash=plan_sha256(facts), levels=tuple(levels), facts=facts)


def warmup_requests(conf: RunConf, tokenizer: Tokenizer, n: int) -> list[Request]:
    """`n` requests to warm up with: like the measured ones, but with prompts of their own.

    Their indices are -1, -2, ...: streams and openings that no measured request has.
    """
    return list(request_maker(conf, tokenizer).requests(range(-1, -1 - n, -1)))
