import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.openai import OpenAIAdapter
from adapters.tgi import TgiAdapter
from harness.adapter import ServeContext
from harness.answer import Answer
from harness.config import EngineConf, ModelConf, Route
from harness.errors import ConfigError
from harness.types import Chunk, ChunkKind, ErrorClass, Request, ResponseHead

MODEL = ModelConf(name="m", served_name="served")
ADAPTER = OpenAIAdapter(EngineConf(name="openai", route=Route.CHAT), MODEL)
STREAM = ResponseHead(status=200, headers={"content-type": "text/event-stream"})
REQUEST = Request(index=0, prompt="hi", input_tokens=1, max_output_tokens=8)


def event(**fields: Any) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def delta(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def chunks_of(*pieces: bytes, head: ResponseHead = STREAM) -> list[Chunk]:
    decoder = ADAPTER.decoder(head)
    return [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.end()


def test_a_model_that_a_server_names_by_its_folder_is_called_like_that_folder() -> None:
    for told, name in (
        ("org/model", "org/model"),
        ("/models/llama-2/", "llama-2"),
        ("m@main", "m@main"),
    ):
        body = msgspec.json.encode({"data": [{"id": told}]})
        assert ADAPTER.identity({"models": body}).model == name


def kinds(*pieces: bytes) -> list[tuple[ChunkKind, str]]:
    return [(chunk.kind, chunk.text) for chunk in chunks_of(*pieces)]


def test_reasoning_under_both_its_names_and_tool_calls_are_tokens() -> None:
    call = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a"'}}
    assert kinds(
        event(**delta(role="assistant", content="")),
        event(**delta(reasoning="a")),
        event(**delta(reasoning_content="b", content=None)),
        event(**delta(tool_calls=[call])),
        event(**delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}])),
        event(**delta("tool_calls")),
    ) == [
        (ChunkKind.REASONING, "a"),
        (ChunkKind.REASONING, "b"),
        (ChunkKind.TOOL, 'f{"a"'),
        (ChunkKind.TOOL, ":1}"),
        (ChunkKind.END, ""),
    ]


def test_progress_before_the_first_token_is_no_token() -> None:
    progress = {"prompt_progress": {"total": 9, "cache": 0, "processed": 4, "time_ms": 3}}
    text = {"choices": [{"index": 0, "text": "", "finish_reason": None}]}
    assert kinds(event(**text, **progress), event(**delta("stop", content="A"))) == [
        (ChunkKind.TEXT, "A")
    ]


def test_a_token_without_text_is_seen_by_the_running_usage() -> None:
    def running(text: str, total: int, reason: str | None = None) -> bytes:
        return event(**delta(reason, content=text), usage={"completion_tokens": total})

    answer = Answer(ADAPTER.decoder(STREAM))
    for i, piece in enumerate((running("", 1), running("é", 2), running("", 3, "stop"))):
        answer.feed(float(i), piece)
    answer.end(3.0)
    assert (answer.chunk_s, answer.chunk_tokens) == ([0, 1, 2], [1, 1, 1])
    assert (answer.first_content_s, answer.output_tokens, answer.error) == (1, 3, None)


def test_a_repeated_total_is_no_token() -> None:
    answer = Answer(ADAPTER.decoder(STREAM))
    for total in (2, 2, 2):
        text = "A" if total == 2 and not answer.chunk_s else ""
        answer.feed(0.0, event(**delta(content=text), usage={"completion_tokens": total}))
    assert answer.chunk_tokens == [2]


def test_token_ids_count_where_there_is_no_usage() -> None:
    choices = [{"text": "", "token_ids": [5, 6]}], [{"text": "x", "token_ids": [7]}]
    answer = Answer(ADAPTER.decoder(STREAM))
    for choice in choices:
        answer.feed(0.0, event(choices=choice))
    assert answer.chunk_tokens == [2, 1]


