"""Triton's generate extension over TensorRT-LLM's ensemble: a request, and its stream of events.

Each event is the JSON of a whole answer with a piece in `text_output`: new text, or all text so
far where tokens are accumulated. There is no finish reason and no [DONE]: the stream is whole if
it ends after an event. Sources: TensorRT-LLM 1.2, triton_backend/all_models, and the generate
extension of Triton; no stream was recorded.
"""

from typing import Any

import msgspec

from adapters.session import plain_text
from adapters.sse import SseParser
from adapters.stream import NotUnderstoodError, StreamDecoder
from harness.types import Chunk, ChunkKind, Request

_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")


class _Event(msgspec.Struct):
    text_output: str | list[str] | None = None
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None


_EVENT = msgspec.json.Decoder(_Event)


def request_body(request: Request) -> dict[str, Any]:
    """The ensemble's inputs. `min_tokens` forces the length: there is no ignore_eos."""
    body: dict[str, Any] = {"text_input": plain_text(request), "bad_words": "", "stop_words": ""}
    body |= {"max_tokens": request.max_output_tokens, "min_tokens": request.max_output_tokens}
    body |= {"stream": True, "exclude_input_in_output": True}
    body |= {"return_num_input_tokens": True, "return_num_output_tokens": True}
    if request.temperature == 0:
        return body | {"top_k": 1}
    sampling = {"temperature": request.temperature, "seed": request.seed}
    return body | {"top_k": 0, "top_p": 1.0} | sampling


class TritonDecoder(StreamDecoder):
    """Decodes one answer of `/v2/models/<name>/generate_stream`, or of `generate`.

    The second piece that has text decides for all: one that begins with the first and is longer
    is accumulated text, any other one new text.
    """

    _text = ""
    _total = 0
    _is_accumulated: bool | None = None
    _tail = b""

    def feed(self, data: bytes) -> list[Chunk]:
        """See `harness.adapter.Decoder`."""
        self._tail = (self._tail + data)[-4:]
        return super().feed(data)

    def _event(self, payload: bytes) -> list[Chunk]:
        chunk = self._chunk(payload)
        self._is_complete = True
        return [chunk]

    def _answer(self, body: bytes) -> list[Chunk]:
        return self._event(body)

    def _end_of_stream(self, sse: SseParser) -> list[Chunk]:
        """An event that is cut: the answer is not whole."""
        del sse
        self._is_complete = self._is_complete and self._tail.endswith(_EVENT_ENDS)
        return []

    def _chunk(self, payload: bytes) -> Chunk:
        event = _EVENT.decode(payload)
        text = event.text_output
        if isinstance(text, list):
            text = text[0] if text else ""
        if text is None:
            raise NotUnderstoodError
        if self._is_accumulated is None and text and self._text:
            self._is_accumulated = text != self._text and text.startswith(self._text)
        new = text.removeprefix(self._text) if self._is_accumulated else text
        self._text += new
        count = event.num_output_tokens  # of this piece
        if count is not None:
            self._total = count if self._is_accumulated else self._total + count
        return Chunk(
            kind=ChunkKind.TEXT,
            text=new,
            total_tokens=None if count is None else self._total,
            prompt_tokens=event.num_input_tokens,
        )
