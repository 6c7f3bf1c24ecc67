"""One gRPC stream of DeepSpeed-MII to chunks.

Source: DeepSpeed-MII 0.3.3, mii/batching/ragged_batching.py: a message for each token, then one
without text that says why it ended. A sequence whose KV blocks were taken back begins anew with
its answer as part of its prompt, and counts from there: what was counted before is added again.
"""

from adapters.failures import error_chunk
from adapters.mii_wire import Reply, read_reply
from adapters.protobuf import BadMessageError
from harness.types import Chunk, ChunkKind, ErrorClass

_RUNNING = frozenset({"none", ""})  # the finish_reason of every message but the last


class MiiDecoder:
    """One stream of MultiGenerationReply; `feed` takes one whole message, as gRPC frames it."""

    def __init__(self) -> None:
        self._prompt_tokens: int | None = None  # as the first message has it
        self._is_complete = False
        self._is_over = False

    def feed(self, data: bytes) -> list[Chunk]:
        """See `harness.adapter.Decoder`."""
        if self._is_over:
            return []
        try:
            reply = read_reply(data)
        except BadMessageError as error:
            self._is_over = True
            return [error_chunk(ErrorClass.STREAM_ERROR, str(error))]
        self._is_complete = reply.finish_reason not in _RUNNING
        return [self._chunk(reply)]

    def _chunk(self, reply: Reply) -> Chunk:
        if self._prompt_tokens is None:
            self._prompt_tokens = reply.prompt_tokens
        before = max(0, reply.prompt_tokens - self._prompt_tokens)
        return Chunk(
            kind=ChunkKind.USAGE if self._is_complete and not reply.text else ChunkKind.TEXT,
            text=reply.text,
            total_tokens=before + reply.generated_tokens,
            prompt_tokens=self._prompt_tokens,
            finish_reason=reply.finish_reason if self._is_complete else None,
        )

    def end(self) -> list[Chunk]:
        """See `harness.adapter.Decoder`."""
        if self._is_over or self._is_complete:
            return []
        self._is_over = True
        message = "the stream ended without a finish_reason"
        return [error_chunk(ErrorClass.INCOMPLETE_STREAM, message)]
