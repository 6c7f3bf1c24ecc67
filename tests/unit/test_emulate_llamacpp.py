"""llama.cpp's emulator: lengths, refusals, slots and queue; never how fast."""

import json
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from adapters.llamacpp import LlamaCppAdapter
from harness.adapter import ServeContext
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf, LaunchConf, LaunchMode, ModelConf
from harness.emulate.engines import played
from harness.emulate.model.sequence import Sequence
from harness.emulate.model.slots import Slots
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.spec import emulate_spec
from harness.emulate.wires.llamacpp.wire import LlamaCppWire
from harness.emulate.wires.wire import Ask
from harness.engine.probe import Answer, Endpoint, call
from harness.errors import ConfigError
from harness.testing import read_http
from harness.testing.emulated import Emulated, emulated
from harness.types import EngineSample, HttpCall

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
ADAPTER = LlamaCppAdapter(EngineConf(name="llamacpp"), ModelConf(name="smol"))
KNOBS = set(vars(EmulateConf())) - {"seed"}
PATIENT_S = 20.0
QUICK = ("--step-ms", "1", "--prefill-tokens-per-s", "1e6")
needs_epoll = pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")


def wire(**knobs: Any) -> LlamaCppWire:
    return LlamaCppWire(played(EmulateConf(**knobs), LlamaCppWire), ("smol",))


def respond(
    path: str, body: Any = None, method: str = "POST", number: int = 1, **knobs: Any
) -> bytes | Ask:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = HttpRequest(method=method, path=path, body=data)
    return wire(**knobs).respond(request, number, Player(EmulateConf(slots=4), Pace(1.0)))


def ask(path: str = COMPLETIONS, number: int = 1, **fields: Any) -> Ask:
    knobs = {key: fields.pop(key) for key in list(fields) if key in KNOBS}
    where = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {}
    asked = respond(path, {"prompt": "hello", **where, **fields}, number=number, **knobs)
    assert isinstance(asked, Ask), asked
    return asked


def length(**fields: Any) -> tuple[int, str]:
    asked = ask(**fields)
    return asked.output_tokens, asked.finish_reason


def error(path: str, body: Any, method: str = "POST", **knobs: Any) -> tuple[int, dict[str, Any]]:
    answer = respond(path, body, method, **knobs)
    assert isinstance(answer, bytes)
    head, pieces = read_http(answer)
    assert head.headers["connection"] == "close"  # behind every error
    value = json.loads(b"".join(pieces))["error"]
    assert value["code"] == head.status
    return head.status, value


def test_the_length_is_what_is_asked_for_or_what_the_context_leaves() -> None:
    forced = {"ignore_eos": True, "max_model_len_tokens": 12}  # the prompt has 2 tokens
    assert length(**forced, max_tokens=5) == (5, "length")
    assert length(**forced, n_predict=3) == (3, "length")
    assert length(**forced, max_completion_tokens=4) == (4, "length")
    assert length(**forced, max_tokens=0) == (1, "length")
    for unlimited in ({}, {"max_tokens": -1}, {"max_tokens": None}, {"max_tokens": 999}):
        assert length(**forced, **unlimited) == (10, "length")
    assert length(**forced, prompt=[1] * 11) == (1, "length")


def test_an_answer_ends_by_itself_unless_that_is_forbidden() -> None:
    found = [
        length(prompt=f"prompt {n}", temperature=0, natural_output_tokens=20) for n in range(300)
    ]
    assert {reason for _, reason in found} == {"stop"}
    assert 15 < sum(tokens for tokens, _ in found) / 300 < 25
    assert length(prompt="x", temperature=0, natural_output_tokens=500, max_tokens=1) == (
        1,
        "length",
    )
    sampled = {ask(number=n, natural_output_tokens=50).output_tokens for n in range(20)}
    assert len(sampled) > 1
    seeded = {ask(number=n, natural_output_tokens=50, seed=3).output_tokens for n in range(20)}
    assert len(seeded) == 1


