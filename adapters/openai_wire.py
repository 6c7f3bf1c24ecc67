"""The OpenAI wire: completions and chat, streamed or whole, to chunks.

One event is one token event if it carries text, reasoning or a tool call, or if its running usage
has risen although the text is empty (part of a UTF-8 character). Sources: OpenAI's API reference,
and captures of vLLM 0.32, llama.cpp b11434 and transformers 5.19.
"""

from typing import Any

import msgspec

from adapters.failures import error_chunk
from adapters.stream import NotUnderstoodError, StreamDecoder
from harness.types import Chunk, ChunkKind, ErrorClass, ResponseHead

_FAILED_REASONS = {"abort", "error"}  # vLLM: the engine gave the request up


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    reasoning_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None
    object: str | None = None
    timings: Any = None


_EVENT = msgspec.json.Decoder(_Event | None)


def _tool_text(delta: _Delta) -> str:
    calls = [call.function for call in delta.tool_calls or ()]
    parts = [part for f in (*calls, delta.function_call) if f for part in (f.name, f.arguments)]
    return "".join(part for part in parts if part)


def _pieces(choice: _Choice) -> list[tuple[ChunkKind, str]]:
    if choice.text:
        return [(ChunkKind.TEXT, choice.text)]
    delta = choice.delta or choice.message
    if delta is None:
        return []
    reasoning = delta.reasoning_content or delta.reasoning
    tool = _tool_text(delta) if delta.tool_calls or delta.function_call else ""
    found = (
        (ChunkKind.REASONING, reasoning),
        (ChunkKind.TEXT, delta.content),
        (ChunkKind.TOOL, tool),
    )
    return [(kind, text) for kind, text in found if text]


def _usage_fields(usage: _Usage | None, total: int | None) -> dict[str, Any]:
    if usage is None:
        return {"total_tokens": total} if total is not None else {}
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    reasoning = completion.reasoning_tokens if completion else usage.reasoning_tokens
    return {
        "total_tokens": total,
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": prompt.cached_tokens if prompt else None,
        "reasoning_tokens": reasoning,
    }


def _draft_fields(timings: Any) -> dict[str, Any]:
    """Tokens that speculation drafted and that the model accepted, where llama.cpp tells."""
    if not isinstance(timings, dict):
        return {}
    drafted, accepted = timings.get("draft_n"), timings.get("draft_n_accepted")
    if type(drafted) is not int or type(accepted) is not int:
        return {}
    return {"draft_tokens": drafted, "accepted_tokens": accepted}


class OpenAIDecoder(StreamDecoder):
    """Decodes one answer of `/v1/completions` or `/v1/chat/completions`."""

    def __init__(self, head: ResponseHead) -> None:
        super().__init__(head)
        self._total = 0  # the running count of output tokens, where the server gives one
        self._is_running = False

    def _event(self, payload: bytes) -> list[Chunk]:
        event = _EVENT.decode(payload)
        if event is None:  # llama.cpp opens a stream of several prompts with `data: null`
            return []
        if event.error or event.object == "error":
            raise NotUnderstoodError  # the message is read from the payload
        if event.choices is None and event.usage is None:
            raise NotUnderstoodError
        if event.usage is None and event.choices and len(event.choices) == 1:
            choice = event.choices[0]
            if choice.text and not choice.finish_reason and choice.token_ids is None:
                return [Chunk(kind=ChunkKind.TEXT, text=choice.text)]  # nearly every event
        return self._chunks(event)

    def _answer(self, body: bytes) -> list[Chunk]:
        chunks = self._event(body)
        self._is_complete = bool(chunks)
        return chunks

    def _chunks(self, event: _Event) -> list[Chunk]:
        choices = event.choices or []
        total = self._running_total(event)
        finish = next((c.finish_reason for c in choices if c.finish_reason), None)
        pieces = [piece for choice in choices for piece in _pieces(choice)]
        has_risen = bool(choices) and total is not None and total > self._total
        if not pieces and has_risen and (self._is_running or not finish):
            pieces = [(ChunkKind.TEXT, "")]
        if total is not None and choices:
            self._total, self._is_running = total, True
        usage = _usage_fields(event.usage, total) | _draft_fields(event.timings)
        if not pieces and (usage or finish):
            pieces = [(ChunkKind.USAGE if usage else ChunkKind.END, "")]
        last = len(pieces) - 1
        chunks = [
            Chunk(
                kind=kind,
                text=text,
                finish_reason=finish if i == last else None,
                **(usage if i == 0 else {}),
            )
            for i, (kind, text) in enumerate(pieces)
        ]
        self._is_complete = self._is_complete or finish is not None
        if finish in _FAILED_REASONS:
            message = f"the engine gave the request up: finish_reason={finish}"
            chunks.append(error_chunk(ErrorClass.STREAM_ERROR, message))
        return chunks

    def _running_total(self, event: _Event) -> int | None:
        if event.usage is not None:
            return event.usage.completion_tokens
        new = sum(len(choice.token_ids or ()) for choice in event.choices or ())
        return self._total + new if new else None
