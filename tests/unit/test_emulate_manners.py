"""What only some emulated engines do: steps that are kept, clients missed late, a second port."""

import json
import sys
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from adapters.metrics import Metrics
from harness.config import EmulateConf
from harness.emulate.model.engine import EngineModel
from harness.emulate.model.sequence import Sequence
from harness.emulate.model.simulate import token_times
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.server.stream import ClientConnection
from harness.emulate.wires.wire import Ask
from harness.engine.probe import Answer, Endpoint, call
from harness.testing.emulated import emulated
from harness.types import HttpCall


def plain(**knobs: Any) -> EmulateConf:
    still = {
        "prefill_tokens_per_s": 1000.0,
        "step_ms": 10.0,
        "step_per_sequence_ms": 0.0,
        "step_per_kv_token_us": 0.0,
    }
    return EmulateConf(**{**still, **knobs})


def test_each_step_is_kept_with_what_it_did() -> None:
    model = EngineModel(plain(slots=2, kv_blocks=10, max_model_len_tokens=100))
    requests = [Sequence(prompt_tokens=16, output_tokens=2) for _ in range(3)]
    token_times(model, requests)
    steps = list(model.steps)
    assert [step.number for step in steps] == [1, 2, 3, 4]
    assert [step.running for step in steps] == [2, 2, 1, 1]
    assert [step.waiting for step in steps] == [1, 1, 0, 0]
    assert [step.admitted for step in steps] == [2, 0, 1, 0]
    assert [(step.prefilling, step.decoding) for step in steps] == [(2, 0), (0, 2), (1, 0), (0, 1)]
    assert [step.prefill_tokens for step in steps] == [32, 0, 16, 0]
    assert [step.completed for step in steps] == [0, 2, 0, 1]
    assert [step.kv_usage_ratio for step in steps] == pytest.approx([0.2, 0.4, 0.1, 0.2])
    assert steps[0].took_s == pytest.approx(0.042)
    assert steps[-1].end_s == pytest.approx(model.now_s)


def test_only_the_last_thousand_steps_are_kept() -> None:
    model = EngineModel(plain())
    token_times(model, [Sequence(prompt_tokens=1, output_tokens=1200)])
    assert (len(model.steps), model.steps[0].number, model.steps[-1].number) == (1000, 201, 1200)


class _Answer:
    head = started = b""

    def token(self, k: int) -> bytes:
        return b"%d" % k

    def last(self, k: int, cached_tokens: int) -> bytes:
        return b"%d!" % (k + cached_tokens)


class _StillPace(Pace):
    def __init__(self) -> None:
        super().__init__(1.0)
        self.t_s = 0.0

    def now_s(self) -> float:
        return self.t_s


def taken(player: Player, pace: Pace) -> SimpleNamespace:
    """A connection whose request the engine has begun, and will work on for long."""
    connection = SimpleNamespace(
        stamp_s=pace.monotonic_s(0.0), is_busy=False, stream=None, put=lambda _data: True
    )
    ask = Ask(prompt_tokens=1, output_tokens=5, finish_reason="length", answer=_Answer())
    player.take(cast("ClientConnection", connection), ask, cut_at=None)
    player.advance()
    return connection


@pytest.mark.parametrize(
    ("gone_s", "still_s", "seen_s"), [(0.3, 0.99, 1.0), (1.0, 1.99, 2.0), (1.5, 1.9, 2.0)]
)
def test_a_client_that_goes_is_missed_at_the_next_poll(
    gone_s: float, still_s: float, seen_s: float
) -> None:
    pace = _StillPace()
    player = Player(plain(step_ms=1e9), pace, disconnect_poll_s=1.0)
    connection = taken(player, pace)
    stream, connection.stream = connection.stream, None
    pace.t_s = gone_s
    player.abandon(stream)
    for pace.t_s in (gone_s, still_s):
        player.advance()
        assert (player.in_flight, player.gauges().running) == (1, 1)
    pace.t_s = seen_s
    player.advance()
    assert (player.in_flight, player.gauges().running) == (0, 0)
    assert player.finished == {"abort": 1}


def test_without_a_poll_it_is_missed_at_once() -> None:
    pace = _StillPace()
    player = Player(plain(step_ms=1e9), pace)
    connection = taken(player, pace)
    player.abandon(connection.stream)
    assert (player.in_flight, player.gauges().running) == (0, 0)


def test_what_nobody_waits_for_may_come_to_its_end() -> None:
    pace = _StillPace()
    player = Player(plain(step_ms=1e-3, prefill_tokens_per_s=1e9), pace, disconnect_poll_s=1e6)
    connection = taken(player, pace)
    stream, connection.stream = connection.stream, None
    player.abandon(stream)
    for _ in range(100_000):
        if not player.in_flight:
            break
        player.advance()
    player.advance()
    assert player.finished == {"length": 1}
    assert [step.number for step in player.take_steps()] == [1, 2, 3, 4, 5]
    assert player.take_steps() == []


@pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")
def test_triton_has_its_metrics_on_a_port_beside() -> None:
    body = json.dumps({"text_input": "hello", "max_tokens": 4, "min_tokens": 4}).encode()
    with emulated("--step-ms", "1", engine="triton") as server:
        endpoint = Endpoint(server.base_url)
        asked = call(endpoint, HttpCall(path="/v2/models/ensemble/generate", body=body), 20.0)
        assert isinstance(asked, Answer), asked
        assert json.loads(asked.body)["text_output"] == " tok0 tok1 tok2 tok3"
        scrape = call(endpoint, HttpCall(method="GET", path="/metrics", port_offset=2), 20.0)
        assert isinstance(scrape, Answer), scrape
        assert Metrics(scrape.body).total("nv_llm_output_token_len_sum") == 4
        assert urlsplit(server.base_url).port
        assert server.stop()["tokens"] == 4


@pytest.mark.skipif(sys.platform != "linux", reason="the server needs epoll")
def test_trtllm_serve_drains_its_iterations() -> None:
    body = json.dumps(
        {"model": "m", "prompt": "hello", "max_tokens": 4, "ignore_eos": True}
    ).encode()
    get = HttpCall(method="GET", path="/metrics")
    with emulated("--step-ms", "1", engine="tensorrt_llm") as server:
        endpoint = Endpoint(server.base_url)
        assert isinstance(call(endpoint, HttpCall(path="/v1/completions", body=body), 20.0), Answer)
        first, again = (call(endpoint, get, 20.0) for _ in range(2))
        assert isinstance(first, Answer)
        assert isinstance(again, Answer)
        steps = json.loads(first.body)
        assert [step["iter"] for step in steps] == [1, 2, 3, 4]
        assert steps[-1]["numCompletedRequests"] == 1
        assert again.body == b"[]"
