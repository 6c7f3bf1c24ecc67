"""What a search plays, as levels: at every rate the same pattern and lengths, and fresh prompts.

Rates are compared on common random numbers (method.md 2.1): request i of every probe has the
same place in the unit-rate arrivals, the same group and the same lengths. Its text is new, since
a server that had read it before would answer faster.
"""

from dataclasses import dataclass

from harness.config import LevelConf, RunConf, ScenarioConf, Shape
from harness.plan.identity import level_sha256, plan_facts
from harness.plan.level import PlannedLevel
from harness.plan.level_identity import level_identity, plan_seed
from harness.plan.requests import PlainSupply, Supply
from harness.plan.sizes import level_size
from harness.plan.tokenizer import Tokenizer
from scenarios.groups import Groups
from scenarios.lengths import lengths
from scenarios.wanted import Wanted


@dataclass(frozen=True, slots=True)
class ProbeSupply:
    """What is wanted of each place of a probe: text of its own, and the common lengths.

    `first`: the prompt of the first place. A file of prompts has lengths of its own.
    """

    scenario: ScenarioConf
    seed: str
    first: int
    groups: Groups

    def wanted(self, place: int) -> Wanted:
        """The request at a place of the probe."""
        index = self.first + place
        group = self.groups.group(Wanted(index=place))
        name = group.name if group else None
        if self.scenario.prompts_file:
            return Wanted(index=index, group=name)
        drawn = lengths(self.scenario, self.seed, place, group)
        return Wanted(
            index=index,
            group=name,
            input_tokens=drawn.input_tokens,
            output_tokens=drawn.output_tokens,
        )


def probe_level(
    conf: RunConf,
    tokenizer: Tokenizer,
    *,
    number: int,
    rate_rps: float,
    first_index: int,
    duration_s: float,
) -> PlannedLevel:
    """A probe of a search, to be played as any level: Poisson, or gamma with `load.burstiness`.

    Args:
        conf: with load=search; each of the runs that confirm a search has a pattern and prompts
            of its own.
        tokenizer: sizes the prompts.
        number: its place among the run's levels.
        rate_rps: the rate to try.
        first_index: index of its first request and number of its first prompt: the next one
            that this server has not seen.
        duration_s: how long arrivals go on.

    Raises:
        ConfigError: the rate or the duration is not a finite number above 0, or nothing arrives.
    """
    burstiness = conf.load.burstiness
    level = LevelConf(
        shape=Shape.POISSON if burstiness is None else Shape.GAMMA,
        rate_rps=rate_rps,
        burstiness=burstiness,
        duration_s=duration_s,
    )
    seed = _search_seed(conf)
    supply = ProbeSupply(conf.scenario, seed, first_index, Groups(conf.scenario, seed))
    return _level(conf, tokenizer, level, supply, number=number, first_index=first_index)


def closed_level(
    conf: RunConf, tokenizer: Tokenizer, level: LevelConf, *, number: int, first_index: int
) -> PlannedLevel:
    """A level of users beside the probes of a search: one request alone, or a burst.

    Args and errors as of `probe_level`; its prompts are drawn as the scenario says.
    """
    supply = PlainSupply(first=first_index)
    return _level(conf, tokenizer, level, supply, number=number, first_index=first_index)


def _search_seed(conf: RunConf) -> str:
    return f"{plan_seed(conf)}:search:{conf.load.search.confirm_number}"


def _level(
    conf: RunConf,
    tokenizer: Tokenizer,
    level: LevelConf,
    supply: Supply,
    *,
    number: int,
    first_index: int,
) -> PlannedLevel:
    level.check("load.search")
    seed = plan_seed(conf)
    identity = level_identity(level, seed, again=conf.load.search.confirm_number)
    facts = plan_facts(conf, tokenizer, ())
    return PlannedLevel(
        number=number,
        level=level,
        first_index=first_index,
        size=level_size(level, conf.scenario, seed, identity),
        seed=_search_seed(conf),
        sha256=level_sha256(facts, {**identity, "search": True, "first_prompt": first_index}),
        scenario=conf.scenario,
        tokenizer=tokenizer,
        supply=supply,
    )
