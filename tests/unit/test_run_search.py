"""A whole search against a queue that is written into the journal instead of being waited for."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from harness.config import (
    EngineConf,
    LaunchConf,
    LaunchMode,
    LoadConf,
    ModelConf,
    RunConf,
    ScenarioConf,
    SearchConf,
    Shape,
    SloConf,
)
from harness.load.calls import Calls, Planned, PlannedCalls
from harness.load.decode import PlayedLevel
from harness.load.job import LevelJob
from harness.load.journal import JournalWriter, Kind
from harness.run.load_calls import Written
from harness.run.outcome import JobResult
from harness.run.preflight import prepare
from harness.run.search_player import SearchPlayer
from harness.run.search_run import SearchRun
from harness.search.sequential import SequentialTest
from harness.store import finish_run, new_run_folder, write_tables
from harness.sweep.confirm import confirming
from harness.testing.records import make_info
from harness.types import Outcome, Probe, ProbeEnd, SearchResult

SERVICE_S = 0.2  # one at a time: the queue carries 5 requests/s
BODY = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def token(text: str, finish: str | None) -> bytes:
    choice = {"text": text, "finish_reason": finish}
    return b"data: %s\n\n" % json.dumps({"choices": [choice]}).encode()


class Queue:
    """Plays levels as a server with one slot would, at once: only the journal's times pass."""

    def __init__(self, path: Path) -> None:
        self.journal = JournalWriter(path)
        self.journal.append_json(Kind.OPEN, 0.0, 0.0, pid=1)
        self.levels: list[PlayedLevel] = []
        self.calls: list[PlannedCalls] = []
        self.rates: list[float | None] = []
        self.now_s = 0.0

    def planned(self, index: int) -> Planned:
        return next(calls.planned(index) for calls in self.calls if index in calls)

    def play(self, written: Written, should_stop: Callable[[], bool] | None = None, /) -> None:
        self.levels += written.rows
        self.calls.append(PlannedCalls(Path(written.job.calls)))
        (level,), (row,) = written.job.levels, written.rows
        if should_stop is not None:
            self.rates.append(row.rate_rps)
        start_s = self.now_s + 1.0
        self.journal.append_json(Kind.LEVEL_BEGIN, start_s, level.number, name=level.name)
        with Calls(Path(written.job.calls)) as calls:
            for index, due_s in self._due(level, calls, start_s):
                self._answer(index, due_s, level.number)
        end = {"start_s": start_s, "window_end_s": self.now_s, "played": level.count}
        self.journal.append_json(Kind.LEVEL, self.now_s, level.number, **end, exhausted=False)
        self.journal.flush()

    def _due(self, level: LevelJob, calls: Calls, start_s: float) -> Iterator[tuple[int, float]]:
        self.now_s = start_s
        ends = [start_s] * level.users  # a user's next request follows its last answer
        for index in range(level.first, level.first + level.count):
            due_s = calls[index].due_s
            yield index, (ends.pop(0) if due_s is None else start_s + due_s)
            ends.append(self.now_s)

    def _answer(self, index: int, due_s: float, number: int) -> None:
        self.now_s = max(self.now_s, due_s) + SERVICE_S
        for kind, t_s, extra, data in (
            (Kind.DUE, due_s, float(number), b""),
            (Kind.SENT, due_s, 0.0, b""),
            (Kind.READ, self.now_s - 0.01, 0.0, BODY + token("a", None)),
            (Kind.READ, self.now_s, 0.0, token("b", "length")),
            (Kind.END, self.now_s, 0.0, b"eof"),
        ):
            self.journal.append(kind, index, t_s, extra, data)


def conf_of(store: Path, **changes: object) -> RunConf:
    search = SearchConf(ratio=1.25, attainment_low_ratio=0.9)
    return RunConf(
        engine=EngineConf(name="openai"),
        model=ModelConf(name="tiny"),
        scenario=ScenarioConf(name="fixed", input_tokens=10, output_tokens=2),
        load=LoadConf(shape=Shape.SEARCH, search=replace(search, **changes)),
        slo=SloConf(name="quick", ttft_s=1.0, attainment_ratio=0.95),
        launch=LaunchConf(mode=LaunchMode.ATTACH, base_url="http://127.0.0.1:9"),
        store=str(store),
        name="sweep",
    )


def searched(conf: RunConf, folder: Path) -> tuple[SearchResult, Queue]:
    folder.mkdir(exist_ok=True)
    queue = Queue(folder / "journal.bin")
    prepared = prepare(conf, lambda _: None)
    player = SearchPlayer(
        prepared=prepared,
        base_url="http://127.0.0.1:9",
        folder=folder,
        journal=folder / "journal.bin",
        levels=queue.levels,
        calls=queue.calls,
        play_written=queue.play,
        planned=queue.planned,
    )
    search = SearchRun(
        conf=conf, player=player, should_abort=lambda: False, progress=lambda _: None
    )
    search.play()
    return search.result(), queue


def test_the_bracket_closes_on_what_the_queue_carries(tmp_path: Path) -> None:
    result, queue = searched(conf_of(tmp_path), tmp_path / "raw")
    assert result.floor_s == pytest.approx(SERVICE_S, abs=0.01)
    assert result.burst_rps == pytest.approx(5.0, rel=0.05)
    assert result.low_rps is not None
    assert result.high_rps is not None
    assert 2.0 < result.low_rps < result.high_rps < 5.0  # P95 of waiting below 1 s
    assert result.high_rps / result.low_rps <= 1.25 * (1 + 1e-9)
    assert [probe.rate_rps for probe in result.probes] == pytest.approx(queue.rates)
    assert {probe.end for probe in result.probes} <= {ProbeEnd.DECIDED, ProbeEnd.UNDECIDED}
    assert all(probe.n > 20 for probe in result.probes if probe.end is ProbeEnd.DECIDED)
    assert (result.slo, result.attainment_ratio, result.low_ratio) == ("quick", 0.95, 0.9)
    names = [level.name for level in queue.levels]
    assert names[:2] == ["one request alone", "burst, users=8"]
    assert {level.shape for level in queue.levels} == {"search"}


