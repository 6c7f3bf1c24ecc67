"""Who sends what: lengths, groups of requests, turns, shared beginnings."""

import math
from dataclasses import dataclass, field

from omegaconf import MISSING

from harness.config.checks import Word, require

LANGUAGES = ("code", "en", "zh")


class Lengths(Word):
    """How long prompts and answers are.

    UNIFORM: between the minimum and the maximum (a minimum of None makes them fixed).
    EMPIRICAL: drawn from the lengths of a real service, `length_source`. TRACE: row by row from
    the trace that the load replays. LOGNORMAL: a fallback for what has no data; it misses real
    tails by a factor of 0.5 to 6.5 (method.md 2.2), and the result is labelled so.
    """

    UNIFORM = "uniform"
    EMPIRICAL = "empirical"
    TRACE = "trace"
    LOGNORMAL = "lognormal"


@dataclass
class LognormalConf:
    """Mean and standard deviation of ln(tokens), for input and output."""

    input_log_mean: float | None = None
    input_log_sigma: float | None = None
    output_log_mean: float | None = None
    output_log_sigma: float | None = None

    def check(self) -> None:
        """Raise ConfigError unless all four are there and the deviations positive."""
        for side in ("input", "output"):
            for name in ("log_mean", "log_sigma"):
                key = f"{side}_{name}"
                value = getattr(self, key)
                is_good = value is not None and math.isfinite(value)
                if name == "log_sigma":
                    is_good = is_good and value > 0
                allowed = "a finite number (of ln tokens), the deviation > 0"
                require(is_good, f"scenario.lognormal.{key}", value, allowed)


@dataclass
class GroupConf:
    """One kind of request in a mixture, with lengths of its own; results are split by its name.

    `share`: its weight among the groups. None takes the scenario's length.
    """

    name: str = MISSING
    share: float = 1.0
    input_tokens: int | None = None
    input_tokens_min: int | None = None
    output_tokens: int | None = None
    output_tokens_min: int | None = None

    def check(self, where: str) -> None:
        """Raise ConfigError for a group that cannot be drawn."""
        require(self.name.isidentifier(), f"{where}.name", self.name, "a word of letters")
        share_ok = math.isfinite(self.share) and self.share >= 0
        require(share_ok, f"{where}.share", self.share, "a finite number >= 0")
        _check_lengths(self, where)


@dataclass
class ScenarioConf:
    """Who sends what. Lengths in tokens of the model's own tokenizer.

    `input_tokens` and `output_tokens` are the longest that is asked for under every kind of
    `lengths`: what a table or a trace has beyond them is clipped, and the result says how much.
    `prefix_tokens`: a beginning that requests share, one of `prefix_count`; part of the input.
    `turns_min` to `turns`: requests of a session (load=sessions), each with its history.
    `prompts_file`: real prompts (JSONL, or ShareGPT's JSON) in place of our corpus.
    `lora`: adapters of which each request names one. `measures`: what the scenario is about,
    beyond the standard metrics.
    """

    name: str = MISSING
    summary: str = ""
    lengths: Lengths = Lengths.UNIFORM
    length_source: str = ""
    lognormal: LognormalConf = field(default_factory=LognormalConf)
    input_tokens: int = 64
    input_tokens_min: int | None = None
    output_tokens: int = 64
    output_tokens_min: int | None = None
    languages: list[str] = field(default_factory=lambda: ["en"])
    groups: list[GroupConf] = field(default_factory=list)
    prefix_tokens: int = 0
    prefix_count: int = 1
    turns: int = 1
    turns_min: int | None = None
    prompts_file: str = ""
    lora: list[str] = field(default_factory=list)
    measures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        _check_lengths(self, "scenario")
        require(bool(self.languages), "scenario.languages", self.languages, _LANGUAGE_LIST)
        for language in self.languages:
            allowed = f"one of: {', '.join(LANGUAGES)}"
            require(language in LANGUAGES, "scenario.languages", language, allowed)
        if self.lengths is Lengths.LOGNORMAL:
            self.lognormal.check()
        if self.lengths is Lengths.EMPIRICAL:
            allowed = "the name of a length table, such as azure_conv, or a trace file"
            require(bool(self.length_source), "scenario.length_source", "", allowed)
        self._check_groups()
        self._check_prefix()
        require(self.turns >= 1, "scenario.turns", self.turns, "an integer >= 1")
        turns_ok = self.turns_min is None or 1 <= self.turns_min <= self.turns
        allowed = f"between 1 and scenario.turns={self.turns}"
        require(turns_ok, "scenario.turns_min", self.turns_min, allowed)

    def _check_groups(self) -> None:
        names = [group.name for group in self.groups]
        require(len(set(names)) == len(names), "scenario.groups", names, "names that all differ")
        for number, group in enumerate(self.groups):
            group.check(f"scenario.groups[{number}]")
        if self.groups:
            total = sum(group.share for group in self.groups)
            require(total > 0, "scenario.groups", total, "shares of which one is above 0")

    def _check_prefix(self) -> None:
        allowed = f"between 0 and scenario.input_tokens={self.input_tokens} - 1"
        is_good = 0 <= self.prefix_tokens < self.input_tokens
        require(is_good, "scenario.prefix_tokens", self.prefix_tokens, allowed)
        count_ok = self.prefix_count >= 1
        require(count_ok, "scenario.prefix_count", self.prefix_count, "an integer >= 1")

    @property
    def longest_input_tokens(self) -> int:
        """The longest prompt that any group may send."""
        return max([self.input_tokens, *(group.input_tokens or 0 for group in self.groups)])

    @property
    def longest_output_tokens(self) -> int:
        """The longest answer that any group may ask for."""
        return max([self.output_tokens, *(group.output_tokens or 0 for group in self.groups)])


_LANGUAGE_LIST = f"a list of: {', '.join(LANGUAGES)}"


def _check_lengths(conf: "ScenarioConf | GroupConf", where: str) -> None:
    for key in ("input_tokens", "output_tokens"):
        high, low = getattr(conf, key), getattr(conf, f"{key}_min")
        require(high is None or high >= 1, f"{where}.{key}", high, "an integer >= 1 (tokens)")
        allowed = f"between 1 and {where}.{key}={high}"
        low_ok = low is None or (high is not None and 1 <= low <= high)
        require(low_ok, f"{where}.{key}_min", low, allowed)
