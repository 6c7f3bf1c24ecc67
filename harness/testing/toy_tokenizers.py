"""Small tokenizers for tests of prompts: one that adds up, and some that deceive."""

from collections.abc import Sequence

from scenarios.corpus import atoms

WORD_PARTS = 5  # letters in a part of a word
_PAIRS = frozenset({"ab", "e ", "a ", "o ", ". ", "。我"})


class WordTokenizer:
    """A blank and a word in parts of five letters: adds up at words, as BPE does."""

    def split(self, text: str) -> list[str]:
        """The tokens of a text."""
        return [
            atom[k : k + WORD_PARTS]
            for atom in _atoms(text)
            for k in range(0, len(atom), WORD_PARTS)
        ]

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each text."""
        return [len(self.split(text)) for text in texts]


def _atoms(text: str) -> list[str]:
    """The atoms of the corpus; blanks at the end of the text are one more."""
    found = atoms(text)
    rest = text[sum(map(len, found)) :]
    return [*found, rest] if rest else found


class StartTokenizer(WordTokenizer):
    """Counts one token for the start of any text, as SentencePiece does: sums are too high."""

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each text, and one."""
        return [1 + count for count in super().count_batch(texts)]


class MergingTokenizer:
    """Longest match from the left over some pairs and single characters (case C28).

    Blanks join a word before them when that ends in a vowel: sums are wrong on purpose.
    """

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each text."""
        return [self._count(text) for text in texts]

    def _count(self, text: str) -> int:
        count, k = 0, 0
        while k < len(text):
            k += 2 if text[k : k + 2] in _PAIRS else 1
            count += 1
        return count


class DoublingTokenizer:
    """Every character is two tokens: an odd length cannot be had."""

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each text, an even number."""
        return [2 * len(text) for text in texts]
