"""What an emulated engine is like: its speed, its memory, and the faults it is to show."""

import math
from dataclasses import dataclass, field, fields
from typing import Any

from harness.config.checks import require, require_positive
from harness.errors import ConfigError

DEFAULT_SLOTS = 64
DEFAULT_MAX_MODEL_LEN_TOKENS = 8192
DEFAULT_TOKENS_PER_STEP = 2048


def _value(default: Any, what: str) -> Any:
    return field(default=default, metadata={"what": what})


@dataclass
class EmulateConf:
    """The engine that `launch=emulate` and `bakeoff emulate` play.

    Each field's `what` is its line of help. All times are of the emulated engine: what runs at
    `speed=60` does an hour's work in a minute. The first four have a word of `engine` each;
    None takes that.
    """

    slots: int | None = _value(
        None, f"sequences decoded together; engine.max_running, else {DEFAULT_SLOTS}"
    )
    max_model_len_tokens: int | None = _value(
        None,
        "longest prompt plus answer; engine.max_model_len, "
        f"else {DEFAULT_MAX_MODEL_LEN_TOKENS}, or what the KV cache holds",
    )
    tokens_per_step: int | None = _value(
        None, f"most tokens in one step; engine.tokens_per_step, else {DEFAULT_TOKENS_PER_STEP}"
    )
    prefix_cache: bool | None = _value(
        None, "reuse the KV blocks of equal beginnings; engine.prefix_cache, else off"
    )
    chunked_prefill: bool = _value(
        default=True, what="cut prompts to fit beside decoding; off: whole prompts go first, alone"
    )
    prefill_tokens_per_s: float = _value(8000.0, "how fast prompts are read")
    step_ms: float = _value(20.0, "a step's base time")
    step_per_sequence_ms: float = _value(0.1, "more for each sequence that decodes in it")
    step_per_kv_token_us: float = _value(0.05, "more for each token that those hold in the cache")
    block_tokens: int = _value(16, "tokens of a KV block")
    kv_blocks: int = _value(8192, "KV blocks; when they run out, the newest sequence is preempted")
    natural_output_tokens: int = _value(
        128, "mean length of an answer whose end is not forced; max_tokens cuts it"
    )
    jitter_ratio: float = _value(0.0, "standard deviation of a step's time over the time")
    speed: float = _value(1.0, "all times are divided by it: 60 does an hour in a minute")
    seed: int = _value(1, "of jitter, natural ends and faults")
    loading_s: float = _value(0.0, "how long it loads: 503 for every request")
    max_in_flight: int | None = _value(None, "429 with Retry-After above so many; none: it queues")
    retry_after_s: float = _value(1.0, "the wait that a 429 asks for, in whole seconds")
    error_ratio: float = _value(0.0, "share of requests that are answered with 500")
    cut_ratio: float = _value(0.0, "share of answers that break off in the middle")
    stream_error_ratio: float = _value(
        0.0, "share of streams with an error event in the middle, where the engine sends such"
    )
    stall_every_s: float | None = _value(None, "how often the engine stops; none: never")
    stall_ms: float = _value(500.0, "how long it then stops")
    drift_per_hour: float = _value(0.0, "growth of a step's time each hour, over its first time")
    memory_bytes: int = _value(2**30, "resident memory that it reports at its start")
    memory_growth_bytes_per_hour: float = _value(0.0, "what it takes, and reports, more each hour")

    def __post_init__(self) -> None:
        for key in ("slots", "max_model_len_tokens", "tokens_per_step", "max_in_flight"):
            value = getattr(self, key)
            require(value is None or value >= 1, f"launch.emulate.{key}", value, "an integer >= 1")
        for key in ("block_tokens", "kv_blocks", "natural_output_tokens"):
            value = getattr(self, key)
            require(value >= 1, f"launch.emulate.{key}", value, "an integer >= 1")
        for key, unit in (
            ("prefill_tokens_per_s", "tokens per second"),
            ("step_ms", "milliseconds"),
            ("speed", "(1: real time)"),
            ("stall_every_s", "seconds"),
        ):
            require_positive(f"launch.emulate.{key}", getattr(self, key), unit)
        self._check_at_least_zero()
        for key in ("error_ratio", "cut_ratio", "stream_error_ratio"):
            value = getattr(self, key)
            require(0 <= value <= 1, f"launch.emulate.{key}", value, "between 0 and 1")
        jitter_ok = 0 <= self.jitter_ratio < 1
        require(jitter_ok, "launch.emulate.jitter_ratio", self.jitter_ratio, "in [0, 1)")
        self._check_fit()
        if self.stall_every_s is not None and self.stall_ms >= self.stall_every_s * 1e3:
            raise ConfigError(
                f"launch.emulate.stall_ms={self.stall_ms:g}: must be below "
                f"launch.emulate.stall_every_s={self.stall_every_s:g}, or it never works"
            )

    def _check_at_least_zero(self) -> None:
        for key in (
            *("step_per_sequence_ms", "step_per_kv_token_us", "seed", "loading_s"),
            *("retry_after_s", "stall_ms", "drift_per_hour", "memory_bytes"),
            "memory_growth_bytes_per_hour",
        ):
            value = getattr(self, key)
            is_good = math.isfinite(value) and value >= 0
            require(is_good, f"launch.emulate.{key}", value, "a finite number >= 0")

    def _check_fit(self) -> None:
        allowed = (
            f"at most launch.emulate.kv_blocks x launch.emulate.block_tokens = {self.kv_tokens}"
        )
        length_ok = self.longest_tokens <= self.kv_tokens
        require(length_ok, "launch.emulate.max_model_len_tokens", self.longest_tokens, allowed)
        allowed = f"at least the slots, {self.slots_played}: each takes a token of every step"
        budget_ok = self.step_tokens >= self.slots_played
        require(budget_ok, "launch.emulate.tokens_per_step", self.step_tokens, allowed)

    @property
    def kv_tokens(self) -> int:
        """What the KV cache holds."""
        return self.kv_blocks * self.block_tokens

    @property
    def longest_tokens(self) -> int:
        """Longest prompt plus answer: as given, else the default as far as the cache holds it."""
        return self.max_model_len_tokens or min(DEFAULT_MAX_MODEL_LEN_TOKENS, self.kv_tokens)

    @property
    def slots_played(self) -> int:
        """The slots: as given, else the default."""
        return self.slots or DEFAULT_SLOTS

    @property
    def step_tokens(self) -> int:
        """Most tokens in a step: as given, else the default, and enough for every slot."""
        return self.tokens_per_step or max(DEFAULT_TOKENS_PER_STEP, self.slots_played)

    @classmethod
    def described(cls) -> dict[str, str]:
        """Every field's name and its line of help, in order."""
        return {one.name: one.metadata["what"] for one in fields(cls)}