@pytest.mark.parametrize(("path", "events"), [(COMPLETIONS, 3), (CHAT, 2), ("/completion", 3)])
def test_the_token_that_ends_an_answer_has_no_text(path: str, events: int) -> None:
    for number in range(200):
        asked = ask(path, number, stream=True, natural_output_tokens=3)
        if asked.output_tokens == 3 and asked.finish_reason == "stop":
            break
    data = asked.answer.token(0) + asked.answer.token(1) + asked.answer.last(2, 0)
    texts = data.count(b" tok")
    assert texts == 2
    ends = data.count(b'"text":""') if path == COMPLETIONS else data.count(b'"content":""')
    assert ends == {COMPLETIONS: 2, CHAT: 0, "/completion": 2}[path]
    said = b'"stop_type":"eos"' if path == "/completion" else b'"finish_reason":"stop"'
    assert said in data
    assert events == texts + max(0, ends - 1)


def test_a_chat_names_the_role_first_and_usage_only_if_asked() -> None:
    asked = ask(CHAT, stream=True, ignore_eos=True, max_tokens=2)
    first, last = asked.answer.token(0), asked.answer.last(1, 0)
    assert first.index(b'"role":"assistant","content":null') < first.index(b" tok0")
    assert b"usage" not in last
    assert b'"timings":{' in last
    more = ask(CHAT, stream=True, ignore_eos=True, stream_options={"include_usage": True})
    assert more.answer.last(1, 7).count(b'"usage":{') == 1
    assert b'"cached_tokens":7' in more.answer.last(1, 7)


def test_headers_come_with_the_start_of_a_stream_and_not_before() -> None:
    streamed, whole = ask(stream=True), ask()
    assert streamed.answer.head == whole.answer.head == whole.answer.started == b""
    assert streamed.answer.started.startswith(b"HTTP/1.1 200 OK\r\n")
    assert whole.answer.token(0) == b""


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "message"),
    [
        (COMPLETIONS, b"{", 400, "invalid_request_error", "parse_error.101"),
        (COMPLETIONS, [], 400, "invalid_request_error", "type_error.304"),
        (COMPLETIONS, {}, 400, "invalid_request_error", "key 'prompt' not found"),
        (COMPLETIONS, {"prompt": 7}, 400, "invalid_request_error", '"prompt" elements must be'),
        (COMPLETIONS, {"prompt": []}, 400, "invalid_request_error", "must not be empty"),
        (COMPLETIONS, {"prompt": [-1]}, 400, "invalid_request_error", "invalid tokens"),
        (COMPLETIONS, {"prompt": ["a", "b"]}, 400, "invalid_request_error", "one prompt a req"),
        (COMPLETIONS, {"prompt": "a", "n": 2}, 400, "invalid_request_error", "Field 'n'"),
        (
            COMPLETIONS,
            {"prompt": "a", "max_tokens": "x"},
            400,
            "invalid_request_error",
            "Field 'max_tokens': [json.exception.type_error.302] type must be number, but is st",
        ),
        (COMPLETIONS, {"prompt": "a", "stream": 1}, 400, "invalid_request_error", "be boolean"),
        (CHAT, {}, 400, "invalid_request_error", "'messages' is required"),
        ("/tokenize", {"content": 5}, 400, "invalid_request_error", "be string, but is number"),
        ("/v2", {}, 404, "not_found_error", "File Not Found"),
        ("/health", {}, 404, "not_found_error", "File Not Found"),
        ("/slots/0?action=erase", {}, 501, "not_supported_error", "slots action"),
    ],
)
def test_a_bad_request_is_refused_in_the_servers_words(
    path: str, body: Any, status: int, kind: str, message: str
) -> None:
    found, value = error(path, body)
    assert (found, value["type"]) == (status, kind)
    assert message in value["message"]


def test_what_only_takes_a_post_is_not_found_by_get() -> None:
    for path in (COMPLETIONS, CHAT, "/completion", "/tokenize", "/version"):
        assert error(path, None, "GET")[0] == 404


def test_a_prompt_that_fills_a_slot_is_refused_with_both_sizes() -> None:
    status, value = error(COMPLETIONS, {"prompt": [1] * 12}, max_model_len_tokens=12)
    assert (status, value["type"]) == (400, "exceed_context_size_error")
    assert (value["n_prompt_tokens"], value["n_ctx"]) == (12, 12)


def test_prompts_may_be_text_ids_or_a_list_of_one() -> None:
    assert ask(prompt=[5, 6, 7]).prompt_tokens == 3
    assert ask(prompt=[[5, 6, 7]]).prompt_tokens == 3
    assert ask(prompt=["abcdefgh"]).prompt_tokens == 2
    assert ask(CHAT, messages=[{"role": "user", "content": "abcd"}]).prompt_tokens == 3