def test_a_chunk_without_a_count_leaves_the_next_one_unknown() -> None:
    answer = Answer(ADAPTER.decoder(STREAM))
    answer.feed(0.0, event(**delta(content="a"), usage={"completion_tokens": 2}))
    answer.feed(0.0, event(**delta(content="b")))
    answer.feed(0.0, event(**delta(content="c"), usage={"completion_tokens": 5}))
    answer.feed(0.0, event(**delta(content="d"), usage={"completion_tokens": 6}))
    assert answer.chunk_tokens == [2, None, None, 1]


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_engine_gave_up_is_no_success(reason: str) -> None:
    last = chunks_of(event(**delta(reason, content="A")), b"data: [DONE]\n\n")[-1]
    assert last.error is ErrorClass.STREAM_ERROR
    assert reason in (last.message or "")


def test_done_completes_a_stream_without_finish_reason() -> None:
    assert kinds(event(**delta(content="A")), b"data: [DONE] \n\n") == [
        (ChunkKind.TEXT, "A"),
        (ChunkKind.END, ""),
    ]


def test_done_alone_is_no_answer() -> None:
    (chunk,) = chunks_of(b"data: [DONE]\n\n")
    assert chunk.error is ErrorClass.INCOMPLETE_STREAM


def test_an_event_cut_by_the_end_is_incomplete_and_not_garbage() -> None:
    assert chunks_of(event(**delta(content="A")), b'data: {"choi')[-1].error is (
        ErrorClass.INCOMPLETE_STREAM
    )
    done = chunks_of(event(**delta("stop", content="A")), b'data: {"usa')
    assert [chunk.error for chunk in done] == [None]


def test_an_endless_event_ends_the_answer() -> None:
    decoder = ADAPTER.decoder(STREAM)
    chunks = [c for _ in range(10) for c in decoder.feed(b"data: " + b"x" * (1 << 20))]
    assert [chunk.error for chunk in chunks] == [ErrorClass.STREAM_ERROR]
    assert decoder.end() == []


@pytest.mark.parametrize(
    ("status", "headers", "body", "error", "message"),
    [
        (307, {"location": "http://x/v1"}, b"", ErrorClass.REDIRECT, "HTTP 307 to http://x/v1"),
        (429, {"retry-after": "2"}, b'{"error":"busy"}', ErrorClass.RATE_LIMITED, "busy (retry-"),
        (404, {}, b'{"detail":"Not Found"}', ErrorClass.HTTP_4XX, "Not Found"),
        (422, {}, b'{"detail":[{"msg":"bad","loc":[1]}]}', ErrorClass.HTTP_4XX, "bad"),
        (500, {}, b"Internal Server Error", ErrorClass.HTTP_5XX, "Internal Server Error"),
        (503, {}, b"", ErrorClass.HTTP_5XX, "HTTP 503 without a message"),
        (400, {}, b'{"error":"1 error:\\n  too long"}', ErrorClass.HTTP_4XX, "1 error: too long"),
        (
            502,
            {},
            b"<!doctype HTML><html>\n<title>Bad\n Gateway</title>\n",
            ErrorClass.HTTP_5XX,
            "a page of HTML, as of a proxy: Bad Gateway",
        ),
        (
            503,
            {},
            b"<?xml version='1.0'?>\n<Error/>",
            ErrorClass.HTTP_5XX,
            "<?xml version='1.0'?> <",
        ),
        (200, {}, b"<html>hello", ErrorClass.ERROR_BODY, "HTTP 200 with neither stream nor answer"),
        (200, {}, b"hello", ErrorClass.INCOMPLETE_STREAM, "HTTP 200 with no event in 'hello'"),
    ],
)
def test_an_answer_that_is_no_stream(
    status: int, headers: dict[str, str], body: bytes, error: ErrorClass, message: str
) -> None:
    (chunk,) = chunks_of(body, head=ResponseHead(status=status, headers=headers))
    assert chunk.error is error
    assert (chunk.message or "").startswith(message)


