"""From what is wanted of each place of a level to requests, made batch by batch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from harness.config import ScenarioConf
from harness.plan.tokenizer import Tokenizer
from harness.types import Request
from scenarios.prompts import PromptMaker
from scenarios.streams import draw_int, stream
from scenarios.wanted import Prompt, Wanted

_BATCH = 256  # prompts made at once: enough to share the tokenizer's overhead
_MAX_SAMPLING_SEED = 2**31 - 1


class Supply(Protocol):
    """What is wanted of each place of a level; None for a place that is never played."""

    def wanted(self, place: int) -> Wanted | None:
        """What the scenario shall make for this place."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSupply:
    """Every place a request that the scenario draws. `first`: the index of the first."""

    first: int = 0

    def wanted(self, place: int) -> Wanted:
        """The request at a place of the level."""
        return Wanted(index=self.first + place)


def make_requests(
    scenario: ScenarioConf, tokenizer: Tokenizer, seed: str, asked: Iterable[tuple[int, Wanted]]
) -> Iterator[Request]:
    """Requests without due times, in the order asked, each a pure function of all but the rest.

    Args:
        scenario: what prompts are like.
        tokenizer: sizes them.
        seed: of prompts and sampling.
        asked: the index that each request has in the run, and what is wanted of it.
    """
    prompts = PromptMaker(scenario, tokenizer, seed)
    left = iter(asked)
    while batch := list(islice(left, _BATCH)):
        made = prompts.prompts([wanted for _, wanted in batch])
        for (index, wanted), prompt in zip(batch, made, strict=True):
            yield _request(index, wanted, prompt, seed, is_exact=tokenizer.exact)


def _request(index: int, wanted: Wanted, prompt: Prompt, seed: str, *, is_exact: bool) -> Request:
    sampling = stream(seed, "sampling", wanted.index)
    return Request(
        index=index,
        prompt=prompt.text,
        input_tokens=prompt.input_tokens,
        max_output_tokens=prompt.output_tokens,
        input_tokens_exact=is_exact,
        seed=draw_int(sampling, 0, _MAX_SAMPLING_SEED),
        group=prompt.group,
        session=wanted.session,
        turn=wanted.turn,
        prefix_tokens=prompt.prefix_tokens,
        lora=prompt.lora,
    )
