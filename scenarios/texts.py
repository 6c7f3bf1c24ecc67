"""Texts of about n tokens: an opening of their own, then pieces of the corpus at random.

A text is put together from counted pieces, so its count is a sum; `scenarios.fitting` makes it
exact. The same (purpose, number) with fewer tokens gives the same text, ended earlier.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scenarios.openings import Openings
from scenarios.pieces import (
    Piece,
    TokenCounter,
    counted_pieces,
    one_token_fillers,
    one_token_nouns,
)
from scenarios.streams import draw, draw_int, stream

PROMPTS = "prompts"  # the purpose of a request's own text


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A text of `tokens`, by the stream of `purpose` with this number."""

    number: int
    tokens: int
    purpose: str = PROMPTS


class TextMaker:
    """Makes texts in a scenario's languages under one seed; each text draws one language."""

    def __init__(self, languages: Sequence[str], tokenizer: TokenCounter, seed: str) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._languages = tuple(dict.fromkeys(languages))
        self._pieces = {name: counted_pieces(name, tokenizer) for name in self._languages}
        self._openings: dict[tuple[str, str], Openings] = {}
        self.fillers = one_token_fillers(tokenizer)
        self._nouns = one_token_nouns(tokenizer)
        self._first_noun = draw_int(stream(seed, "openings:short", 0), 0, 999)

    def texts(self, asks: Sequence[Ask]) -> Iterator[str]:
        """One text for each ask, in order; "" for one of no tokens. Counts are sums of pieces."""
        rngs = [stream(self._seed, ask.purpose, ask.number) for ask in asks]
        languages = [draw(rng, self._languages) for rng in rngs]
        openings = [
            self.opening(ask.number, language, ask.purpose)
            for ask, language in zip(asks, languages, strict=True)
        ]
        counts = self._tokenizer.count_batch(openings)
        for ask, rng, language, opening, count in zip(
            asks, rngs, languages, openings, counts, strict=True
        ):
            if count > ask.tokens:
                yield self._tiny(ask.number, ask.tokens)
                continue
            chosen: list[str] = [opening]
            room = ask.tokens - count
            while room > 0:
                piece: Piece = draw(rng, self._pieces[language])
                if piece.tokens <= room:
                    chosen.append(piece.text)
                    room -= piece.tokens
                    continue
                text, used = piece.fitted(room)
                chosen.append(text)
                chosen.extend(draw(rng, self.fillers) for _ in range(room - used))
                room = 0
            yield "".join(chosen)

    def opening(self, number: int, language: str = "en", purpose: str = PROMPTS) -> str:
        """The first words of a text, which no other number of the purpose has."""
        key = (purpose, language)
        if key not in self._openings:
            seed = self._seed if purpose == PROMPTS else f"{self._seed}:{purpose}"
            self._openings[key] = Openings(language, seed)
        return self._openings[key].opening(number)

    def _tiny(self, number: int, tokens: int) -> str:
        """A text too short for an opening: the number as digits in nouns of one token."""
        width = len(self._nouns)
        chosen = []
        number += self._first_noun
        for place in range(tokens):
            number, digit = divmod(number, width)
            chosen.append(self._nouns[(digit + place) % width])
        return " ".join(chosen)
