"""The bytes of Triton's generate extension for the ensemble: each event the JSON of an answer.

The pieces are new text, which is what the ensemble gives; the counts are those of the piece.
"""

import msgspec

from harness.calibrate.server.wire import frame
from harness.emulate.wires.http import json_response
from harness.emulate.wires.openai.answer import STREAM_HEAD, Named, word
from harness.emulate.wires.whole import Whole

_LAST_CHUNK = b"0\r\n\r\n"


def answer_body(named: Named, text: str, tokens: int | None) -> dict[str, object]:
    """One answer or one piece of it; `tokens`: None leaves the counts out."""
    counts = {"num_input_tokens": named.prompt_tokens, "num_output_tokens": tokens}
    return {
        "model_name": "ensemble",
        "model_version": "1",
        **(counts if tokens is not None else {}),
        "sequence_end": False,
        "sequence_id": 0,
        "sequence_start": False,
        "text_output": text,
    }


class StreamedAnswer:
    """An answer of which each token is sent when it comes."""

    __slots__ = ("_count", "_named", "head", "started")

    def __init__(self, named: Named, *, has_counts: bool) -> None:
        self.head, self.started = STREAM_HEAD, b""
        self._named = named
        self._count = 1 if has_counts else None

    def token(self, k: int) -> bytes:
        """The event of token `k`."""
        body = msgspec.json.encode(answer_body(self._named, word(k), self._count))
        return frame(b"data: " + body + b"\n\n")

    def last(self, k: int, cached_tokens: int) -> bytes:
        """The event of the last token; the end of the stream is all that follows."""
        del cached_tokens
        return self.token(k) + _LAST_CHUNK


class WholeAnswer(Whole):
    """An answer that is sent when it is complete."""

    __slots__ = ("_has_counts", "_named")

    def __init__(self, named: Named, *, has_counts: bool) -> None:
        self._named = named
        self._has_counts = has_counts

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it."""
        del cached_tokens
        text = "".join(word(one) for one in range(k + 1))
        return json_response(
            200, answer_body(self._named, text, k + 1 if self._has_counts else None)
        )
