"""A rate is judged while it is played: not too early, not while its queue grows."""

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from time import monotonic

import pytest

from adapters.openai import OpenAIAdapter
from harness.config import EngineConf, ModelConf, SloConf
from harness.load.calls import Planned
from harness.load.decode import JournalDecoder, PlayedLevel
from harness.load.journal import JournalWriter, Kind
from harness.load.tail import JournalTail
from harness.run.live_probe import LiveProbe
from harness.search.sequential import SequentialTest
from harness.search.verdicts import Verdicts
from harness.types import ProbeEnd

SLO = SloConf(name="t", ttft_s=1.0, attainment_ratio=0.95)
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    b'data: {"choices": [{"text": "a", "finish_reason": "length"}]}\n\n'
)
AGO_S = 40.0  # the level began so long ago
EVERY_S = 0.2


class Played:
    """A journal of one level that runs since 40 s: one request each 0.2 s, answered or not."""

    def __init__(self, path: Path, ttft_s: Sequence[float | None]) -> None:
        self.path = path
        begin_s = monotonic() - AGO_S
        journal = JournalWriter(path)
        journal.append_json(Kind.OPEN, begin_s, 0.0, pid=1)
        journal.append_json(Kind.LEVEL_BEGIN, begin_s, 0, name="probe")
        for index, wait_s in enumerate(ttft_s):
            due_s = begin_s + index * EVERY_S
            journal.append(Kind.DUE, index, due_s, 0.0)
            journal.append(Kind.SENT, index, due_s)
            if wait_s is not None:
                journal.append(Kind.READ, index, due_s + wait_s, 0.0, ANSWER)
                journal.append(Kind.END, index, due_s + wait_s, 0.0, b"eof")
        journal.close()

    def probe(self, *, least_s: float = 30.0) -> LiveProbe:
        return LiveProbe(
            number=0,
            rate_rps=5.0,
            slo=SLO,
            decoder=JournalDecoder(
                adapter=OpenAIAdapter(EngineConf(name="openai"), ModelConf(name="m")),
                block=0,
                planned=lambda _: Planned(input_tokens=1, output_tokens=1),
                levels=[PlayedLevel(name="probe", shape="search")],
            ),
            tail=JournalTail(self.path),
            verdicts=Verdicts(slo=SLO, first_index=0, settle_s=0.0),
            test=SequentialTest(high_ratio=0.95, low_ratio=0.9, error_ratio=0.05),
            least_s=least_s,
        )


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Sequence[float | None]], Played]:
    numbers = count()
    return lambda ttft_s: Played(tmp_path / f"journal.{next(numbers)}.bin", ttft_s)


def test_a_rate_passes_when_the_test_is_sure(play: Callable[..., Played]) -> None:
    probe = play([0.1] * 100).probe()
    assert probe.should_stop()
    outcome = probe.finish(3)
    assert (outcome.has_passed, outcome.end, outcome.level) == (True, ProbeEnd.DECIDED, 3)
    assert (outcome.good, outcome.n) == (100, 100)


def test_it_cannot_pass_before_its_least_time_but_fail(play: Callable[..., Played]) -> None:
    assert not play([0.1] * 100).probe(least_s=60.0).should_stop()
    late = play([2.0] * 100).probe(least_s=60.0)
    assert late.should_stop()
    assert late.finish(0).has_passed is False


def test_who_still_waits_beyond_the_limit_has_missed_it(play: Callable[..., Played]) -> None:
    probe = play([None] * 100).probe()
    assert probe.should_stop()
    outcome = probe.finish(0)
    assert (outcome.has_passed, outcome.good, outcome.n) == (False, 0, 100)


def test_too_few_are_undecided_and_count_as_failed(play: Callable[..., Played]) -> None:
    probe = play([0.1] * 10).probe()
    assert not probe.should_stop()
    outcome = probe.finish(0)
    assert (outcome.has_passed, outcome.end, outcome.n) == (False, ProbeEnd.UNDECIDED, 10)


def test_a_growing_queue_does_not_pass(play: Callable[..., Played]) -> None:
    rising = [0.1 + 0.004 * index for index in range(200)]  # still within the limit of 1 s
    probe = play(rising).probe()
    probe._in_flight = [(float(second), second // 4) for second in range(40)]
    assert not probe.should_stop()
    steady = play([0.1] * 200).probe()
    steady._in_flight = [(float(second), second // 4) for second in range(40)]
    assert steady.should_stop()
