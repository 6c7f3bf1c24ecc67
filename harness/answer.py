"""One answer as it is decoded: (stamp, bytes) in, the facts of a Record out. Sans-IO.

The fold between a Decoder and a Record. It keeps no clock: every stamp is given to it, in seconds
on whatever clock its caller uses.
"""

from collections.abc import Callable

from harness.adapter import Decoder
from harness.types import Chunk, ChunkKind, ErrorClass, TokensSource

_TOKEN_KINDS = frozenset((ChunkKind.TEXT, ChunkKind.REASONING, ChunkKind.TOOL))


class Answer:
    """The fold of one answer.

    `chunk_s`, `chunk_tokens`: arrival and new tokens (None where the server does not say) of each
    token chunk. `first_content_s`: the first visible text, as against reasoning and tool calls.
    `reads`: reads that carried bytes; `merged_reads`: those with several token chunks, which share
    a stamp. `stream_end_s`: when the last chunk of any kind came, [DONE] and errors included.
    What was decoded before an error is kept.
    """

    __slots__ = (
        "_count_tokens",
        "_decoder",
        "_pieces",
        "_running",
        "_visible",
        "accepted_tokens",
        "cached_tokens",
        "chunk_s",
        "chunk_tokens",
        "draft_tokens",
        "error",
        "error_message",
        "finish_reason",
        "first_content_s",
        "merged_reads",
        "prompt_tokens",
        "reads",
        "reasoning_tokens",
        "stream_end_s",
        "usage_tokens",
    )

    def __init__(
        self, decoder: Decoder, *, count_tokens: Callable[[str], int] | None = None
    ) -> None:
        self._decoder = decoder
        self._count_tokens = count_tokens
        self._pieces: list[str] = []
        self._visible: list[str] = []
        self._running: int | None = 0
        self.chunk_s: list[float] = []
        self.chunk_tokens: list[int | None] = []
        self.first_content_s: float | None = None
        self.stream_end_s: float | None = None
        self.reads = 0
        self.merged_reads = 0
        self.usage_tokens: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.reasoning_tokens: int | None = None
        self.draft_tokens: int | None = None
        self.accepted_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: ErrorClass | None = None
        self.error_message: str | None = None

    def feed(self, t_s: float, *pieces: bytes) -> None:
        """Take one read: its stamp and its bytes, without HTTP framing; over gRPC its messages."""
        before = len(self.chunk_s)
        self.reads += 1
        for piece in pieces:
            for chunk in self._decoder.feed(piece):
                self._take(t_s, chunk)
        if len(self.chunk_s) > before + 1:
            self.merged_reads += 1

    def end(self, t_s: float) -> None:
        """The body ended cleanly at `t_s`."""
        for chunk in self._decoder.end():
            self._take(t_s, chunk)

    def fail(self, t_s: float | None, error: ErrorClass, message: str) -> None:
        """The connection failed or time ran out at `t_s`; an error of the stream itself stays."""
        if self.error is None:
            self.error, self.error_message = error, message
            self.stream_end_s = t_s

    def _take(self, t_s: float, chunk: Chunk) -> None:
        self.stream_end_s = t_s
        total = chunk.total_tokens
        if chunk.kind in _TOKEN_KINDS:
            risen = total is not None and total > (self.usage_tokens or 0)
            if chunk.text or risen:
                self._take_token(t_s, chunk)
        if total is not None:
            self.usage_tokens = total
        if chunk.prompt_tokens is not None:
            self.prompt_tokens = chunk.prompt_tokens
        if chunk.cached_tokens is not None:
            self.cached_tokens = chunk.cached_tokens
        if chunk.reasoning_tokens is not None:
            self.reasoning_tokens = chunk.reasoning_tokens
        if chunk.draft_tokens is not None:
            self.draft_tokens, self.accepted_tokens = chunk.draft_tokens, chunk.accepted_tokens
        if chunk.finish_reason is not None:
            self.finish_reason = chunk.finish_reason
        if chunk.error is not None:
            self.error, self.error_message = chunk.error, chunk.message

    def _take_token(self, t_s: float, chunk: Chunk) -> None:
        total, running = chunk.total_tokens, self._running
        new = None if total is None or running is None or total < running else total - running
        self._running = total  # after a chunk without a count the next one cannot be told apart
        self.chunk_s.append(t_s)
        self.chunk_tokens.append(new)
        self._pieces.append(chunk.text)
        if chunk.kind is ChunkKind.TEXT:
            self._visible.append(chunk.text)
            if self.first_content_s is None and chunk.text:
                self.first_content_s = t_s

    @property
    def text(self) -> str:
        """The visible text, without reasoning and tool calls."""
        return "".join(self._visible)

    @property
    def tokens_source(self) -> TokensSource | None:
        """Who counts the output tokens of this answer; None where no token came."""
        if self.usage_tokens is not None:
            return TokensSource.USAGE
        if not self.chunk_s:
            return None
        return TokensSource.TOKENIZER if self._count_tokens else TokensSource.CHUNKS

    @property
    def output_tokens(self) -> int | None:
        """Output tokens by `tokens_source`; None where no token came.

        The server's last usage, else the tokenizer on the joined text (reasoning and tool calls
        included), else the number of token chunks.
        """
        source = self.tokens_source
        if source is TokensSource.TOKENIZER and self._count_tokens:
            return self._count_tokens("".join(self._pieces))
        return len(self.chunk_s) if source is TokensSource.CHUNKS else self.usage_tokens

    def counted_tokens(self) -> tuple[int | None, TokensSource | None]:
        """`output_tokens` and `tokens_source` together."""
        return self.output_tokens, self.tokens_source