def test_the_cache_is_used_unless_the_request_or_the_server_says_no() -> None:
    prompt = "x" * 400
    assert len(ask(prompt=prompt, prefix_cache=True).block_keys) == 6
    assert ask(prompt=prompt, prefix_cache=True, cache_prompt=False).block_keys == ()
    assert ask(prompt=prompt).block_keys == ()
    lora = ask(prompt=prompt, prefix_cache=True, lora=[{"id": 0, "scale": 1.0}])
    assert lora.block_keys[0] != ask(prompt=prompt, prefix_cache=True).block_keys[0]


def test_the_context_is_divided_over_the_slots() -> None:
    def n_ctx(**knobs: Any) -> int:
        answer = respond("/props", None, "GET", **knobs)
        assert isinstance(answer, bytes)
        found = ADAPTER.identity({"props": b"".join(read_http(answer)[1])})
        assert found.max_model_len_tokens is not None
        return found.max_model_len_tokens

    assert n_ctx(max_model_len_tokens=700) == 700
    assert n_ctx() == 8192
    assert n_ctx(slots=64) == 8192 * 16 // 64
    assert n_ctx(kv_blocks=10, block_tokens=16, slots=3) == 48
    refused = r"kv_blocks=10: .* give each of 3 slots 48 tokens, below .*max_model_len_tokens=49"
    with pytest.raises(ConfigError, match=refused):
        wire(kv_blocks=10, slots=3, max_model_len_tokens=49)
    with pytest.raises(ConfigError, match=r"each of 11 slots 0 tokens"):
        wire(kv_blocks=10, slots=11)


def test_a_run_is_refused_before_its_emulator_starts() -> None:
    class Conf:
        engine = EngineConf(name="llamacpp", max_running=64, max_model_len=8192)
        model = ModelConf(name="smol")
        launch = LaunchConf(mode=LaunchMode.EMULATE)
        scenario = type("NoLora", (), {"lora": {}})

    with pytest.raises(ConfigError, match=r"each of 64 slots 2048 tokens"):
        emulate_spec(Conf, ServeContext(port=1))  # type: ignore[arg-type]


def test_the_slot_that_was_used_longest_ago_is_next() -> None:
    slots = Slots(3)
    one, two, three, four = (Sequence(prompt_tokens=5, output_tokens=9) for _ in range(4))
    for sequence in (one, two, three):
        slots.take(sequence, "asked")
    assert [sequence.slot for sequence in (one, two, three)] == [2, 1, 0]
    two.generated, one.computed = 3, 4
    assert [slot.held_tokens for slot in slots.all] == [0, 5 + 3, 4]
    slots.leave(two)
    slots.leave(one)
    slots.leave(four)  # it has never begun
    slots.take(four, "again")
    assert four.slot == 1
    assert [slot.sequence for slot in slots.all] == [three, four, None]
    assert slots.all[2].left_tokens == 4


def url(server: Emulated) -> tuple[str | None, int | None]:
    where = urlsplit(server.base_url)
    return where.hostname, where.port


def connect(server: Emulated) -> socket.socket:
    return socket.create_connection(url(server), timeout=PATIENT_S)


def posted(**body: Any) -> bytes:
    data = json.dumps({"prompt": "hello", "ignore_eos": True, **body}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data)


def got(server: Emulated, path: str) -> Answer:
    answer = call(Endpoint(server.base_url), HttpCall(method="GET", path=path), PATIENT_S)
    assert isinstance(answer, Answer), answer
    return answer


def sample(server: Emulated) -> EngineSample:
    return ADAPTER.engine_sample({n: got(server, f"/{n}").body for n in ("metrics", "slots")})


def await_sample(server: Emulated, is_there: Callable[[EngineSample], bool]) -> EngineSample:
    end_s = time.monotonic() + PATIENT_S
    while not is_there(found := sample(server)):
        assert time.monotonic() < end_s, found
        time.sleep(0.01)
    return found


@needs_epoll
def test_what_waits_for_a_slot_has_no_headers_until_one_is_free() -> None:
    with emulated("--slots", "1", engine="llamacpp") as server, ExitStack() as stack:
        running, waiting = (stack.enter_context(connect(server)) for _ in range(2))
        running.sendall(posted(stream=True))
        assert running.recv(15) == b"HTTP/1.1 200 OK"
        waiting.sendall(posted(stream=True))
        found = await_sample(server, lambda one: one.waiting == 1)
        assert found.running == 1
        waiting.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            waiting.recv(1)
        full = got(server, "/slots?fail_on_no_slot=1")
        assert (full.head.status, str(full)) == (503, "503 no slot available")
        waiting.settimeout(PATIENT_S)
        running.close()
        assert waiting.recv(15) == b"HTTP/1.1 200 OK"
        assert sample(server).waiting == 0


