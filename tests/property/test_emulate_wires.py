"""Emulated engines through their wires, played without sockets: what clients read is what counts.

Virtual time runs so fast that every step is due at once; what comes when is not looked at.
"""

import json
import math
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.llamacpp import LlamaCppAdapter
from adapters.metrics import known_sample
from adapters.openai_wire import OpenAIDecoder
from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf, EngineConf, ModelConf
from harness.emulate.engines import WIRES, played
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.server.stream import ClientConnection
from harness.emulate.wires.llamacpp.wire import LlamaCppWire
from harness.emulate.wires.wire import Ask, Wire
from harness.errors import ConfigError
from harness.testing import read_http
from harness.types import Chunk, ChunkKind

pytestmark = pytest.mark.timeout(120)
SEEDS = st.integers(0, 10_000)
FAST = 1e7
ROUTES = ("/v1/completions", "/v1/chat/completions")
LLAMACPP = LlamaCppAdapter(EngineConf(name="llamacpp"), ModelConf(name="m"))


@dataclass(eq=False)
class Client:
    """A connection that keeps what is put into it."""

    stamp_s: float
    data: bytearray = field(default_factory=bytearray)
    is_busy: bool = False
    stream: Any = None

    def put(self, data: bytes) -> bool:
        self.data += data
        return True

    def close(self) -> None:
        self.stream = None

    def chunks(self) -> list[Chunk]:
        head, pieces = read_http(bytes(self.data))
        decoder = OpenAIDecoder(head)
        return [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.end()


class Playing:
    """An engine's wire and its player. `asked`: clients with the tokens that they want."""

    def __init__(self, engine: str, **knobs: Any) -> None:
        wire = WIRES[engine]
        conf = played(EmulateConf(speed=FAST, **knobs), wire)
        self.wire: Wire = wire(conf, ())
        self.pace = Pace(conf.speed)
        self.player = Player(conf, self.pace)
        self.asked: list[tuple[Client, int]] = []

    def ask(self, path: str, tokens: int, **fields: Any) -> Client:
        prompt = fields.pop("prompt", "hello")
        fields |= {"prompt": prompt, "messages": [{"role": "user", "content": prompt}]}
        fields |= {"max_tokens": tokens, "ignore_eos": True}
        if fields.get("stream"):
            fields["stream_options"] = {"include_usage": True}
        request = HttpRequest(method="POST", path=path, body=json.dumps(fields).encode())
        ask = self.wire.respond(request, len(self.asked), self.player)
        assert isinstance(ask, Ask), ask
        client = Client(stamp_s=self.pace.monotonic_s(self.player._model.now_s))
        self.player.take(cast("ClientConnection", client), ask, cut_at=None)
        self.asked.append((client, tokens))
        return client

    def metrics(self) -> bytes:
        answer = self.wire.respond(HttpRequest(method="GET", path="/metrics"), 0, self.player)
        assert isinstance(answer, bytes)
        return b"".join(read_http(answer)[1])


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, slots=st.integers(1, 6), is_cached=st.booleans())
@pytest.mark.parametrize("engine", ["llamacpp", "openai"])
def test_the_tokens_that_clients_read_are_those_that_the_engine_counts(
    engine: str, seed: int, slots: int, is_cached: bool
) -> None:
    playing, random = Playing(engine, slots=slots, prefix_cache=is_cached), Random(seed)
    for _ in range(12):
        fields: dict[str, Any] = {"stream": random.random() < 0.7}
        fields["prompt"] = "x" * random.randint(1, 300)
        playing.ask(random.choice(ROUTES), random.randint(1, 12), **fields)
        for _ in range(random.randint(0, 8)):
            playing.player.advance()
    while playing.player.advance() != math.inf:
        pass
    read = 0
    prompts = cached = 0
    for client, tokens in playing.asked:
        chunks = client.chunks()
        assert not [chunk for chunk in chunks if chunk.kind is ChunkKind.ERROR]
        text = "".join(chunk.text for chunk in chunks)
        assert text == "".join(f" tok{k}" for k in range(tokens))
        [usage] = [chunk for chunk in chunks if chunk.total_tokens is not None]
        assert usage.total_tokens == tokens
        assert usage.prompt_tokens is not None
        read, prompts = read + tokens, prompts + usage.prompt_tokens
        cached += usage.cached_tokens or 0
    assert read == sum(tokens for _, tokens in playing.asked) > 0
    counters = playing.player.counters
    assert (counters.generation, counters.ended, counters.prompt) == (read, read, prompts)
    assert playing.player.finished == {"length": 12}
    sample = known_sample(playing.metrics())
    if engine == "llamacpp":
        sample = LLAMACPP.engine_sample({"metrics": playing.metrics()})
    assert sample.generation_tokens_total == read
    assert sample.prompt_tokens_total == prompts
    assert sample.prefix_cached_tokens_total == cached
    assert (sample.running, sample.waiting) == (0, 0)


