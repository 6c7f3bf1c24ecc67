"""The first words of a prompt: unique by construction, so that no cache can reuse a prefix.

Two nouns out of W, chosen by a permutation of all W*W pairs that the seed picks: two requests
share at most their first noun, until the pairs run out (W = 593: 351,649 requests in English,
W = 260: 67,600 in Chinese); then a third noun tells the rounds apart. Negative indices are the
warm-up's: they fall in a round of their own.
"""

import math

from scenarios.corpus import opening_words
from scenarios.streams import draw_int, stream


class Openings:
    """Opening words of one language under one seed."""

    def __init__(self, language: str, seed: str) -> None:
        self._words = opening_words(language)
        self._is_chinese = language == "zh"
        self._is_code = language == "code"
        count = len(self._words) ** 2
        rng = stream(seed, f"openings:{language}", 0)
        self._offset = draw_int(rng, 0, count - 1)
        self._step = draw_int(rng, count // 3, count - 1)
        # A step without a common divisor visits every pair once before any comes again.
        while math.gcd(self._step, count) != 1:
            self._step += 1

    def opening(self, index: int) -> str:
        """The opening of request `index`, such as `Kettle, bridge.`, without a blank after it."""
        words = self.words(index)
        if self._is_chinese:
            return f"{'、'.join(words)}。"
        text = ", ".join(words)
        return f"# {text}" if self._is_code else f"{text[0].upper()}{text[1:]}."

    def words(self, index: int) -> tuple[str, ...]:
        """Two nouns, and one more for each round after the first; distinct for distinct indices."""
        width = len(self._words)
        rounds, number = divmod(index, width * width)
        place = (number * self._step + self._offset) % (width * width)
        chosen = [self._words[place % width], self._words[place // width]]
        if rounds < 0:  # the last rounds of three nouns, which no measured request reaches
            rounds += width
        while rounds:
            rounds, digit = divmod(rounds, width)
            chosen.append(self._words[digit])
        return tuple(chosen)
