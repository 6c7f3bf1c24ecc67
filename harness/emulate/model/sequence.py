"""One request inside the engine."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from harness.emulate.model.blocks import SharedBlock


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A prompt that is read and an answer that grows, token by token.

    `arrival_s`: virtual time. `block_keys`: one for each full block of the prompt, equal for
    equal beginnings. `owner`: whatever the caller wants to find again when a token comes.
    `todo`: tokens that are known but not yet computed. `room_tokens`: what its blocks hold.
    `cached_tokens`: prompt tokens that were found in the cache when it first began. `begun_s`,
    `first_s`, `last_s`: when that was, and when its first and its newest token come. `slot`: the
    number of its place, where the caller gives it one.
    """

    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0
    block_keys: tuple[Hashable, ...] = ()
    owner: Any = None
    generated: int = 0
    computed: int = 0
    todo: int = field(init=False)
    preemptions: int = 0
    cached_tokens: int | None = None
    begun_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    slot: int | None = None
    is_gone: bool = False
    room_tokens: int = 0
    private_blocks: int = 0
    published: int = 0
    shared: list[SharedBlock] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.todo = self.prompt_tokens

    @property
    def is_complete(self) -> bool:
        """All of its answer is there."""
        return self.generated >= self.output_tokens

    @property
    def held_tokens(self) -> int:
        """Tokens that it holds: what is read of the prompt, or the prompt and the answer.

        The newest token of an answer is held from its step on, so a complete one holds one less.
        """
        if not self.generated:
            return self.computed
        return self.prompt_tokens + self.generated - int(self.is_complete)

    def forget(self) -> None:
        """Its blocks are gone: all that is known has to be computed again."""
        self.computed = self.room_tokens = self.private_blocks = self.published = 0
        self.todo = self.prompt_tokens + self.generated
        self.shared = []
