"""The plan of a run: how every request and due time is made, fixed before any engine starts.

Requests are not kept: each is made again whenever it is asked for, in batches, and comes out the
same, so a plan of 200,000 requests costs no memory and its hash no time. The hash covers the
generator and all its inputs; engine, model file, store and name are not among them, so engines
that share a tokenizer share a plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.config import Lengths, RunConf, Shape
from harness.plan.identity import level_sha256, plan_facts, plan_sha256
from harness.plan.level import PlannedLevel, level_supply, level_trace_facts
from harness.plan.level_identity import level_identities, level_seed, plan_seed
from harness.plan.sizes import level_sizes
from harness.plan.tokenizer import Tokenizer
from scenarios.prompts import PromptMaker

# A file's rows are handed out in order, each once; beyond them they come behind an opening that
# no other prompt has. Levels after the first begin there, so that none repeats another's prompts.
_BEYOND_ANY_FILE = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All levels of a run. `facts`: JSON-able, what makes every request and due time.

    `prompts`: where lengths and texts come from beyond that, and what of them is cut; {} for
    lengths that the scenario says in full and texts of our own. A search has no levels:
    `harness.plan.probe` makes them while it runs.
    """

    plan_hash: str
    levels: tuple[PlannedLevel, ...]
    facts: Mapping[str, Any]
    prompts: Mapping[str, Any]

    @property
    def count(self) -> int:
        """Indices that all levels take: the next free one."""
        return sum(level.count for level in self.levels)

    def describe(self) -> dict[str, Any]:
        """What `plans/<hash>.json` holds: the inputs, and which requests each level plays."""
        levels = [level.describe() for level in self.levels]
        told = {"plan_hash": self.plan_hash, **self.facts, "levels": levels}
        return {**told, "prompts": self.prompts} if self.prompts else told


def build_plan(conf: RunConf, tokenizer: Tokenizer) -> Plan:
    """The plan of a run; starts nothing and generates no request yet.

    Indices run on over the levels; what a level's prompts are depends on its own facts only, not
    on its place in the list.

    Raises:
        ConfigError: a level cannot be played, or a trace or a file of the scenario not be read.
    """
    is_search = conf.load.shape is Shape.SEARCH
    identities = () if is_search else level_identities(conf)
    facts = plan_facts(conf, tokenizer, identities)
    return Plan(
        plan_hash=plan_sha256(facts),
        levels=() if is_search else tuple(_levels(conf, tokenizer, facts, identities)),
        facts=facts,
        prompts=_prompt_facts(conf, tokenizer),
    )


def _prompt_facts(conf: RunConf, tokenizer: Tokenizer) -> Mapping[str, Any]:
    is_plain = conf.scenario.lengths in {Lengths.UNIFORM, Lengths.TRACE}
    if is_plain and not conf.scenario.prompts_file:
        return {}  # without counting the corpus
    return PromptMaker(conf.scenario, tokenizer, plan_seed(conf)).facts


def _levels(
    conf: RunConf,
    tokenizer: Tokenizer,
    facts: Mapping[str, Any],
    identities: Sequence[Mapping[str, Any]],
) -> Iterator[PlannedLevel]:
    seed, scenario, played = plan_seed(conf), conf.scenario, conf.load.played_levels()
    first_index = 0
    sizes = level_sizes(conf)
    for number, (level, size, identity) in enumerate(zip(played, sizes, identities, strict=True)):
        first_prompt = _BEYOND_ANY_FILE if "behind_openings" in identity else 0
        yield PlannedLevel(
            number=number,
            level=level,
            first_index=first_index,
            size=size,
            seed=level_seed(seed, identity),
            sha256=level_sha256(facts, identity),
            scenario=scenario,
            tokenizer=tokenizer,
            supply=level_supply(level, size, scenario, seed, first_prompt=first_prompt),
            trace=level_trace_facts(level, size, scenario, seed),
        )
        first_index += size.count