@needs_epoll
def test_a_slot_shows_its_tokens_while_it_works_and_keeps_them_after() -> None:
    with emulated("--slots", "2", engine="llamacpp") as server:
        with connect(server) as sock:
            sock.sendall(posted(stream=True, prompt=[1] * 100))
            found = await_sample(server, lambda one: bool(one.prompt_tokens_total))
            assert (found.running, found.prompt_tokens_total) == (1, 100)
            assert found.generation_tokens_total == 0  # it counts when the request has ended
            assert found.kv_usage_ratio is not None
            assert 100 / (2 * 8192) < found.kv_usage_ratio <= 0.5
        await_sample(server, lambda one: one.running == 0)
        with connect(server) as sock:
            sock.sendall(posted(prompt=[1] * 50, max_tokens=3))
            assert sock.recv(15) == b"HTTP/1.1 200 OK"
        ended = sample(server)  # what was given up is not counted
        assert (ended.generation_tokens_total, ended.prompt_tokens_total) == (3, 150)
        assert (ended.running, ended.kv_usage_ratio) == (0, 0)
        given_up, complete = sorted(
            json.loads(got(server, "/slots").body), key=lambda row: -row["id"]
        )
        assert complete["n_prompt_tokens"] == 50 + 3 - 1
        assert given_up["n_prompt_tokens"] >= 100
        assert (given_up["is_processing"], complete["is_processing"]) == (False, False)


@needs_epoll
def test_a_connection_takes_a_hundred_requests_and_the_last_one_says_so() -> None:
    with emulated(*QUICK, engine="llamacpp") as server, connect(server) as sock:
        health = b"GET /health HTTP/1.1\r\n\r\n"
        sock.sendall(health * 99 + posted(max_tokens=1, stream=True) + health)
        data = b""
        while piece := sock.recv(65536):
            data += piece
        assert data.count(b"Keep-Alive: timeout=5, max=100\r\n") == 99
        assert data.count(b"Connection: close\r\n") == 1
        assert data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert server.stop()["requests"] == {"length": 1}


@needs_epoll
def test_an_error_closes_its_connection() -> None:
    with emulated(*QUICK, engine="llamacpp") as server, connect(server) as sock:
        sock.sendall(b"GET /nothing HTTP/1.1\r\n\r\n" + b"GET /health HTTP/1.1\r\n\r\n")
        data = b""
        while piece := sock.recv(65536):
            data += piece
        assert data.startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert data.count(b"HTTP/1.1") == 1


@needs_epoll
def test_while_it_loads_every_route_says_503() -> None:
    with emulated("--loading-s", "3600", engine="llamacpp") as server:
        for path in ("/health", "/slots", "/v1/models", "/nothing"):
            answer = got(server, path)
            assert str(answer) == "503 Loading model"
            assert answer.head.headers["connection"] == "close"


@needs_epoll
def test_its_own_faults_are_in_its_form() -> None:
    for failed in (wire().failed(), wire().overloaded(9, 2)):
        head, pieces = read_http(failed)
        assert head.headers["server"] == "llama.cpp"
        assert json.loads(b"".join(pieces))["error"]["code"] == head.status
    assert b"Retry-After: 2\r\n" in wire().overloaded(9, 2)


@needs_epoll
def test_an_equal_prompt_is_found_in_the_cache() -> None:
    def cached(server: Emulated, **more: Any) -> int:
        body = json.dumps({"prompt": "x" * 400, "max_tokens": 1, **more}).encode()
        asked = HttpCall(method="POST", path=COMPLETIONS, body=body)
        answer = call(Endpoint(server.base_url), asked, PATIENT_S)
        assert isinstance(answer, Answer)
        usage = json.loads(answer.body)["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    with emulated(*QUICK, "--prefix-cache", engine="llamacpp") as server:
        assert [cached(server), cached(server), cached(server, cache_prompt=False)] == [0, 96, 0]
        found = sample(server)
        assert (found.prompt_tokens_total, found.prefix_cached_tokens_total) == (300, 96)
