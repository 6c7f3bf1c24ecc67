"""The contract that every adapter meets; a subclass supplies the adapter and one recording."""

from collections.abc import Sequence

import msgspec

from harness.adapter import Adapter
from harness.answer import Answer
from harness.errors import ConfigError
from harness.registry import adapter_class
from harness.types import (
    Chunk,
    ChunkKind,
    EngineIdentity,
    EngineSample,
    ErrorClass,
    Request,
    ResponseHead,
    TokensSource,
)

_STREAM = ResponseHead(status=200, headers={"content-type": "text/event-stream"})
_GARBAGE = (b"data: {\n\n", b"data: []\n\n", b'data: {"unexpected": 1}\n\n', b"\xff\x00", b"<html>")
_CLASSES = {
    307: ErrorClass.REDIRECT,
    400: ErrorClass.HTTP_4XX,
    429: ErrorClass.RATE_LIMITED,
    500: ErrorClass.HTTP_5XX,
    503: ErrorClass.HTTP_5XX,
}


class AdapterSuite:
    """A pytest mixin. `body`: one whole recorded stream, without HTTP framing.

    `output_tokens`, `prompt_tokens`: what the server said (None: the recording does not say).
    `token_chunks`: events that carried a token. `text`: the visible text.
    """

    adapter: Adapter
    body: bytes
    output_tokens: int | None
    prompt_tokens: int | None
    token_chunks: int
    text: str
    finish_reason: str | None

    def decoded(self, pieces: Sequence[bytes], head: ResponseHead = _STREAM) -> list[Chunk]:
        """All chunks of these pieces and a clean end."""
        decoder = self.adapter.decoder(head)
        chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)]
        return chunks + decoder.end()

    def errors(self, pieces: Sequence[bytes], head: ResponseHead = _STREAM) -> list[ErrorClass]:
        """The error classes among the chunks."""
        return [c.error for c in self.decoded(pieces, head) if c.error is not None]

    def test_the_recording_gives_the_servers_own_numbers(self) -> None:
        """Counts come from the server, not from the chunks."""
        answer = Answer(self.adapter.decoder(_STREAM))
        answer.feed(0.0, self.body)
        answer.end(0.0)
        assert (answer.error, answer.error_message) == (None, None)
        assert len(answer.chunk_s) == self.token_chunks > 0
        assert (answer.text, answer.finish_reason) == (self.text, self.finish_reason)
        assert answer.prompt_tokens == self.prompt_tokens
        if self.output_tokens is not None:
            assert answer.output_tokens == self.output_tokens
            assert answer.tokens_source is TokensSource.USAGE

    def test_where_the_bytes_are_cut_makes_no_difference(self) -> None:
        """Cut in two at every place, and byte by byte."""
        whole = self.decoded([self.body])
        assert whole
        for at in range(1, len(self.body)):
            assert self.decoded([self.body[:at], self.body[at:]]) == whole, at
        assert self.decoded([bytes((b,)) for b in self.body]) == whole

    def test_a_stream_cut_before_its_end_is_incomplete(self) -> None:
        """A body that ends cleanly in the middle is a failure, and says so once."""
        assert self.errors([self.body[: len(self.body) // 4]]) == [ErrorClass.INCOMPLETE_STREAM]
        assert self.errors([]) == [ErrorClass.INCOMPLETE_STREAM]

    def test_garbage_becomes_one_error_chunk(self) -> None:
        """Nothing raises, and nothing follows the error."""
        for garbage in _GARBAGE:
            chunks = self.decoded([garbage, self.body])
            assert sum(c.error is not None for c in chunks) <= 1
            assert len(self.errors([garbage])) == 1, garbage
        for at in range(0, len(self.body), 7):
            damaged = self.body[:at] + b"\x00" + self.body[at + 1 :]
            assert sum(c.error is not None for c in self.decoded([damaged])) <= 1

    def test_an_error_event_fails_the_answer_whatever_follows(self) -> None:
        """The shapes of error events that engines send inside a 200 stream."""
        for event in (
            {"error": {"message": "broke", "type": "InternalServerError", "code": 500}},
            {"error": "broke", "error_type": "generation"},
            {"error": {"message": "broke", "http_status_code": 422}},
            {"object": "error", "message": "broke", "code": 500},
        ):
            piece = b"data: " + msgspec.json.encode(event) + b"\n\n"
            last = self.decoded([piece, self.body])[-1]
            assert (last.kind, last.error) == (ChunkKind.ERROR, ErrorClass.STREAM_ERROR)
            assert last.message == "broke"

    def test_a_status_becomes_its_error_class(self) -> None:
        """Whatever the body is."""
        for status, error in _CLASSES.items():
            for body in (b"", b"plain text", b'{"error": {"message": "why"}}', self.body):
                assert self.errors([body], ResponseHead(status=status)) == [error]

    def test_an_error_object_with_status_200_is_an_error_body(self) -> None:
        """Proxies do this."""
        head = ResponseHead(status=200, headers={"content-type": "application/json"})
        body = b'{"error": {"message": "no healthy upstream"}}'
        (chunk,) = self.decoded([body[:9], body[9:]], head)
        assert (chunk.error, chunk.message) == (ErrorClass.ERROR_BODY, "no healthy upstream")

    def test_a_request_is_encoded_the_same_every_time(self) -> None:
        """The prompt and the length are in it."""
        request = Request(index=0, prompt="Grüße, 世界", input_tokens=5, max_output_tokens=17)
        call = self.adapter.encode(request)
        assert call == self.adapter.encode(request)
        assert call.method == "POST"
        assert call.path.startswith("/")
        assert "Grüße, 世界".encode() in call.body
        assert b"17" in call.body

    def test_unreadable_figures_are_none_and_never_raise(self) -> None:
        """Missing is None, never 0."""
        names = {*self.adapter.sample_probes, *self.adapter.identity_probes}
        assert names <= set(self.adapter.probes)
        for body in (b"", b"\xff", b"{", b"null", b"[1]", b'{"data": 3}', b"<html>"):
            bodies = dict.fromkeys(names, body)
            assert self.adapter.engine_sample(bodies) == EngineSample()
            assert self.adapter.identity(bodies) == EngineIdentity()
        assert self.adapter.engine_sample({}) == EngineSample()
        assert self.adapter.identity({}) == EngineIdentity()

    def test_an_ordinary_log_is_no_failure(self) -> None:
        """A diagnosis needs a known line."""
        assert self.adapter.diagnose("") is None
        assert self.adapter.diagnose("all is well\nmodel loaded\n") is None

    def test_the_registry_knows_it_by_its_name(self) -> None:
        """Name in the table, name in the class."""
        try:
            found = adapter_class(self.adapter.name)
        except ConfigError as error:
            raise AssertionError(str(error)) from error
        assert isinstance(self.adapter, found)
