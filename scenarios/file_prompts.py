"""Which prompt of a file request *i* gets, cut where it is too long."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.config import ScenarioConf
from scenarios.fitting import Draft, Fitter
from scenarios.pieces import TokenCounter
from scenarios.prompt_file import PromptRow, PromptRows
from scenarios.streams import draw_int, stream
from scenarios.texts import TextMaker

_SAMPLE_ROWS = 1000  # counted to say what share is cut: a large file would take minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePrompt:
    """A prompt with its true count; `output_tokens` None where the file says nothing."""

    text: str
    input_tokens: int
    output_tokens: int | None


class FilePrompts:
    """Hands out the rows of a file in an order of the seed, each once.

    When they are used up, and for the warm-up, they come again behind an opening that no other
    request has: no server gets one prompt twice, and no cache can reuse its beginning.
    """

    def __init__(
        self,
        rows: PromptRows,
        tokenizer: TokenCounter,
        texts: TextMaker,
        fitter: Fitter,
        seed: str,
    ) -> None:
        self._rows = rows
        self._tokenizer = tokenizer
        self._texts = texts
        self._fitter = fitter
        count = len(rows.rows)
        rng = stream(seed, "prompts_file", 0)
        self._offset = draw_int(rng, 0, count - 1)
        self._step = draw_int(rng, count // 3, count - 1) or 1
        while math.gcd(self._step, count) != 1:
            self._step += 1

    def prompt(self, index: int, *, head: str, most_tokens: int) -> FilePrompt:
        """The prompt of request `index` after `head`, of at most `most_tokens` in all."""
        rounds, number = divmod(index, len(self._rows.rows))
        row = self._rows.rows[(number * self._step + self._offset) % len(self._rows.rows)]
        body = row.prompt if rounds == 0 else f"{self._texts.opening(index)}\n{row.prompt}"
        draft = Draft(tokens=most_tokens, head=head, body=body)
        text, count = draft.text, self._count(draft.text)
        if count > most_tokens:
            text, count = self._fitter.at_most(draft)
        return FilePrompt(text=text, input_tokens=count, output_tokens=self._output_tokens(row))

    def _output_tokens(self, row: PromptRow) -> int | None:
        if row.output_tokens is None and row.answer:
            return self._count(row.answer)
        return row.output_tokens

    def _count(self, text: str) -> int:
        return self._tokenizer.count_batch([text])[0]

    def facts(self, conf: ScenarioConf) -> Mapping[str, Any]:
        """Source, usable rows, skipped rows by reason, and the share that is cut, JSON-able.

        `clipped_input_ratio`: of the first 1,000 rows, the share with more tokens than
        `scenario.input_tokens`. A plan of more requests than `rows` uses them again, each time
        with a new opening.
        """
        sample = [row.prompt for row in self._rows.rows[:_SAMPLE_ROWS]]
        most = conf.input_tokens - conf.prefix_tokens
        clipped = sum(count > most for count in self._tokenizer.count_batch(sample))
        return {
            "source": self._rows.source,
            "sha256": self._rows.sha256,
            "rows": len(self._rows.rows),
            "skipped": dict(self._rows.skipped),
            "clipped_input_ratio": round(clipped / len(sample), 6),
        }