@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([b"data: ", b"\n\n", b'{"choices":', b"[]"]))
)
def test_no_bytes_make_a_decoder_raise(pieces: list[bytes]) -> None:
    for head in (STREAM, ResponseHead(status=200), ResponseHead(status=500)):
        for adapter in (ADAPTER, TgiAdapter(EngineConf(name="tgi"), MODEL)):
            decoder = adapter.decoder(head)
            chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.end()
            assert sum(chunk.error is not None for chunk in chunks) <= 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda v: (
            st.lists(v, max_size=2)
            | st.dictionaries(
                st.sampled_from(["choices", "usage", "error", "delta", "text", "token"]),
                v,
                max_size=3,
            )
        ),
    )
)
def test_no_json_makes_a_decoder_raise(value: Any) -> None:
    piece = b"data: " + json.dumps(value).encode() + b"\n\n"
    body = json.dumps(value).encode()
    for adapter in (ADAPTER, TgiAdapter(EngineConf(name="tgi"), MODEL)):
        for data in (piece, body):
            decoder = adapter.decoder(STREAM)
            assert len([*decoder.feed(data), *decoder.end()]) >= 1


def test_deep_nesting_is_an_error_chunk() -> None:
    (chunk,) = chunks_of(b'data: {"error":' + b"[" * 100_000 + b"\n\n")
    assert chunk.error is ErrorClass.STREAM_ERROR


def test_a_connection_error_keeps_what_came_and_the_streams_own_error() -> None:
    answer = Answer(ADAPTER.decoder(STREAM))
    answer.feed(1.0, event(**delta(content="A")))
    answer.fail(2.0, ErrorClass.CONNECTION_ERROR, "reset")
    answer.fail(3.0, ErrorClass.TIMEOUT, "late")
    assert (answer.error, answer.error_message) == (ErrorClass.CONNECTION_ERROR, "reset")
    assert (answer.output_tokens, answer.stream_end_s) == (1, 2.0)


def test_engine_args_are_fields_of_the_body() -> None:
    args = {"ignore_eos": True, "stream_options": None}
    adapter = OpenAIAdapter(EngineConf(name="openai", args=args), MODEL)
    call = adapter.encode(REQUEST)
    assert json.loads(call.body) == {
        "model": "served",
        "prompt": "hi",
        "max_tokens": 8,
        "stream": True,
        "temperature": 0.0,
        "ignore_eos": True,
    }
    with pytest.raises(ConfigError, match=r"engine\.args\.prompt=x: is set by bakeoff"):
        OpenAIAdapter(EngineConf(name="openai", args={"prompt": "x"}), MODEL)


def test_a_server_that_we_only_attach_to_cannot_be_started() -> None:
    with pytest.raises(ConfigError, match=r"launch.mode=process: engine=openai is not started"):
        ADAPTER.serve(EngineConf(name="openai"), MODEL, ServeContext(port=1))


def test_tgi_requests() -> None:
    call = TgiAdapter(EngineConf(name="tgi"), ModelConf(name="m")).encode(REQUEST)
    assert call.path == "/generate_stream"
    assert json.loads(call.body) == {
        "inputs": "hi",
        "parameters": {"max_new_tokens": 8, "details": True, "do_sample": False},
    }
    chat = TgiAdapter(EngineConf(name="tgi", route=Route.CHAT), ModelConf(name="m"))
    body = json.loads(chat.encode(REQUEST).body)
    assert (body["model"], "top_p" in body) == ("tgi", False)


def test_tgi_identity() -> None:
    info = b'{"model_id":"org/m","version":"3.3.7","max_total_tokens":4096,"sha":"x"}'
    identity = TgiAdapter(EngineConf(name="tgi"), MODEL).identity({"info": info})
    assert (identity.model, identity.version) == ("org/m", "3.3.7")
    assert identity.max_model_len_tokens == 4096
