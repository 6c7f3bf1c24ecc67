"""The engine's steps played on the machine's clock: each token is sent when its step ends."""

import math
import time
from collections.abc import Callable

from harness.config import EmulateConf
from harness.emulate.model.engine import EngineModel
from harness.emulate.model.figures import Counters, Gauges, StepFigures
from harness.emulate.model.sequence import Sequence
from harness.emulate.model.slots import Slot, Slots
from harness.emulate.server.lateness import Lateness
from harness.emulate.server.pace import Pace
from harness.emulate.server.stream import Sink, Stream
from harness.emulate.wires.wire import Ask

_HOUR_S = 3600.0
_LEAK_BYTES = 1 << 20


class Player:
    """The engine and the answers under way.

    A request's arrival is its kernel stamp, and steps follow each other in virtual time: a late
    emulator delays what it sends, never the schedule itself. `disconnect_poll_s`: how often the
    engine looks whether a request's client has gone; 0: it sees that at once.
    """

    def __init__(self, conf: EmulateConf, pace: Pace, disconnect_poll_s: float = 0.0) -> None:
        self.finished: dict[str, int] = {}
        self.lateness = Lateness()
        self.in_flight = 0
        self._conf = conf
        self._pace = pace
        self._model = EngineModel(conf)
        self._slots = Slots(conf.slots_played)
        self._due_s: float | None = None  # of the step that has begun
        self._ready: list[tuple[Stream, bytes]] = []
        self._leaked: list[bytes] = []
        self._poll_s = disconnect_poll_s
        self._forsaken: list[tuple[float, Stream]] = []  # when the engine sees it, virtual time

    @property
    def counters(self) -> Counters:
        """The engine's totals."""
        return self._model.counters

    def gauges(self) -> Gauges:
        """How the engine stands."""
        return self._model.gauges()

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Who works where."""
        return self._slots.all

    def reset_cache(self) -> None:
        """Forget the beginnings of all prompts."""
        self._model.reset_cache()

    def take_steps(self) -> list[StepFigures]:
        """The steps that have ended since the last call, at most a thousand, in order."""
        steps = list(self._model.steps)
        self._model.steps.clear()
        return steps

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
        failure: bytes | None = None,
        on_complete: Callable[[], None] = lambda: None,
    ) -> None:
        """Let the engine work on the request that has just come over this sink.

        `cut_at`: the token in whose place the answer breaks off, or `failure` is said and ends
        it; None: it is answered.
        """
        stream = Stream(sink=sink, ask=ask, on_complete=on_complete, cut_at=cut_at, failure=failure)
        stream.sequence = Sequence(
            prompt_tokens=ask.prompt_tokens,
            output_tokens=ask.output_tokens,
            arrival_s=self._pace.virtual_s(sink.stamp_s),
            block_keys=ask.block_keys,
            owner=stream,
        )
        if ask.watch is not None:
            ask.watch(stream.sequence)
        sink.is_busy = True
        sink.stream = stream
        self.in_flight += 1
        self._model.submit(stream.sequence)
        if ask.answer.head:
            sink.put(ask.answer.head)

    def abandon(self, stream: Stream) -> None:
        """The client has gone: when the engine sees it, what it still had to do falls away."""
        if not self._poll_s:
            self._drop(stream)
            return
        since_s = self._pace.now_s() - stream.sequence.arrival_s
        polls = math.floor(since_s / self._poll_s) + 1
        self._forsaken.append((stream.sequence.arrival_s + polls * self._poll_s, stream))

    def _drop(self, stream: Stream) -> None:
        self._model.cancel(stream.sequence)
        self._end(stream, "abort")

    def _drop_forsaken(self) -> None:
        """Give up the requests whose client's absence the engine has seen by now."""
        now_s, waiting = self._pace.now_s(), []
        for seen_s, stream in self._forsaken:
            if stream.sequence.is_complete:
                continue
            if seen_s <= now_s:
                self._drop(stream)
            else:
                waiting.append((seen_s, stream))
        self._forsaken = waiting

    def advance(self) -> float:
        """Send what is due; returns when the next step ends, 0.0 if it may have ended already."""
        if self._forsaken:
            self._drop_forsaken()
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
        """Give places, and send what an engine sends when it begins to work on a request."""
        for sequence in self._model.admitted:
            stream: Stream = sequence.owner
            self._slots.take(sequence, stream.ask.answer)
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
                self._break_off(stream)
            elif stream.sink.stream is stream:  # else its client has gone
                sent_s.append(monotonic())
                stream.sink.put(data)
        self.lateness.note(due_s, sent_s)
        self._ready = []
        for sequence in self._model.finish():
            if sequence.is_complete and sequence.owner is not None:
                self._complete(sequence.owner)

    def _break_off(self, stream: Stream) -> None:
        """End the answer in place of a token, if its client has not gone already."""
        sink = stream.sink
        if sink.stream is not stream:
            return
        if stream.failure is None:
            sink.stream = None
            self._drop(stream)
            sink.close()
        elif sink.put(stream.failure):
            self._model.cancel(stream.sequence)
            self._free(stream, "error")

    def _complete(self, stream: Stream) -> None:
        if stream.sink.stream is stream:
            self._free(stream, stream.ask.finish_reason)
        else:  # its client has gone, which the engine has not seen
            self._end(stream, stream.ask.finish_reason)

    def _free(self, stream: Stream, reason: str) -> None:
        """The answer has ended; its connection may bring the next request."""
        stream.sink.stream = None
        stream.sink.is_busy = False
        self._end(stream, reason)
        self._leak()
        stream.on_complete()

    def _end(self, stream: Stream, reason: str) -> None:
        self._slots.leave(stream.sequence)
        stream.sequence.owner = None  # no cycle is left: nothing collects them
        self.in_flight -= 1
        self.finished[reason] = self.finished.get(reason, 0) + 1
