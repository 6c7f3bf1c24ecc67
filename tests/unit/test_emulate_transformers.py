"""The emulator of `transformers serve`, where no answer of the server was captured."""

import json
from typing import Any

import pytest

from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf
from harness.emulate.engines import played, wire_class
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.spec import effective
from harness.emulate.wires.transformers.order import CHAT_FIELDS, COMPLETION_FIELDS
from harness.emulate.wires.transformers.wire import TransformersWire
from harness.emulate.wires.wire import Ask
from harness.testing import read_http

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


class Emulated:
    def __init__(self, *names: str, **knobs: Any) -> None:
        conf = played(EmulateConf(**knobs), TransformersWire)
        self.wire = TransformersWire(conf, names)
        self.player = Player(conf, Pace(1.0))
        self.number = 0

    def respond(
        self, path: str, body: object, headers: dict[str, str] | None = None, method: str = "POST"
    ) -> bytes | Ask:
        self.number += 1
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = HttpRequest(method=method, path=path, headers=headers or {}, body=data)
        return self.wire.respond(request, self.number, self.player)

    def ask(self, config: dict[str, Any] | None = None, **body: Any) -> Ask:
        more = {} if config is None else {"generation_config": json.dumps(config)}
        asked = self.respond(COMPLETIONS, {"prompt": "hello", **more, **body})
        assert isinstance(asked, Ask), asked
        return asked

    def refusal(self, body: object, path: str = COMPLETIONS, **more: Any) -> tuple[int, Any]:
        data = self.respond(path, body, **more)
        assert isinstance(data, bytes)
        head, pieces = read_http(data)
        text = b"".join(pieces)
        is_json = head.headers["content-type"] == "application/json"
        return head.status, json.loads(text) if is_json else text.decode()


def ends(engine: Emulated, config: dict[str, Any] | None, count: int = 30) -> set[str]:
    """Why answers of at most 50 tokens to different prompts end."""
    asks = [engine.ask(config, prompt=f"p{k}", max_tokens=50) for k in range(count)]
    return {ask.finish_reason for ask in asks}


def test_the_engines_own_choices_are_the_librarys() -> None:
    conf = played(EmulateConf(), TransformersWire)
    assert (conf.slots, conf.tokens_per_step, conf.prefix_cache) == (1024, 8192, True)
    small = played(EmulateConf(tokens_per_step=100), TransformersWire)
    assert (small.slots, small.tokens_per_step) == (100, 100)
    single = effective(EmulateConf(), EngineConf(name="transformers", max_running=1))
    assert (single.slots, single.prefix_cache) == (1, False)
    assert wire_class("transformers") is TransformersWire
    assert not TransformersWire.manners.listens_while_loading


def test_the_default_length_is_1024() -> None:
    engine = Emulated(natural_output_tokens=10**9)
    assert engine.ask().output_tokens == 1024
    assert engine.ask({"max_new_tokens": 7}).output_tokens == 7
    assert engine.ask({"max_new_tokens": 7}, max_tokens=9).output_tokens == 9
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "max_tokens": 9, "max_completion_tokens": 4}
    chat = engine.respond(CHAT, body)
    assert isinstance(chat, Ask)
    assert chat.output_tokens == 4


def test_one_at_a_time_the_end_token_is_held_down_for_a_while() -> None:
    engine = Emulated(slots=1, natural_output_tokens=2)
    assert ends(engine, {"min_new_tokens": 50}) == {"length"}
    assert ends(engine, {"min_new_tokens": 60}) == {"length"}
    assert ends(engine, {"eos_token_id": [-1]}) == {"length"}
    assert ends(engine, {"min_new_tokens": 5}) == {"stop"}
    held = [engine.ask({"min_new_tokens": 5}, prompt=f"p{k}", max_tokens=50) for k in range(30)]
    assert min(ask.output_tokens for ask in held) == 6
    assert "stop" in ends(engine, {"max_new_tokens": 50})  # the model's own end is kept


def test_in_continuous_batching_only_the_end_token_forces_a_length() -> None:
    engine = Emulated(natural_output_tokens=2)
    assert ends(engine, None) == {"stop"}
    assert ends(engine, {"min_new_tokens": 50}) == {"stop"}
    assert ends(engine, {"eos_token_id": -1}) == {"length"}
    assert ends(engine, {"eos_token_id": 2}) == {"stop"}


def test_in_continuous_batching_the_first_request_gives_the_others_their_end() -> None:
    engine = Emulated(natural_output_tokens=2)
    engine.ask({"eos_token_id": -1})
    assert ends(engine, {"max_new_tokens": 50}) == {"length"}
    assert ends(engine, None) == {"stop"}  # without a generation_config it is the model's


