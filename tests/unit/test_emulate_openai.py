"""The emulator's OpenAI wire: bytes in, bytes out, read back by the adapter."""

import json
from collections.abc import Iterable
from typing import Any

import httptools
import pytest

from adapters.metrics import known_sample
from adapters.openai_compatible import is_emulated
from adapters.openai_wire import OpenAIDecoder
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.wires.openai.wire import OpenAiWire
from harness.emulate.wires.prompt import block_keys, count_tokens, natural_length
from harness.emulate.wires.wire import Ask
from harness.types import Chunk, ChunkKind, Provenance, ResponseHead

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


class Reader:
    """An answer as a client reads it."""

    def __init__(self, data: bytes) -> None:
        self.headers: dict[str, str] = {}
        self.body = b""
        self.chunks = 0
        self.is_complete = False
        parser = httptools.HttpResponseParser(self)
        parser.feed_data(data)
        self.status = parser.get_status_code()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_chunk_header(self) -> None:
        self.chunks += 1

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True

    def json(self) -> Any:
        return json.loads(self.body)

    def decoded(self) -> list[Chunk]:
        decoder = OpenAIDecoder(ResponseHead(status=self.status, headers=self.headers))
        return [*decoder.feed(self.body), *decoder.end()]


class Emulated:
    def __init__(self, *names: str, **knobs: Any) -> None:
        self.conf = EmulateConf(**knobs)
        self.wire = OpenAiWire(self.conf, names)
        self.player = Player(self.conf, Pace(1.0))
        self.number = 0

    def respond(self, path: str, body: object = None, method: str = "POST") -> bytes | Ask:
        self.number += 1
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = HttpRequest(method=method, path=path, body=data)
        return self.wire.respond(request, self.number, self.player)

    def ask(self, path: str = COMPLETIONS, **body: Any) -> Ask:
        where = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {}
        asked = self.respond(path, {"prompt": "hello", "max_tokens": 3, **where, **body})
        assert isinstance(asked, Ask), asked
        return asked

    def reply(self, path: str, body: object = None, method: str = "GET") -> Reader:
        data = self.respond(path, body, method)
        assert isinstance(data, bytes)
        read = Reader(data)
        assert read.is_complete
        return read


def written(asked: Ask, cached_tokens: int = 0) -> Reader:
    last = asked.output_tokens - 1
    pieces: Iterable[bytes] = (asked.answer.token(k) for k in range(last))
    return Reader(asked.answer.head + b"".join(pieces) + asked.answer.last(last, cached_tokens))


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_stream_has_one_event_a_token_and_its_usage(path: str) -> None:
    asked = Emulated().ask(
        path, ignore_eos=True, stream=True, stream_options={"include_usage": True}, model='"a"'
    )
    answer = written(asked)
    chunks = answer.decoded()
    texts = [chunk.text for chunk in chunks if chunk.text]
    assert texts == [" tok0", " tok1", " tok2"]
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["length"]
    [usage] = [chunk for chunk in chunks if chunk.kind is ChunkKind.USAGE]
    assert (usage.total_tokens, usage.prompt_tokens) == (3, asked.prompt_tokens)
    assert not [chunk for chunk in chunks if chunk.kind is ChunkKind.ERROR]
    roles = int(path == CHAT)
    assert answer.chunks == roles + 3 + 1 + 1 + 1  # tokens, usage, [DONE], and the end
    assert answer.body.endswith(b"data: [DONE]\n\n")
    events = [json.loads(line[6:]) for line in answer.body.split(b"\n\n")[:-2]]
    assert {event["model"] for event in events} == {'"a"'}
    assert len({event["id"] for event in events}) == 1


def test_a_stream_without_usage_ends_after_its_last_token() -> None:
    answer = written(Emulated().ask(CHAT, ignore_eos=True, stream=True, max_tokens=1))
    kinds = [chunk.kind for chunk in answer.decoded()]
    assert kinds == [ChunkKind.TEXT, ChunkKind.END]
    assert b"usage" not in answer.body
    assert b'"role":"assistant"' in answer.body


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_whole_answer_comes_at_once(path: str) -> None:
    asked = Emulated(prefix_cache=True).ask(path, ignore_eos=True)
    assert (asked.answer.head, asked.answer.token(0)) == (b"", b"")
    answer = written(asked, cached_tokens=2)
    assert answer.headers["content-length"] == str(len(answer.body))
    [chunk] = [chunk for chunk in answer.decoded() if chunk.text]
    assert (chunk.text, chunk.finish_reason) == (" tok0 tok1 tok2", "length")
    assert (chunk.total_tokens, chunk.cached_tokens) == (3, 2)


def test_the_length_is_forced_or_natural() -> None:
    engine = Emulated(natural_output_tokens=20)
    assert engine.ask(ignore_eos=True, max_tokens=500).output_tokens == 500
    natural = [
        engine.ask(prompt=f"prompt {n}", temperature=0, max_tokens=8000) for n in range(2000)
    ]
    mean = sum(one.output_tokens for one in natural) / len(natural)
    assert mean == pytest.approx(20, rel=0.1)
    assert {one.finish_reason for one in natural} == {"stop"}
    again = engine.ask(prompt="prompt 7", temperature=0, max_tokens=8000)
    assert again.output_tokens == natural[7].output_tokens
    cut = engine.ask(prompt="prompt 7", temperature=0, max_tokens=1)
    assert (cut.output_tokens, cut.finish_reason) in {(1, "length"), (1, "stop")}
    assert engine.ask(min_tokens=100, max_tokens=300).output_tokens >= 100
    sampled = {engine.ask(max_tokens=500).output_tokens for _ in range(20)}
    assert len(sampled) > 1
    seeded = {engine.ask(max_tokens=500, seed=3).output_tokens for _ in range(20)}
    assert len(seeded) == 1
    assert engine.ask(max_tokens=None, ignore_eos=True).output_tokens == 16
    assert engine.ask(CHAT, max_tokens=None, ignore_eos=True).output_tokens == 8192 - 3


