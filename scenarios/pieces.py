"""Corpus pieces counted once: how many tokens each has, whole or cut short at any atom.

Counts are taken with the joint in front, as the piece stands inside a prompt. Tokenizers that
split at words make them add up; what does not add up is found when the prompt is verified.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scenarios.corpus import atoms, fillers, opening_words, pieces

JOINTS = {"en": " ", "zh": "", "code": "\n"}


class TokenCounter(Protocol):
    """What prompts need of a tokenizer: the tokens of whole texts, special tokens left out."""

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each text, shape (len(texts),)."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece with its joint: `counts[k]` tokens if it is cut after `ends[k]` characters."""

    text: str
    ends: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens of the whole piece."""
        return self.counts[-1]

    def fitted(self, room_tokens: int) -> tuple[str, int]:
        """The longest beginning of at most `room_tokens`, with its tokens; may be empty."""
        for end, count in zip(reversed(self.ends), reversed(self.counts), strict=True):
            if count <= room_tokens:
                return self.text[:end], count
        return "", 0


def counted_pieces(language: str, tokenizer: TokenCounter) -> tuple[Piece, ...]:
    """All pieces of a language with the tokens of each of their beginnings."""
    texts, ends = [], []
    for piece in pieces(language):
        text = JOINTS[language] + piece
        cuts: list[int] = []
        for atom in atoms(text):
            cuts.append((cuts[-1] if cuts else 0) + len(atom))
        texts.append(text)
        ends.append(tuple(cuts))
    beginnings = [text[:end] for text, cuts in zip(texts, ends, strict=True) for end in cuts]
    counts = iter(tokenizer.count_batch(beginnings))
    return tuple(
        Piece(text, cuts, tuple(next(counts) for _ in cuts))
        for text, cuts in zip(texts, ends, strict=True)
    )


def one_token_fillers(tokenizer: TokenCounter) -> tuple[str, ...]:
    """Short words with a blank before them, one token each; the shortest there are if none is."""
    words = [f" {word}" for word in fillers()]
    return _fewest(words, tokenizer.count_batch(words))


def one_token_nouns(tokenizer: TokenCounter) -> tuple[str, ...]:
    """Nouns that are one token both at the start of a text and after a blank."""
    nouns = opening_words("en")
    bare = tokenizer.count_batch(nouns)
    spaced = tokenizer.count_batch([f" {noun}" for noun in nouns])
    return _fewest(nouns, [max(pair) for pair in zip(bare, spaced, strict=True)])


def _fewest(words: Sequence[str], counts: Sequence[int]) -> tuple[str, ...]:
    least = min(counts)
    return tuple(word for word, count in zip(words, counts, strict=True) if count == least)
