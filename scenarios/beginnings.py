"""How prompts begin alike: shared prefixes, and the text blocks of a trace's hash ids.

A beginning ends with a line break, where tokenizers split whatever follows: equal beginnings of
two prompts are then equal in tokens too.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.fitting import Draft, Fitter
from scenarios.pieces import TokenCounter
from scenarios.streams import draw_int, stream
from scenarios.texts import Ask, TextMaker

BLOCK = "block"  # the purpose of a hash id's text
PREFIX = "prefix"
_END = "\n"
_KEPT = 4096  # texts remembered: blocks of 512 tokens take about 2 kB each


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The text that a prompt begins with, and its tokens; the default is none."""

    text: str = ""
    tokens: int = 0


class Beginnings:
    """Makes beginnings under one seed; each is a pure function of (seed, purpose, number)."""

    def __init__(
        self, tokenizer: TokenCounter, texts: TextMaker, fitter: Fitter, seed: str
    ) -> None:
        self._texts = texts
        self._fitter = fitter
        self._seed = seed
        self._end_tokens = tokenizer.count_batch([_END])[0]
        self._kept: OrderedDict[Ask, Beginning] = OrderedDict()

    def shared(self, index: int, *, tokens: int, count: int) -> Beginning:
        """One of `count` prefixes of `tokens`, drawn by the request's index."""
        number = draw_int(stream(self._seed, f"{PREFIX}:number", index), 0, count - 1)
        return self._one(Ask(purpose=PREFIX, number=number, tokens=tokens))

    def blocks(self, ids: Sequence[int], *, block_tokens: int) -> Beginning:
        """The texts of whole blocks one after another, each by its id alone."""
        made = [self._one(Ask(purpose=BLOCK, number=one, tokens=block_tokens)) for one in ids]
        return Beginning(
            text="".join(one.text for one in made), tokens=sum(one.tokens for one in made)
        )

    def _one(self, ask: Ask) -> Beginning:
        if ask in self._kept:
            self._kept.move_to_end(ask)
            return self._kept[ask]
        room = max(0, ask.tokens - self._end_tokens)
        (body,) = self._texts.texts([Ask(purpose=ask.purpose, number=ask.number, tokens=room)])
        draft = Draft(tokens=ask.tokens, body=body, tail=_END)
        ((text, tokens),) = self._fitter.fitted([draft])
        made = self._kept[ask] = Beginning(text=text, tokens=tokens)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return made