def test_prompts_are_counted_without_a_tokenizer() -> None:
    assert [count_tokens(text) for text in ("", "a", "abcd", "abcde")] == [1, 1, 1, 2]
    assert count_tokens([5, 6, 7]) == 3
    assert Emulated().ask(prompt=[5, 6, 7]).prompt_tokens == 3
    assert Emulated().ask(prompt=["abcdefgh"]).prompt_tokens == 2
    assert natural_length("x", 1, "") == 1


def test_equal_beginnings_have_equal_keys() -> None:
    one, other = block_keys("a" * 130, 16, "m"), block_keys("a" * 64 + "b" * 66, 16, "m")
    assert (len(one), len(other)) == (2, 2)
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert block_keys("a" * 130, 16, "lora")[0] != one[0]
    assert block_keys("ba" * 65, 16, "m")[1] != one[1]
    assert len(block_keys(list(range(33)), 16, "m")) == 2
    talk = [{"role": "user", "content": "x" * 400}]
    longer = [*talk, {"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}]
    engine = Emulated(prefix_cache=True)
    first, second = engine.ask(CHAT, messages=talk), engine.ask(CHAT, messages=longer)
    assert len(first.block_keys) == 6
    assert second.block_keys[:6] == first.block_keys
    assert Emulated().ask(CHAT, messages=talk).block_keys == ()


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        (COMPLETIONS, b"{", 400, "JSON decode error"),
        (COMPLETIONS, [], 400, "must be an object"),
        (COMPLETIONS, {"prompt": ""}, 400, "prompt must be"),
        (COMPLETIONS, {"prompt": ["a", "b"]}, 400, "prompt must be"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 0}, 400, "max_tokens must be at least 1"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 999}, 400, "maximum context length is 100"),
        (COMPLETIONS, {"prompt": "a" * 500}, 400, "maximum context length is 100"),
        (COMPLETIONS, {"prompt": "a", "n": 2}, 400, "n must be 1"),
        (COMPLETIONS, {"prompt": "a", "stream": "yes"}, 400, "of the wrong type"),
        (COMPLETIONS, {"prompt": "a", "stream_options": {}}, 400, "stream=True"),
        (COMPLETIONS, {"prompt": "a", "model": "other"}, 404, "`other` does not exist"),
        (CHAT, {"messages": []}, 400, "messages must be"),
        (CHAT, {"messages": [{"role": "user"}]}, 400, "needs a content"),
    ],
)
def test_a_bad_request_is_refused(path: str, body: object, status: int, message: str) -> None:
    answer = Emulated("tiny", max_model_len_tokens=100).reply(path, body, "POST")
    assert answer.status == status
    error = answer.json()["error"]
    assert message in error["message"]
    assert error["code"] == status
    assert [chunk.kind for chunk in answer.decoded()] == [ChunkKind.ERROR]


def test_the_models_say_that_they_are_emulated() -> None:
    models = Emulated("org/tiny", "french", max_model_len_tokens=512).reply("/v1/models")
    assert is_emulated(models.body)
    assert [one["id"] for one in models.json()["data"]] == ["org/tiny", "french"]
    assert models.json()["data"][0]["max_model_len"] == 512
    assert Emulated().reply("/v1/models").json()["data"][0]["id"] == "emulated"


def test_health_metrics_and_what_is_not_there() -> None:
    engine = Emulated("tiny", memory_bytes=1000, kv_blocks=100)
    health = engine.reply("/health")
    assert (health.status, health.body) == (200, b"")
    metrics = engine.reply("/metrics").body
    sample = known_sample(metrics)
    assert sample.kv_provenance is Provenance.MEASURED
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (0, 0, 0)
    assert (sample.prompt_tokens_total, sample.generation_tokens_total) == (0, 0)
    assert (sample.preemptions_total, sample.prefix_cached_tokens_total) == (0, 0)
    assert b"process_resident_memory_bytes 1000.0\n" in metrics
    assert b'num_gpu_blocks="100"' in metrics
    assert engine.reply("/v2").status == 404
    assert engine.reply(COMPLETIONS).status == 405
    assert engine.reply("/reset_prefix_cache", method="POST").json() == {"success": True}


def test_the_engines_troubles_are_errors_to_the_adapter() -> None:
    wire = Emulated().wire
    loading, full = Reader(wire.loading()), Reader(wire.overloaded(9, 2))
    failed = Reader(wire.failed())
    assert [loading.status, full.status, failed.status] == [503, 429, 500]
    assert loading.json()["error"]["message"] == "Loading model"
    assert full.headers["retry-after"] == "2"
    for answer in (loading, full, failed):
        assert [chunk.kind for chunk in answer.decoded()] == [ChunkKind.ERROR]
