"""What the plan asks of a scenario for one request, and what it gets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One request to be made. What is None is drawn by the scenario.

    `blocks`: ids of the text blocks of `block_tokens` that the prompt begins with, from a trace:
    requests with the same ids begin with the same text. `session`, `turn`: its place among the
    sessions of a level.
    """

    index: int
    group: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    blocks: tuple[int, ...] = ()
    block_tokens: int = 512
    session: int | None = None
    turn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The text of request `index`; `input_tokens` is the count of this very text.

    `output_tokens`: how long an answer is asked for. `prefix_tokens`: how much of the beginning
    other requests have too. `group`, `lora`: names of the scenario's, or None.
    """

    index: int
    text: str
    input_tokens: int
    output_tokens: int
    prefix_tokens: int = 0
    group: str | None = None
    lora: str | None = None
