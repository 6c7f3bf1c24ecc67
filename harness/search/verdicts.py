"""Whether each request of a probe met the SLO, in due order, each as soon as it is known."""

from dataclasses import dataclass, field

from harness.config import SloConf
from harness.types import Record


def is_good(record: Record, slo: SloConf) -> bool:
    """Ok, and every limit met; an answer of one token has no TPOT. As `views.good_rows`."""
    if not record.is_ok or not record.chunk_s:
        return False
    first, last = record.chunk_s[0], record.chunk_s[-1]
    if slo.ttft_s is not None and first - record.due_s > slo.ttft_s:
        return False
    if slo.e2e_s is not None and last - record.due_s > slo.e2e_s:
        return False
    return slo.tpot_s is None or not _tpot_s(record) > slo.tpot_s


def _tpot_s(record: Record) -> float:
    """Time per output token after the first chunk; 0 where it is not defined."""
    in_first = record.chunk_tokens[0] if record.chunk_tokens else None
    later = (record.output_tokens or 0) - (1 if in_first is None else in_first)
    if later < 1 or len(record.chunk_s) < 2:  # noqa: PLR2004 a gap has two ends
        return 0.0
    return (record.chunk_s[-1] - record.chunk_s[0]) / later


@dataclass(slots=True, kw_only=True)
class Verdicts:
    """Good or not, in the order in which requests were due.

    A request is passed on only when all that were due before it are known: those that end early
    are the quick ones, and taken as they come they would flatter. What was due in the first
    `settle_s` is left out: the system was still filling up.
    """

    slo: SloConf
    first_index: int
    settle_s: float
    good: list[bool] = field(default_factory=list)
    _known: dict[int, bool | None] = field(default_factory=dict)
    _next: int = 0

    def take(self, record: Record, level_start_s: float) -> None:
        """A request has ended."""
        self._note(record.index, record.due_s - level_start_s, is_met=is_good(record, self.slo))

    def waits(self, index: int, due_s: float, now_s: float) -> None:
        """A request in flight has no token yet; both times since the level's start."""
        limits = [limit for limit in (self.slo.ttft_s, self.slo.e2e_s) if limit is not None]
        if limits and now_s - due_s > min(limits):
            self._note(index, due_s, is_met=False)

    def _note(self, index: int, due_s: float, *, is_met: bool) -> None:
        if index < self.first_index + self._next:
            return  # it was overdue, and has ended now
        self._known.setdefault(index, is_met if due_s >= self.settle_s else None)
        while self.first_index + self._next in self._known:
            value = self._known.pop(self.first_index + self._next)
            self._next += 1
            if value is not None:
                self.good.append(value)
