"""The engine's steps played on the machine's clock: each token is sent when its step ends."""

import math
import time
from collections.abc import Callable

from harness.config import EmulateConf
from harness.emulate.model.engine import EngineModel
from harness.emulate.model.figures import Counters, Gauges
from harness.emulate.model.sequence import Sequence
from harness.emulate.server.lateness import Lateness
from harness.emulate.server.pace import Pace
from harness.emulate.server.stream import Sink, Stream
from harness.emulate.wires.wire import Ask

_HOUR_S = 3600.0
_LEAK_BYTES = 1 << 20


class Player:
    """The engine and the answers under way.

    A request's arrival is its kernel stamp, and steps follow each other in virtual time: a late
    emulator delays what it sends, never the schedule itself.
    """

    def __init__(self, conf: EmulateConf, pace: Pace) -> None:
        self.finished: dict[str, int] = {}
        self.lateness = Lateness()
        self.in_flight = 0
        self._conf = conf
        self._pace = pace
        self._model = EngineModel(conf)
        self._due_s: float | None = None  # of the step that has begun
        self._ready: list[tuple[Stream, bytes]] = []
        self._leaked: list[bytes] = []

    @property
    def counters(self) -> Counters:
        """The engine's totals."""
        return self._model.counters

    def gauges(self) -> Gauges:
        """How the engine stands."""
        return self._model.gauges()

    def reset_cache(self) -> None:
        """Forget the beginnings of all prompts."""
        self._model.reset_cache()

    def memory_bytes(self) -> int:
        """The resident memory that the emulated engine claims."""
        return int(self._conf.memory_bytes + self._grown_bytes)

    @property
    def _grown_bytes(self) -> float:
        return self._conf.memory_growth_bytes_per_hour * self._pace.now_s() / _HOUR_S

    def _leak(self) -> None:
        """Really take what the engine is to grow by, written to, so that it is resident."""
        while len(self._leaked) * _LEAK_BYTES < self._grown_bytes:
            self._leaked.append(b"\x01" * _LEAK_BYTES)

    def late_s(self) -> float | None:
        """P99 of how late tokens were sent, in real seconds; None if there were none."""
        return self.lateness.quantile_s(0.99)

    def take(
        self,
        sink: Sink,
        ask: Ask,
        *,
        cut_at: int | None,
        on_complete: Callable[[], None] = lambda: None,
    ) -> None:
        """Let the engine work on the request that has just come over this sink.

        `cut_at`: the token in whose place the answer breaks off; None: it is answered.
        """
        stream = Stream(sink=sink, ask=ask, on_complete=on_complete, cut_at=cut_at)
        stream.sequence = Sequence(
            prompt_tokens=ask.prompt_tokens,
            output_tokens=ask.output_tokens,
            arrival_s=self._pace.virtual_s(sink.stamp_s),
            block_keys=ask.block_keys,
            owner=stream,
        )
        sink.is_busy = True
        sink.stream = stream
        self.in_flight += 1
        self._model.submit(stream.sequence)
        if ask.answer.head:
            sink.put(ask.answer.head)

    def abandon(self, stream: Stream) -> None:
        """The client has gone: what the engine still had to do for it falls away."""
        self._model.cancel(stream.sequence)
        self._end(stream, "abort")

    def advance(self) -> float:
        """Send what is due; returns when the next step ends, 0.0 if it may have ended already."""
        if self._due_s is None:
            end_s = self._model.begin()
            if end_s is None:
                return math.inf
            self._due_s = self._pace.monotonic_s(end_s)
            self._tell_started()
            self._ready = self._prepared()
        due_s = self._due_s
        if due_s > time.monotonic():
            return due_s
        self._due_s = None
        self._send(due_s)
        return 0.0

    def _tell_started(self) -> None:
        """Send what an engine sends when it begins to work on a request."""
        for sequence in self._model.admitted:
            stream: Stream = sequence.owner
            if stream.ask.answer.started and stream.sink.stream is stream:
                stream.sink.put(stream.ask.answer.started)

    def _prepared(self) -> list[tuple[Stream, bytes]]:
        """What will be sent when the step ends, made now, while there is time."""
        ready: list[tuple[Stream, bytes]] = []
        for sequence in self._model.emits:
            stream: Stream = sequence.owner
            k, answer = sequence.generated, stream.ask.answer
            is_last = k == sequence.output_tokens - 1
            data = answer.last(k, sequence.cached_tokens or 0) if is_last else answer.token(k)
            if data or stream.cut_at == k:
                ready.append((stream, data))
        return ready

    def _send(self, due_s: float) -> None:
        """Send all that was prepared, then end the step: the tokens must not wait for us."""
        monotonic, sent_s = time.monotonic, []
        for stream, data in self._ready:
            if stream.cut_at == stream.sequence.generated:
                stream.sink.close()
            elif stream.sink.stream is stream:  # else its client has gone
                sent_s.append(monotonic())
                stream.sink.put(data)
        self.lateness.note(due_s, sent_s)
        self._ready = []
        for sequence in self._model.finish():
            if sequence.is_complete and sequence.owner is not None:
                self._complete(sequence.owner)

    def _complete(self, stream: Stream) -> None:
        stream.sink.stream = None
        stream.sink.is_busy = False
        self._end(stream, stream.ask.finish_reason)
        self._leak()
        stream.on_complete()

    def _end(self, stream: Stream, reason: str) -> None:
        stream.sequence.owner = None  # no cycle is left: nothing collects them
        self.in_flight -= 1
        self.finished[reason] = self.finished.get(reason, 0) + 1