@settings(deadline=None, max_examples=25)
@given(seed=SEEDS, slots=st.integers(1, 5))
def test_a_slot_has_one_request_and_headers_come_with_it(seed: int, slots: int) -> None:
    playing, random = Playing("llamacpp", slots=slots), Random(seed)
    clients = [playing.ask(ROUTES[0], 5, stream=True) for _ in range(slots + 2)]
    playing.player.advance()
    assert [bool(client.data) for client in clients] == [True] * slots + [False] * 2
    assert playing.player.gauges().waiting == 2
    for turn in range(80):
        if turn < 50 and random.random() < 0.4:
            clients.append(playing.ask(ROUTES[0], random.randint(1, 20), stream=True))
        under_way = [client for client in clients if client.stream is not None]
        if under_way and random.random() < 0.1:
            gone = random.choice(under_way)
            stream, gone.stream = gone.stream, None
            playing.player.abandon(stream)
        playing.player.advance()
        at_work = [slot.sequence for slot in playing.player.slots if slot.sequence is not None]
        assert len(set(at_work)) == len(at_work) == playing.player.gauges().running
        assert {slot.number for slot in playing.player.slots if slot.sequence} == {
            one.slot for one in at_work
        }
        heard = {client for client in clients if client.data and client.stream is not None}
        assert {one.owner.sink for one in at_work} == heard
    while playing.player.advance() != math.inf:
        pass
    assert all(slot.sequence is None for slot in playing.player.slots)
    assert sum(playing.player.finished.values()) == len(clients)


@settings(deadline=None, max_examples=40)
@given(
    seed=SEEDS,
    slots=st.integers(1, 12),
    kv_blocks=st.integers(1, 60),
    block_tokens=st.integers(1, 32),
    max_model_len=st.none() | st.integers(1, 200),
)
def test_a_divided_context_is_never_too_small_for_what_it_takes(
    seed: int, slots: int, kv_blocks: int, block_tokens: int, max_model_len: int | None
) -> None:
    try:
        knobs: dict[str, Any] = {"kv_blocks": kv_blocks, "block_tokens": block_tokens}
        playing = Playing("llamacpp", slots=slots, max_model_len_tokens=max_model_len, **knobs)
    except ConfigError:
        return
    assert isinstance(playing.wire, LlamaCppWire)
    random, taken = Random(seed), 0
    for _ in range(3 * slots):
        body = {"prompt": [1] * random.randint(1, 60), "ignore_eos": True, "stream": True}
        request = HttpRequest(method="POST", path=ROUTES[0], body=json.dumps(body).encode())
        ask = playing.wire.respond(request, 1, playing.player)
        if isinstance(ask, bytes):
            assert b"exceed_context_size_error" in ask
            continue
        taken += 1
        client = Client(stamp_s=playing.pace.monotonic_s(0.0))
        playing.player.take(cast("ClientConnection", client), ask, cut_at=None)
    while playing.player.advance() != math.inf:
        pass
    assert playing.player.counters.preemptions == 0
    assert playing.player.finished.get("length", 0) == taken


def test_a_divided_context_is_often_accepted_above() -> None:
    """Else the property above would hold for nothing."""
    accepted = 0
    for slots in range(1, 13):
        for kv_blocks in range(1, 61):
            try:
                LlamaCppWire(EmulateConf(slots=slots, kv_blocks=kv_blocks), ())
            except ConfigError:
                continue
            accepted += 1
    assert accepted > 600


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, slots=st.integers(2, 6))
def test_a_preempted_request_keeps_its_place(seed: int, slots: int) -> None:
    playing, random = Playing("openai", slots=slots, kv_blocks=slots * 2), Random(seed)
    clients = [playing.ask(ROUTES[0], 32, stream=True, prompt="x" * 64) for _ in range(4 * slots)]
    while playing.player.advance() != math.inf:
        at_work = [slot for slot in playing.player.slots if slot.sequence is not None]
        assert len(at_work) >= playing.player.gauges().running
        under_way = [client for client in clients if client.stream is not None]
        if playing.player.counters.preemptions and under_way and random.random() < 0.02:
            gone = random.choice(under_way)
            stream, gone.stream = gone.stream, None
            playing.player.abandon(stream)
    assert playing.player.counters.preemptions > 0
    assert all(slot.sequence is None for slot in playing.player.slots)
    assert sum(playing.player.finished.values()) == len(clients)
