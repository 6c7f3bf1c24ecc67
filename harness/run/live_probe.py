"""One rate of a search while it is played: reads along in the journal and decides when to stop."""

import time
from dataclasses import dataclass, field

from harness.config import SloConf
from harness.load.decode import JournalDecoder
from harness.load.tail import JournalTail
from harness.search.divergence import diverges, grows
from harness.search.sequential import SequentialTest
from harness.search.verdicts import Verdicts
from harness.types import Probe, ProbeEnd

_CHECK_S = 0.5  # the journal is flushed five times a second


@dataclass(slots=True, kw_only=True)
class LiveProbe:
    """Decides a level of open arrivals. `number`: its level; `decoder`, `tail`: of the whole run.

    `verdicts`: of this level's requests; `test`: when they are enough. It cannot pass before
    `least_s`, nor while queue and waits still grow.
    """

    number: int
    rate_rps: float
    slo: SloConf
    decoder: JournalDecoder
    tail: JournalTail
    verdicts: Verdicts
    test: SequentialTest
    least_s: float
    has_passed: bool | None = None
    end: ProbeEnd | None = None
    _ttft: list[tuple[float, float]] = field(default_factory=list)
    _in_flight: list[tuple[float, int]] = field(default_factory=list)
    _checked_s: float = 0.0

    def should_stop(self) -> bool:
        """Whether the level has said enough; asked ten times a second."""
        if self.end is not None:
            return True
        now_s = time.monotonic()
        if now_s - self._checked_s >= _CHECK_S:
            self._checked_s = now_s
            self._look(now_s)
        return self.end is not None

    def finish(self, level: int) -> Probe:
        """The probe's outcome, when the level is over. `level`: its row among the run's levels."""
        self.read_on()
        if self.end is None:
            self._decide(self.least_s)  # the level has come to its own end
        good = self.verdicts.good
        return Probe(
            rate_rps=self.rate_rps,
            level=level,
            has_passed=bool(self.has_passed),
            end=self.end or ProbeEnd.UNDECIDED,
            n=len(good),
            good=sum(good),
        )

    def read_on(self) -> None:
        """Take what the journal has new."""
        for entry in self.tail.entries():
            record = self.decoder.take(entry)
            if record is None:
                continue
            start_s = self.decoder.level_start_s(self.number)
            if start_s is not None and record.index >= self.verdicts.first_index:
                self.verdicts.take(record, start_s)
                if record.chunk_s:
                    due_s = record.due_s - start_s
                    self._ttft.append((due_s, record.chunk_s[0] - record.due_s))

    def _look(self, now_s: float) -> None:
        self.read_on()
        start_s = self.decoder.level_start_s(self.number)
        if start_s is None:
            return
        at_s = now_s - self.decoder.zero_s - start_s
        waiting = list(self.decoder.under_way(self.number))
        for index, due_s, first_s in waiting:
            if first_s is None:
                self.verdicts.waits(index, due_s - start_s, at_s)
        self._in_flight.append((at_s, len(waiting)))
        self._decide(at_s)
        limit_s, waits = self.slo.ttft_s, sorted(self._ttft)
        if self.end is None and diverges(at_s, self._in_flight, waits, ttft_limit_s=limit_s):
            self.has_passed, self.end = False, ProbeEnd.DIVERGED

    def _decide(self, at_s: float) -> None:
        verdict = self.test.decide(self.verdicts.good)
        is_early = at_s < self.least_s or grows(at_s, self._in_flight, sorted(self._ttft))
        if verdict is None or (verdict and is_early):
            return
        self.has_passed, self.end = verdict, ProbeEnd.DECIDED
