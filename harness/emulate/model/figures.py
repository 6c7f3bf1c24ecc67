"""What the timing model says of itself."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Counters:
    """Totals since the start, in tokens where no other unit is named.

    `prefix_queries`, `prefix_hits`: prompt tokens looked for in the cache, and found. `begun`,
    `ttft_s`: answers that have their first token, and their times from arrival to it, summed.
    `complete`, `e2e_s`: the same of complete answers and their last token. `cached`, `prompt_s`:
    of prompts that have been read: tokens that the cache had, and the times from the start of
    each to its first token. `ended`, `ended_s`: tokens of complete answers, and the times from
    first to last token of each. `sequence_steps`: the sequences of each step, summed. `longest`:
    most tokens that one sequence has held. Times are virtual.
    """

    prompt: int = 0
    generation: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    cached: int = 0
    prompt_s: float = 0.0
    ended: int = 0
    ended_s: float = 0.0
    sequence_steps: int = 0
    longest: int = 0
    preemptions: int = 0
    steps: int = 0
    busy_s: float = 0.0
    begun: int = 0
    ttft_s: float = 0.0
    complete: int = 0
    e2e_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """What one step was. `number` counts from 1; `end_s`, `took_s`: virtual time.

    `running`, `waiting`, `kv_usage_ratio`: while it ran. `admitted`: let in by it. `prefilling`,
    `decoding`: sequences by what it did for them. `completed`: answers that ended with it.
    """

    number: int
    end_s: float
    took_s: float
    running: int
    waiting: int
    kv_usage_ratio: float
    admitted: int
    prefilling: int
    decoding: int
    prefill_tokens: int
    completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """How it stands now. `kv_usage_ratio`: 0..1 of the blocks."""

    running: int
    waiting: int
    kv_usage_ratio: float
