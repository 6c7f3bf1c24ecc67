"""What emulated TGI counts, and its `/metrics`: a series appears with its first event.

Names and buckets: text-generation-inference 3.3.7, router/src/server.rs. Not there: the figures
of its batches' forward passes, which the timing model does not have.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.emulate.wires.wire import EngineState

_DURATION_BOUNDS = tuple(0.0001 * 1.5**k for k in range(1, 36))
_LENGTH_BUCKETS = 100


class Histogram:
    """Counts by upper bound, as Prometheus has them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def note(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        """All of its series; none before the first value."""
        total = sum(self._counts)
        if not total:
            return
        yield f"# TYPE {name} histogram"
        below = 0
        for bound, count in zip(self._bounds, self._counts, strict=False):
            below += count
            yield f'{name}_bucket{{le="{bound:g}"}} {below}'
        yield f'{name}_bucket{{le="+Inf"}} {total}'
        yield f"{name}_sum {self._sum:g}"
        yield f"{name}_count {total}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """How long a request took, real seconds: in all, in the queue, and in the engine."""

    total_s: float
    queue_s: float
    inference_s: float
    tokens: int

    @property
    def token_s(self) -> float:
        """For each token, as TGI divides it."""
        return self.inference_s / self.tokens


class Figures:
    """The counters. `is_used`: the engine has begun to work on a request."""

    def __init__(self, longest_tokens: int) -> None:
        lengths = [longest_tokens / _LENGTH_BUCKETS * k for k in range(1, _LENGTH_BUCKETS + 1)]
        self.requests = self.successes = 0
        self.failures: dict[str, int] = {}
        self.is_used = False
        self._histograms = {
            **{
                f"tgi_request_{name}": Histogram(_DURATION_BOUNDS)
                for name in (
                    *("duration", "validation_duration", "queue_duration"),
                    *("inference_duration", "mean_time_per_token_duration"),
                )
            },
            **{
                f"tgi_request_{name}": Histogram(lengths)
                for name in ("input_length", "max_new_tokens", "generated_tokens")
            },
        }

    def failed(self, kind: str) -> None:
        """Count a request that came to nothing."""
        self.failures[kind] = self.failures.get(kind, 0) + 1

    def begun(self, prompt_tokens: int, max_new_tokens: int) -> None:
        """Count a request as the engine begins with it; TGI does a little before, in its queue."""
        self.is_used = True
        self._note(input_length=prompt_tokens, max_new_tokens=max_new_tokens)

    def answered(self, spans: Spans) -> None:
        """Count a complete answer."""
        self.successes += 1
        self._note(
            duration=spans.total_s,
            validation_duration=0.0,
            queue_duration=spans.queue_s,
            inference_duration=spans.inference_s,
            mean_time_per_token_duration=spans.token_s,
            generated_tokens=spans.tokens,
        )

    def _note(self, **values: float) -> None:
        for name, value in values.items():
            self._histograms[f"tgi_request_{name}"].note(value)

    def text(self, state: EngineState) -> bytes:
        """One scrape."""
        return "".join(f"{line}\n" for line in self._lines(state)).encode()

    def _lines(self, state: EngineState) -> Iterator[str]:
        for name, count in (("count", self.requests), ("success", self.successes)):
            if count:
                yield f"# TYPE tgi_request_{name} counter"
                yield f"tgi_request_{name} {count}"
        if self.failures:
            yield "# TYPE tgi_request_failure counter"
        for kind, count in self.failures.items():
            yield f'tgi_request_failure{{err="{kind}"}} {count}'
        if self.is_used:
            gauges = state.gauges()
            for name, value in (
                ("tgi_queue_size", gauges.waiting),
                ("tgi_batch_current_size", gauges.running),
            ):
                yield f"# TYPE {name} gauge"
                yield f"{name} {value}"
        for name, histogram in self._histograms.items():
            yield from histogram.lines(name)
        late_s = state.late_s()
        if late_s is not None:
            yield "# TYPE bakeoff_emulator_late_p99_seconds gauge"
            yield f"bakeoff_emulator_late_p99_seconds {late_s}"


class Watch:
    """Times one request, on the machine's clock, and counts it."""

    __slots__ = ("_begun_s", "_came_s", "_figures", "_max_new_tokens", "_prompt_tokens")

    def __init__(self, figures: Figures, prompt_tokens: int, max_new_tokens: int) -> None:
        self._figures = figures
        self._prompt_tokens = prompt_tokens
        self._max_new_tokens = max_new_tokens
        self._came_s = self._begun_s = time.monotonic()

    def begin(self) -> None:
        """The engine takes it out of the queue."""
        self._begun_s = time.monotonic()
        self._figures.begun(self._prompt_tokens, self._max_new_tokens)

    def end(self, tokens: int) -> Spans:
        """Its last token is made; called as the last step begins, so a step is not in it."""
        end_s = time.monotonic()
        spans = Spans(
            total_s=end_s - self._came_s,
            queue_s=self._begun_s - self._came_s,
            inference_s=end_s - self._begun_s,
            tokens=tokens,
        )
        self._figures.answered(spans)
        return spans
