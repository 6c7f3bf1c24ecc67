"""The emulator's `/metrics` in the names and labels of SGLang 0.5.23 (source, not captured).

SGLang's gauges are written when a batch of prompts ends and at every n-th decode step, and once
more when it falls idle; between these they keep what they last said. Its counters of tokens move
when a request ends, but for `realtime_tokens_total`. A counter with labels has no line until it
has counted something.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from harness.config import EmulateConf
from harness.emulate.model.figures import Gauges
from harness.emulate.wires.openai.answer import Named
from harness.emulate.wires.wire import EngineState

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_NOTHING = Gauges(running=0, waiting=0, kv_usage_ratio=0.0)


class LazyMetrics:
    """What a scrape finds. `interval`: decode steps between two updates of the gauges."""

    def __init__(self, conf: EmulateConf, model: str, interval: int) -> None:
        self._conf = conf
        self._model = model
        self._interval = interval
        self._state: EngineState | None = None
        self._gauges = _NOTHING
        self._step = -1  # the step that was told of last
        self._firsts = 0  # first tokens of that step
        self._decode_steps = 0
        self._decoded = 0
        self._ended: dict[str, int] = {"prompt": 0, "generation": 0, "cached": 0, "requests": 0}

    def follow(self, state: EngineState) -> None:
        """Whose tokens are told of."""
        self._state = state

    def token(self, k: int) -> None:
        """A first token ends a batch of prompts; the others are decoded."""
        assert self._state is not None, "a token before any request"
        is_new = self._state.counters.steps != self._step
        if is_new:
            self._step, self._firsts = self._state.counters.steps, 0
        if k == 0:  # those that were read now are not among the running ones yet
            self._firsts += 1
            gauges = self._state.gauges()
            self._gauges = replace(gauges, running=max(0, gauges.running - self._firsts))
            return
        self._decoded += 1
        if is_new:
            self._decode_steps += 1
            if self._decode_steps % self._interval == 0:
                self._gauges = self._state.gauges()

    def ended(self, named: Named, tokens: int, cached_tokens: int) -> None:
        """Count a complete answer."""
        self._ended["prompt"] += named.prompt_tokens
        self._ended["generation"] += tokens
        self._ended["cached"] += cached_tokens
        self._ended["requests"] += 1

    def text(self, state: EngineState) -> bytes:
        """One scrape."""
        now = state.gauges()
        if now.running == now.waiting == 0:  # it writes its gauges when it falls idle
            self._gauges = now
        return "\n".join(self._lines(state)).encode() + b"\n"

    def _lines(self, state: EngineState) -> Iterator[str]:
        conf, gauges, counters, ended = self._conf, self._gauges, state.counters, self._ended
        name = {"engine_type": "unified", "model_name": self._model}
        rank = {**name, "moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}
        used = round(gauges.kv_usage_ratio * conf.kv_tokens)
        for key, value in {
            "num_running_reqs": gauges.running,
            "num_queue_reqs": gauges.waiting,
            "token_usage": gauges.kv_usage_ratio,
            "full_token_usage": gauges.kv_usage_ratio,
            "kv_used_tokens": used,
            "num_retracted_reqs": 0,
            "max_total_num_tokens": conf.kv_tokens,
            "page_size": conf.block_tokens,
            "num_pages": conf.kv_blocks,
            "context_len": conf.longest_tokens,
        }.items():
            yield from _series(key, "gauge", rank, value)
        hits = counters.prefix_hits
        live = {
            "prefill_compute": max(0, counters.prompt - hits),
            "prefill_cache": hits,
            "decode": self._decoded,
        }
        effective = {"input": live["prefill_compute"], "device_hit": hits}
        yield from _counter("realtime_tokens_total", rank, "mode", live)
        yield from _counter("prefill_effective_tokens_total", rank, "mode", effective)
        yield from _counter("num_retracted_requests_total", rank, "", {"": counters.preemptions})
        for tokens in ("prompt", "generation"):
            counted = {"true": ended[tokens]}
            yield from _counter(f"{tokens}_tokens_total", name, "is_streaming", counted)
        cached = {"device": ended["cached"]}
        yield from _counter("cached_tokens_total", name, "cache_source", cached)
        requests = {"true": ended["requests"]}
        yield from _counter("num_requests_total", name, "is_streaming", requests)
        late_s = state.late_s()
        if late_s is not None:
            yield "# TYPE bakeoff_emulator_late_p99_seconds gauge"
            yield f"bakeoff_emulator_late_p99_seconds {late_s}"


def _counter(
    name: str, labels: Mapping[str, str], also: str, values: Mapping[str, int]
) -> Iterator[str]:
    """One line for each value of the label `also` that has counted something."""
    counted = {key: value for key, value in values.items() if value}
    for number, (key, value) in enumerate(counted.items()):
        more = {also: key} if also else {}
        lines = list(_series(name, "counter", {**labels, **more}, value))
        yield from lines if number == 0 else lines[1:]


def _series(name: str, kind: str, labels: Mapping[str, str], value: float) -> Iterator[str]:
    yield f"# TYPE sglang:{name} {kind}"
    pairs = ",".join(f"{key}={msgspec.json.encode(labels[key]).decode()}" for key in sorted(labels))
    yield f"sglang:{name}{{{pairs}}} {float(value)}"
