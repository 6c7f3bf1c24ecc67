"""Searches on a running engine: one request alone, a burst, then rate after rate.

Source of the procedure: method.md 2.1. A fresh run that confirms another's answer plays the rates
that it is given, lowest first, and stops at the first that fails.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median

from harness.config import RunConf
from harness.errors import InvalidRunError
from harness.run.live_probe import LiveProbe
from harness.run.search_player import SearchPlayer
from harness.search.bracket import Bracket
from harness.search.sequential import SequentialTest, default_low_ratio
from harness.search.verdicts import Verdicts
from harness.types import Probe, ProbeEnd, SearchResult

_FLOOR_REQUESTS = 4
_FIRST_BURST_USERS, _LAST_BURST_USERS = 8, 512
_BURST_GAIN = 1.15  # more users that give less than this are no longer a gain
_LOW_OF_BURST, _HIGH_OF_BURST = 0.2, 1.1
_SETTLE_FLOORS = 2.0  # the population has turned over once: method.md 3.1
_MOST_OF_EXPECTED = 6.0  # requests of a probe, in multiples of what the test needs on average


@dataclass(slots=True, kw_only=True)
class SearchRun:
    """One search on one server, or a fresh run that tries another's rates."""

    conf: RunConf
    player: SearchPlayer
    should_abort: Callable[[], bool]
    progress: Callable[[str], None]
    _probes: list[Probe] = field(default_factory=list)
    _floor_s: float | None = None
    _burst_rps: float | None = None

    def play(self) -> None:
        """Play until the bracket is closed; `result` says what came of it."""
        conf = self.conf.load.search
        self._floor_s = self._floor()
        if conf.confirm_rates:
            self._confirm(sorted(conf.confirm_rates))
            return
        bracket = self._first_bracket()
        error_ratio = conf.error_ratio / bracket.expected_probes()
        while (rate := bracket.next_rps()) is not None and len(self._probes) < conf.probes_max:
            probe = self._probe(rate, error_ratio)
            if probe.end is ProbeEnd.ABORTED:
                return
            bracket.take(rate, has_passed=probe.has_passed)

    def _confirm(self, rates: list[float]) -> None:
        error_ratio = self.conf.load.search.error_ratio / len(rates)
        for rate in rates:
            if not self._probe(rate, error_ratio).has_passed:
                return

    def result(self) -> SearchResult:
        """What was found so far."""
        conf = self.conf
        passed = [probe.rate_rps for probe in self._probes if probe.has_passed]
        failed = [probe.rate_rps for probe in self._probes if not probe.has_passed]
        test = self._test(conf.load.search.error_ratio)
        return SearchResult(
            slo=conf.slo.name,
            attainment_ratio=test.high_ratio,
            low_ratio=test.low_ratio,
            error_ratio=conf.load.search.error_ratio,
            probes=tuple(self._probes),
            low_rps=max(passed, default=None),
            high_rps=min(failed, default=None),
            floor_s=self._floor_s,
            burst_rps=self._burst_rps,
            confirms=conf.load.search.confirms or None,
        )

    def _floor(self) -> float:
        """End-to-end time of one request alone, median, in s."""
        records = self.player.closed("one request alone", users=1, requests=_FLOOR_REQUESTS)
        times = [r.chunk_s[-1] - r.due_s for r in records if r.is_ok and r.chunk_s]
        return median(times) if times else 0.0

    def _first_bracket(self) -> Bracket:
        conf = self.conf.load.search
        low, high = conf.rate_low_rps, conf.rate_high_rps
        if low is None or high is None:
            self._burst_rps = self._burst()
            if not self._burst_rps:
                raise InvalidRunError(
                    "load=search: no request of the burst was answered, so there is no rate to try"
                )
            low = low if low is not None else _LOW_OF_BURST * self._burst_rps
            high = high if high is not None else max(_HIGH_OF_BURST * self._burst_rps, low * 1.5)
        return Bracket(low_rps=low, high_rps=high, ratio=conf.ratio)

    def _burst(self) -> float:
        """Requests a second with ever more users at once, until more users give no more."""
        best, users = 0.0, _FIRST_BURST_USERS
        while users <= _LAST_BURST_USERS and not self.should_abort():
            records = self.player.closed(f"burst, users={users}", users=users, requests=2 * users)
            ends = [r.chunk_s[-1] for r in records if r.is_ok and r.chunk_s]
            span_s = max(ends, default=0.0) - min((r.due_s for r in records), default=0.0)
            rate = len(ends) / span_s if span_s > 0 else 0.0
            if rate <= best * _BURST_GAIN:
                return max(rate, best)
            best, users = rate, 2 * users
        return best

    def _probe(self, rate_rps: float, error_ratio: float) -> Probe:
        conf, test = self.conf, self._test(error_ratio)
        search = conf.load.search
        most = _MOST_OF_EXPECTED * test.expected_n()
        player, row = self.player, self.player.row
        live = LiveProbe(
            number=player.number,
            rate_rps=rate_rps,
            slo=conf.slo,
            decoder=player.decoder,
            tail=player.tail,
            verdicts=Verdicts(
                slo=conf.slo,
                first_index=player.next_index,
                settle_s=_SETTLE_FLOORS * (self._floor_s or 0.0),
            ),
            test=test,
            least_s=search.probe_min_s,
        )
        duration_s = min(search.probe_max_s, max(most / rate_rps, 2 * search.probe_min_s))
        player.rate(rate_rps, duration_s=duration_s, should_stop=live.should_stop)
        probe = live.finish(row)
        if self.should_abort():
            probe = replace(probe, end=ProbeEnd.ABORTED, has_passed=False)
        else:
            self._probes.append(probe)
        verdict = "passes" if probe.has_passed else f"fails ({probe.end.value})"
        self.progress(f"    {verdict}: {probe.good} of {probe.n} requests met the SLO")
        return probe

    def _test(self, error_ratio: float) -> SequentialTest:
        conf = self.conf
        high, low = conf.slo.attainment_ratio, conf.load.search.attainment_low_ratio
        return SequentialTest(
            high_ratio=high,
            low_ratio=default_low_ratio(high) if low is None else low,
            error_ratio=error_ratio,
        )
