"""The frames of the answers of the reference server's gRPC side, ready or made in one step."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import overload
from urllib.parse import quote

from adapters.mii_wire import Ask, last_reply, token_reply, word
from harness.grpc.call import CONTENT_TYPE, header_block, pack_message
from harness.grpc.frames import END_HEADERS, END_STREAM, FrameType, frame

_NO_TABLE = b"\x20"  # whatever table size the client allows, we use none (RFC 7541, 6.3)
_HEAD = _NO_TABLE + header_block({":status": "200", "content-type": CONTENT_TYPE})
_PLAIN = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}"  # printable ASCII but %
_TRAILERS = header_block({"grpc-status": "0"})


class _Replies(list[tuple[bytes, bytes]]):
    """The token messages for one prompt length: beginning of the frame, and what is behind it."""

    def __init__(self, prompt_tokens: int, word: Callable[[int], str]) -> None:
        super().__init__()
        self._prompt_tokens = prompt_tokens
        self._word = word

    def reserve(self, tokens: int) -> None:
        """Make it long enough for a request of this many tokens."""
        for k in range(len(self), tokens):
            reply = token_reply(k, self._prompt_tokens, self._word(k))
            data = frame(FrameType.DATA, 0, 0, pack_message(reply))
            self.append((data[:5], data[9:]))


_replies = lru_cache(maxsize=256)(_Replies)


class TokenFrames(Sequence[bytes]):
    """What is sent for token k on one stream; the answer's head goes before the first.

    `word`: the text of token k.
    """

    __slots__ = ("_id", "_replies", "_tokens")

    def __init__(self, stream: int, ask: Ask, word: Callable[[int], str] = word) -> None:
        self._id = stream.to_bytes(4, "big")
        self._tokens = ask.tokens
        self._replies = _replies(ask.prompt_tokens, word)
        self._replies.reserve(ask.tokens)

    def __len__(self) -> int:
        return self._tokens

    @overload
    def __getitem__(self, k: int) -> bytes: ...

    @overload
    def __getitem__(self, k: slice) -> list[bytes]: ...

    def __getitem__(self, k: int | slice) -> bytes | list[bytes]:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(self._tokens))]
        before, behind = self._replies[k]
        data = before + self._id + behind
        if k == 0:
            stream = int.from_bytes(self._id, "big")
            return head(stream) + data
        return data


def head(stream: int) -> bytes:
    """What begins an answer."""
    return frame(FrameType.HEADERS, END_HEADERS, stream, _HEAD)


def ending(stream: int, message: bytes) -> bytes:
    """The last message and the trailers of an answer that is OK."""
    data = frame(FrameType.DATA, 0, stream, pack_message(message))
    return data + frame(FrameType.HEADERS, END_HEADERS | END_STREAM, stream, _TRAILERS)


def tail(stream: int, ask: Ask, finish_reason: str = "length") -> bytes:
    """What comes after the last token: the message that ends the stream, and the trailers."""
    return ending(stream, last_reply(ask, finish_reason))


def refusal(stream: int, status: int, message: str) -> bytes:
    """An answer of trailers only. The message is percent-encoded (gRPC over HTTP/2, Status)."""
    fields = {":status": "200", "content-type": CONTENT_TYPE, "grpc-status": str(status)}
    block = _NO_TABLE + header_block({**fields, "grpc-message": quote(message, _PLAIN)})
    return frame(FrameType.HEADERS, END_HEADERS | END_STREAM, stream, block)