def test_no_prompt_is_used_twice_on_one_server(tmp_path: Path) -> None:
    _, queue = searched(conf_of(tmp_path), tmp_path / "raw")
    ranges = [(calls.first, calls.first + len(calls)) for calls in queue.calls]
    assert ranges == sorted(ranges)
    assert all(a[1] == b[0] for a, b in pairwise(ranges))


def test_given_rates_need_no_burst(tmp_path: Path) -> None:
    conf = conf_of(tmp_path, rate_low_rps=1.0, rate_high_rps=1.5, probes_max=4)
    result, queue = searched(conf, tmp_path / "raw")
    assert result.burst_rps is None
    assert queue.levels[0].name == "one request alone"
    assert len(result.probes) == 4  # both guesses were too low, and the probes ran out
    assert result.probes[0].has_passed


def test_a_fresh_run_tries_both_ends_and_stops_at_a_fail(tmp_path: Path) -> None:
    conf = conf_of(tmp_path, confirm_rates=[20.0, 1.0, 30.0], confirms="s", confirm_number=1)
    result, _ = searched(conf, tmp_path / "raw")
    assert [(probe.rate_rps, probe.has_passed) for probe in result.probes] == [
        (1.0, True),
        (20.0, False),
    ]
    assert result.confirms == "s"


def stored(folder: Path, search: SearchResult | None) -> JobResult:
    info = make_info("a", run_id="s", search=search)
    part = new_run_folder(folder, "s")
    write_tables(part, records=[], engine=[], host=[])
    final = finish_run(part, info)
    return JobResult(run_id="s", folder=final, outcome=Outcome.OK, exit_code=0)


FOUND = SearchResult(slo="quick", attainment_ratio=0.95, low_ratio=0.9, error_ratio=0.05)


def outcome(rate_rps: float, *, passed: bool) -> Probe:
    return Probe(
        rate_rps=rate_rps, level=0, has_passed=passed, end=ProbeEnd.DECIDED, n=9, good=9 * passed
    )


def searched_so(*probes: Probe) -> SearchResult:
    return replace(FOUND, probes=probes)


def test_fresh_runs_follow_an_answer_that_does_not_hold(tmp_path: Path) -> None:
    """3/s passes in the search and in one fresh run, fails in another: 2/s takes its place."""
    conf = conf_of(tmp_path, confirm_runs=2)
    probes = [outcome(2, passed=True), outcome(3, passed=True), outcome(4, passed=False)]
    fresh = confirming(conf, stored(tmp_path / "s", searched_so(*probes)))
    one = next(fresh)
    asked = [one.load.search.confirm_rates]
    assert (one.load.search.confirms, one.load.search.confirm_number) == ("s", 1)
    for number, passes in enumerate(([True, False], [False], [True, False], [True, False])):
        rates = asked[-1]
        said = [outcome(r, passed=p) for r, p in zip(rates, passes, strict=False)]
        try:
            asked.append(
                fresh.send(
                    stored(tmp_path / str(number), searched_so(*said))
                ).load.search.confirm_rates
            )
        except StopIteration:
            break
    assert asked == [[3, 4], [3, 4], [2, 4], [2, 4]]
    assert number == 3  # two fresh runs agree with 2/s and, of all of them, three with 4/s


def test_an_upper_end_that_does_not_hold_is_followed_upwards(tmp_path: Path) -> None:
    conf = conf_of(tmp_path, confirm_runs=1)
    probes = [outcome(2, passed=True), outcome(4, passed=False)]
    fresh = confirming(conf, stored(tmp_path / "s", searched_so(*probes)))
    assert next(fresh).load.search.confirm_rates == [2, 4]
    said = [outcome(2, passed=True), outcome(4, passed=True)]
    two = fresh.send(stored(tmp_path / "1", searched_so(*said)))
    assert two.load.search.confirm_rates == [2, 5]  # 4 x the ratio of 1.25


def test_only_a_search_that_found_something_is_confirmed(tmp_path: Path) -> None:
    conf = conf_of(tmp_path, confirm_runs=2)
    result = stored(tmp_path / "a", searched_so(outcome(3, passed=True)))
    (first,) = [next(confirming(conf, result))]
    assert list(confirming(first, result)) == []  # a fresh run is not confirmed itself
    assert list(confirming(conf, replace(result, exit_code=3))) == []
    none = stored(tmp_path / "b", searched_so(outcome(3, passed=False)))
    assert list(confirming(conf, none)) == []
    assert list(confirming(conf, stored(tmp_path / "c", None))) == []
    plain = replace(conf, load=LoadConf(users=1, requests=1))
    assert list(confirming(plain, result)) == []


def test_the_error_is_shared_out_over_the_probes() -> None:
    one = SequentialTest(high_ratio=0.95, low_ratio=0.9, error_ratio=0.05)
    shared = SequentialTest(high_ratio=0.95, low_ratio=0.9, error_ratio=0.05 / 4)
    assert shared.expected_n() > one.expected_n()
