"""The emulator's `/metrics` in llama.cpp's names, types and order (b11434, as captured)."""

from collections.abc import Iterator

from harness.config import EmulateConf
from harness.emulate.wires.wire import EngineState

CONTENT_TYPE = "text/plain; version=0.0.4"


class LlamaMetrics:
    """Counters, and rates since the scrape before: those begin anew with each one."""

    def __init__(self, conf: EmulateConf) -> None:
        self._speed = conf.speed
        self._seen = (0.0, 0.0, 0.0, 0.0)

    def text(self, state: EngineState) -> bytes:
        """One scrape."""
        return "".join(self._lines(state)).encode()

    def _lines(self, state: EngineState) -> Iterator[str]:
        counters, gauges = state.counters, state.gauges()
        read, prompt_s = counters.prompt - counters.cached, counters.prompt_s / self._speed
        made, answer_s = counters.ended, counters.ended_s / self._speed
        seen, self._seen = self._seen, (read, prompt_s, made, answer_s)
        drafts = dict.fromkeys(("draft_tokens", "accepted_tokens", "drafts"), 0)
        totals = {
            "prompt_tokens_total": read,
            "prompt_tokens_cached_total": counters.cached,
            "prompt_seconds_total": prompt_s,
            "tokens_predicted_total": made,
            "tokens_predicted_seconds_total": answer_s,
            "n_decode_total": counters.steps,
            "n_tokens_max": counters.longest,
            **{f"spec_decode_num_{name}_total": value for name, value in drafts.items()},
        }
        now = {
            "prompt_tokens_seconds": _rate(read - seen[0], prompt_s - seen[1]),
            "predicted_tokens_seconds": _rate(made - seen[2], answer_s - seen[3]),
            "requests_processing": gauges.running,
            "requests_deferred": gauges.waiting,
            "n_busy_slots_per_decode": _rate(counters.sequence_steps, counters.steps),
        }
        yield from (_metric(name, "counter", value) for name, value in totals.items())
        yield from (_metric(name, "gauge", value) for name, value in now.items())


def _rate(amount: float, over: float) -> float:
    return amount / over if over else 0.0


def _metric(name: str, kind: str, value: float) -> str:
    name = f"llamacpp:{name}"
    return f"# HELP {name} Emulated.\n# TYPE {name} {kind}\n{name} {value:.6g}\n"
