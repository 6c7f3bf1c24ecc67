"""A text that is put together made to have exactly n tokens, by repairing its end.

The count of a finished text is always that of the whole text, never a sum: a sum is not stable
under encoding again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scenarios.corpus import atoms
from scenarios.pieces import TokenCounter

_MAX_CUTS = 40  # atoms given up at the end of a text before its true count is taken as it is
# Beyond this a text is repaired on a window at its end and then counted whole: encoding 100,000
# tokens for each word that is tried would take minutes.
_LONG_CHARACTERS = 2_000
_WINDOW_CHARACTERS = 600
_CHARACTERS_PER_TOKEN = 8  # at most, for words; how far a window reaches for each wrong token
_NEAR_TOKENS = 16  # so far from what was asked that a few words mend it
_MAX_TRIES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A text to be made exact: only the end of `body` may change; `tail` ends it as it is.

    `again`: the body for another sum of tokens, alike but for its end, where the sum of a
    long one is far off (some vocabularies count a blank at the start of every text).
    """

    tokens: int
    body: str
    head: str = ""
    tail: str = ""
    again: Callable[[int], str] | None = None

    @property
    def text(self) -> str:
        """The whole."""
        return self.head + self.body + self.tail


class Fitter:
    """Makes drafts exact with one vocabulary.

    Args:
        fillers: short words with a blank before them, to add tokens with.
    """

    def __init__(self, tokenizer: TokenCounter, fillers: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._fillers = fillers

    def fitted(self, drafts: Sequence[Draft]) -> list[tuple[str, int]]:
        """The text of each draft with its true count, in order.

        The count is what the draft asks for; only where no text of that length can be found with
        this vocabulary it is the nearest below that was found.
        """
        counts = self._tokenizer.count_batch([draft.text for draft in drafts])
        return [
            (draft.text, count) if count == draft.tokens else self._mended(draft, count)
            for draft, count in zip(drafts, counts, strict=True)
        ]

    def at_most(self, draft: Draft) -> tuple[str, int]:
        """The draft's text cut after the last atom with which it has at most `tokens`."""
        body = self._cut(draft, draft.body)
        text = replace(draft, body=body).text
        return text, self._count(text)

    def _mended(self, draft: Draft, count: int) -> tuple[str, int]:
        if len(draft.text) <= _LONG_CHARACTERS:
            return self._repaired(draft)
        draft, count = self._nearer(draft, count)
        best, best_count = draft.text, count
        for _ in range(_MAX_TRIES):
            if count == draft.tokens:
                return draft.text, count
            draft = self._repaired_window(draft, count)
            count = self._count(draft.text)
            if _miss(count, draft.tokens) < _miss(best_count, draft.tokens):
                best, best_count = draft.text, count
        return best, best_count

    def _nearer(self, draft: Draft, count: int) -> tuple[Draft, int]:
        """The draft made again for a sum that makes up for what its sum was wrong by."""
        asked = draft.tokens
        for _ in range(_MAX_TRIES):
            if draft.again is None or abs(count - draft.tokens) <= _NEAR_TOKENS:
                break
            asked += draft.tokens - count
            draft = replace(draft, body=draft.again(asked))
            count = self._count(draft.text)
        return draft, count

    def _repaired_window(self, draft: Draft, count: int) -> Draft:
        wrong = count - draft.tokens
        reach = _WINDOW_CHARACTERS + _CHARACTERS_PER_TOKEN * abs(wrong)
        start = max(0, draft.body.rfind(" ", 0, max(0, len(draft.body) - reach) + 1))
        kept, end = draft.body[:start], draft.body[start:]
        window = Draft(tokens=self._count(end + draft.tail) - wrong, body=end, tail=draft.tail)
        text, _ = self._repaired(window)
        return replace(draft, body=kept + text[: len(text) - len(draft.tail)])

    def _repaired(self, draft: Draft) -> tuple[str, int]:
        """Cut and fill the end of the body until the whole is exact; else the nearest below."""
        best, best_count = draft.text, 0
        shorter = draft.body
        for _ in range(_MAX_CUTS):
            shorter = self._cut(draft, shorter)
            filled, count = self._filled(draft, shorter)
            if count == draft.tokens:
                return filled, count
            if count > best_count:
                best, best_count = filled, count
            shorter = "".join(atoms(shorter)[:-1])
        return best, best_count or self._count(best)

    def _cut(self, draft: Draft, body: str) -> str:
        parts = atoms(body)
        least = 0 if draft.head else 1
        while len(parts) > least and self._whole(draft, "".join(parts)) > draft.tokens:
            parts.pop()
        return "".join(parts)

    def _filled(self, draft: Draft, body: str) -> tuple[str, int]:
        """Append fillers while they fit; each is tried, as some merge with what stands before."""
        count = self._whole(draft, body)
        while count < draft.tokens:
            tries = ((body + filler, self._whole(draft, body + filler)) for filler in self._fillers)
            fitting = (one for one in tries if count < one[1] <= draft.tokens)
            found = next(fitting, None)
            if found is None:
                break
            body, count = found
        return draft.head + body + draft.tail, count

    def _whole(self, draft: Draft, body: str) -> int:
        return self._count(draft.head + body + draft.tail)

    def _count(self, text: str) -> int:
        return self._tokenizer.count_batch([text])[0]


def _miss(count: int, tokens: int) -> tuple[bool, int]:
    """How bad a count is: any above what was asked is worse than all below."""
    return count > tokens, abs(count - tokens)