def test_in_continuous_batching_the_first_request_fixes_the_sampling() -> None:
    sampled = {"do_sample": True, "eos_token_id": 2}

    def lengths(engine: Emulated) -> set[int]:
        bodies = ({"temperature": 1.5, "seed": seed, "max_tokens": 900} for seed in range(20))
        return {engine.ask(sampled, **body).output_tokens for body in bodies}

    greedy_first, sampled_first = Emulated(), Emulated()
    greedy_first.ask({"do_sample": False})
    assert len(lengths(greedy_first)) == 1
    assert len(lengths(sampled_first)) > 1
    single = Emulated(slots=1)
    single.ask({"do_sample": False})
    assert len(lengths(single)) > 1
    again = {single.ask(sampled, seed=3, max_tokens=900).output_tokens for _ in range(5)}
    assert len(again) == 1
    plain = {single.ask(None, temperature=1.5, max_tokens=900).output_tokens for _ in range(5)}
    assert len(plain) == 1  # a temperature alone does not switch sampling on


def test_an_end_on_the_last_token_reads_length_and_has_no_event() -> None:
    engine = Emulated(slots=1, natural_output_tokens=1)
    ask = engine.ask(None, max_tokens=1, stream=True)
    assert (ask.output_tokens, ask.finish_reason) == (1, "length")
    last = ask.answer.last(0, 0)
    assert b" tok0" not in last
    assert b'"completion_tokens":1' in last


def test_blocks_are_shared_only_in_continuous_batching() -> None:
    prompt = "a" * 200
    assert len(Emulated().ask(prompt=prompt).block_keys) == 3
    assert Emulated(slots=1).ask(prompt=prompt).block_keys == ()
    assert Emulated(prefix_cache=False).ask(prompt=prompt).block_keys == ()


def test_no_length_is_checked_but_the_cache_must_hold_it() -> None:
    engine = Emulated(max_model_len_tokens=64, kv_blocks=100)
    assert engine.ask({"eos_token_id": -1}, max_tokens=1500).output_tokens == 1500
    assert engine.refusal({"prompt": "a", "max_tokens": 1600})[0] == 500


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a", "max_tokens": "many"},
        {"prompt": "a", "generation_config": {"max_new_tokens": 1}},
        {"prompt": "a", "generation_config": "{"},
        {"prompt": "a", "temperature": "hot"},
    ],
)
def test_the_unforeseen_is_a_plain_500(body: dict[str, Any]) -> None:
    assert Emulated().refusal(body) == (500, "Internal Server Error")


def test_a_body_that_is_no_object_is_refused_as_fastapi_does() -> None:
    engine = Emulated()
    status, said = engine.refusal(b"")
    assert (status, said["detail"][0]["type"]) == (422, "missing")
    status, said = engine.refusal(["a"])
    assert (status, said["detail"][0]["type"], said["detail"][0]["input"]) == (
        *(422, "dict_type"),
        ["a"],
    )
    form = {"content-type": "application/x-www-form-urlencoded"}
    status, said = engine.refusal(b'{"prompt": "a"}', headers=form)
    assert (status, said["detail"][0]["input"]) == (422, '{"prompt": "a"}')


def test_each_route_knows_its_own_fields() -> None:
    assert {"prompt", "echo", "generation_config"} <= COMPLETION_FIELDS - {"messages"}
    assert {"messages", "tools", "chat_template_kwargs"} <= CHAT_FIELDS - {"prompt"}
    assert not {"ignore_eos", "min_tokens", "top_k"} & (CHAT_FIELDS | COMPLETION_FIELDS)
    assert Emulated().refusal({"messages": []}, COMPLETIONS)[0] == 422
    assert Emulated().refusal({"prompt": "a"}, CHAT)[0] == 422


def test_a_request_id_is_echoed_and_is_the_answers() -> None:
    ids = {"x-request-id": "mine"}
    asked = Emulated().respond(COMPLETIONS, {"prompt": "a", "stream": True}, ids)
    assert isinstance(asked, Ask)
    assert b"x-request-id: mine\r\n" in asked.answer.head
    assert b'"id":"mine"' in asked.answer.token(0)


def test_the_role_is_sent_with_the_headers() -> None:
    messages = [{"role": "system", "content": [{"type": "text", "text": "x"}]}]
    asked = Emulated().respond(CHAT, {"messages": messages, "stream": True})
    assert isinstance(asked, Ask)
    assert b'{"delta":{"role":"assistant"},"index":0}' in asked.answer.head
    assert asked.answer.started == b""
    whole = Emulated().respond(CHAT, {"messages": messages})
    assert isinstance(whole, Ask)
    assert (whole.answer.head, whole.answer.token(0)) == (b"", b"")


def test_a_name_with_a_revision_keeps_it_and_any_name_will_do_if_none_is_pinned() -> None:
    assert b'"model":"a/b@dev"' in Emulated("a/b@dev").ask(stream=True).answer.token(0)
    assert b'"model":"emulated@main"' in Emulated().ask(model="x", stream=True).answer.token(0)
    assert Emulated("a").refusal({"prompt": "a", "model": "b"})[0] == 400


def test_reset_and_faults() -> None:
    engine = Emulated()
    assert engine.refusal({}, "/reset") == (200, {"status": "ok"})
    assert engine.refusal(b"", "/health", method="POST")[0] == 405
    head, pieces = read_http(engine.wire.overloaded(3, 2))
    assert (head.status, head.headers["retry-after"]) == (429, "2")
    assert json.loads(b"".join(pieces))["detail"].startswith("3 requests")
    assert engine.wire.loading() == engine.wire.failed()
    assert read_http(engine.wire.failed())[0].status == 500
