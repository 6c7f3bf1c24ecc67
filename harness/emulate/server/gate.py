"""Between a request that is understood and the engine: the faults that it can meet."""

import math
from collections.abc import Callable
from random import Random
from typing import Protocol

from harness.config import EmulateConf
from harness.emulate.server.pace import Pace
from harness.emulate.server.player import Player
from harness.emulate.server.stream import Leaver, Sink
from harness.emulate.wires.wire import Ask, EngineState


class Refusals(Protocol):
    """How a wire says no."""

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """The answer to a request too many."""
        ...

    def failed(self) -> bytes:
        """The answer to a request that the engine fails on."""
        ...


class Gate:
    """Lets requests through to the engine, whichever wire they came over.

    `state`: the engine's. `leaver`: who is told of answers that nobody waits for any more.
    """

    def __init__(self, conf: EmulateConf, player: Player, pace: Pace) -> None:
        self.state: EngineState = player
        self.leaver: Leaver = player
        self._conf = conf
        self._player = player
        self._pace = pace
        self._random = Random(f"faults {conf.seed}")

    @property
    def is_loading(self) -> bool:
        """Whether the engine cannot answer yet."""
        return self._pace.now_s() < self._conf.loading_s

    def admit(
        self, sink: Sink, ask: Ask, refusals: Refusals, *, on_complete: Callable[[], None]
    ) -> bytes | None:
        """Give it to the engine and return None, or return its refusal."""
        conf, in_flight = self._conf, self._player.in_flight
        if conf.max_in_flight is not None and in_flight >= conf.max_in_flight:
            wait_s = math.ceil(conf.retry_after_s / conf.speed)
            return refusals.overloaded(in_flight, wait_s)
        chance = self._random.random()  # one draw a request: the seed fixes which ones fail
        if chance < conf.error_ratio:
            return refusals.failed()
        is_cut = chance >= 1.0 - conf.cut_ratio
        is_failed = not is_cut and chance < conf.error_ratio + conf.stream_error_ratio
        cut_at = ask.output_tokens // 2 if is_cut or is_failed else None
        failure = ask.failure if is_failed else None
        self._player.take(sink, ask, cut_at=cut_at, failure=failure, on_complete=on_complete)
        return None
