"""Prompts of exactly n tokens: an opening that no other prompt has, then pieces of the corpus.

A text is put together from counted pieces, then encoded whole; where the count is not what was
asked, it is repaired at its end and encoded again. The count of a finished prompt is always that
of its whole text, never a sum (a sum is not stable under encoding again).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.config import ScenarioConf
from scenarios.corpus import atoms
from scenarios.lengths import Lengths, lengths
from scenarios.openings import Openings
from scenarios.pieces import (
    Piece,
    TokenCounter,
    counted_pieces,
    one_token_fillers,
    one_token_nouns,
)
from scenarios.streams import draw, draw_int, stream

_MAX_CUTS = 40  # atoms given up at the end of a text before its true count is taken as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The text of request `index`; `input_tokens` is the count of this very text.

    `output_tokens`: how long an answer is asked for.
    """

    index: int
    text: str
    input_tokens: int
    output_tokens: int


class PromptMaker:
    """Makes the prompts of a scenario under one seed.

    Args:
        conf: lengths and languages; with several languages each request draws one.
        tokenizer: counts tokens; an approximate one gives texts of approximate length.
        seed: any text; streams are derived from it.
    """

    def __init__(self, conf: ScenarioConf, tokenizer: TokenCounter, seed: str | int) -> None:
        self._conf = conf
        self._tokenizer = tokenizer
        self._seed = str(seed)
        self._languages = tuple(dict.fromkeys(conf.languages))
        self._pieces = {name: counted_pieces(name, tokenizer) for name in self._languages}
        self._openings = {name: Openings(name, self._seed) for name in self._languages}
        self._fillers = one_token_fillers(tokenizer)
        self._nouns = one_token_nouns(tokenizer)
        self._first_noun = draw_int(stream(self._seed, "openings:short", 0), 0, 999)

    def prompt(self, index: int) -> Prompt:
        """The prompt of request `index`; see `prompts`."""
        return self.prompts([index])[0]

    def prompts(self, indices: Sequence[int]) -> list[Prompt]:
        """Prompts for many indices at once, in their order; the same as one by one.

        A prompt's count is the length its scenario asks for. Only where no text of that
        length can be found with this vocabulary it is the nearest below, and says so.
        """
        sizes = [lengths(self._conf, self._seed, index) for index in indices]
        drafts = list(self._drafts(indices, sizes))
        counts = self._tokenizer.count_batch(drafts)
        return [
            self._verified(index, text, count, size)
            for index, text, count, size in zip(indices, drafts, counts, sizes, strict=True)
        ]

    def _drafts(self, indices: Sequence[int], sizes: Sequence[Lengths]) -> Iterator[str]:
        rngs = [stream(self._seed, "prompts", index) for index in indices]
        languages = [draw(rng, self._languages) for rng in rngs]
        openings = [
            self._openings[language].opening(index)
            for language, index in zip(languages, indices, strict=True)
        ]
        counts = self._tokenizer.count_batch(openings)
        for index, size, rng, language, opening, count in zip(
            indices, sizes, rngs, languages, openings, counts, strict=True
        ):
            if count > size.input_tokens:
                yield self._tiny(index, size.input_tokens)
                continue
            chosen: list[str] = [opening]
            room = size.input_tokens - count
            while room > 0:
                piece: Piece = draw(rng, self._pieces[language])
                if piece.tokens <= room:
                    chosen.append(piece.text)
                    room -= piece.tokens
                    continue
                text, used = piece.fitted(room)
                chosen.append(text)
                chosen.extend(draw(rng, self._fillers) for _ in range(room - used))
                room = 0
            yield "".join(chosen)

    def _tiny(self, index: int, tokens: int) -> str:
        """A prompt too short for an opening: the index as digits in nouns of one token."""
        width = len(self._nouns)
        chosen = []
        index += self._first_noun
        for place in range(tokens):
            index, digit = divmod(index, width)
            chosen.append(self._nouns[(digit + place) % width])
        return " ".join(chosen)

    def _verified(self, index: int, text: str, count: int, size: Lengths) -> Prompt:
        if count != size.input_tokens:
            text, count = self._repaired(text, size.input_tokens)
        return Prompt(index=index, text=text, input_tokens=count, output_tokens=size.output_tokens)

    def _repaired(self, text: str, wanted: int) -> tuple[str, int]:
        """Cut and fill the end of a text until it has `wanted` tokens; else the nearest below."""
        best, best_count = text, 0
        shorter = text
        for _ in range(_MAX_CUTS):
            shorter = self._at_most(shorter, wanted)
            filled, count = self._filled(shorter, wanted)
            if count == wanted:
                return filled, count
            if count > best_count:
                best, best_count = filled, count
            shorter = "".join(atoms(shorter)[:-1])
        return best, best_count or self._count(best)

    def _at_most(self, text: str, wanted: int) -> str:
        parts = atoms(text)
        while len(parts) > 1 and self._count("".join(parts)) > wanted:
            parts.pop()
        return "".join(parts)

    def _filled(self, text: str, wanted: int) -> tuple[str, int]:
        """Append fillers while they fit; each is tried, as some merge with what stands before."""
        count = self._count(text)
        while count < wanted:
            tries = [text + filler for filler in self._fillers]
            counts = self._tokenizer.count_batch(tries)
            fitting = [k for k, tokens in enumerate(counts) if count < tokens <= wanted]
            if not fitting:
                break
            text, count = tries[fitting[0]], counts[fitting[0]]
        return text, count

    def _count(self, text: str) -> int:
        return self._tokenizer.count_batch([text])[0]
