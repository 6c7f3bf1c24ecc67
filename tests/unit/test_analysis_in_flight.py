"""Requests under way, Little's law, and what of a window is start-up."""

from typing import Any

import numpy as np
import pytest

from harness.analysis.frame import request_frame, sample_frame
from harness.analysis.in_flight import in_flight_series, mean_in_flight
from harness.analysis.littles_law import balance, littles_law_doubts
from harness.analysis.steady import steady_doubts, steady_state
from harness.analysis.views import LevelView, level_view
from harness.testing.records import make_record
from harness.types import EngineSample, HostSample, Level, Phase, Record, Severity


def view_of(records: list[Record], end_s: float = 10.0, **level: Any) -> LevelView:
    values: dict[str, Any] = {"index": 0, "name": "x", "shape": "users", "users": 1, **level}
    return level_view(
        request_frame(records),
        Level(window_end_s=end_s, **values),
        engine=sample_frame([], EngineSample),
        host=sample_frame([], HostSample),
    )


def lasting(i: int, due_s: float, stay_s: float, **changes: Any) -> Record:
    return make_record(i, due_s=due_s, chunk_s=(due_s + stay_s / 2, due_s + stay_s), **changes)


def test_mean_in_flight_of_overlapping_requests() -> None:
    start, end = np.array([0.0, 1.0, 3.0, np.nan]), np.array([2.0, 5.0, 3.5, 1.0])
    edges = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    assert mean_in_flight(start, end, edges) == pytest.approx([1.0, 2.0, 1.25, 0.25])


def test_requests_in_flight_second_by_second() -> None:
    view = view_of([lasting(0, 0.0, 30.0), lasting(1, 10.0, 40.0)], 40.0)
    series = in_flight_series(view)
    assert series is not None
    assert series.tolist() == pytest.approx([1.0] * 10 + [2.0] * 20 + [1.0] * 10)


def users_in_turn(n: int, stay_s: float = 0.5, users: int = 4) -> list[Record]:
    """A closed load: each user's next request is due when the last has ended."""
    return [lasting(i, (i // users) * stay_s, stay_s) for i in range(n)]


def test_littles_law_holds_with_requests_that_outlive_the_window() -> None:
    found = balance(view_of(users_in_turn(84), 10.0, users=4))
    assert found is not None
    assert found.in_flight == pytest.approx(4.0)
    assert found.gap_ratio == pytest.approx(0.0)
    assert list(littles_law_doubts(view_of(users_in_turn(84), 10.0))) == []


def test_requests_in_the_wrong_phase_break_littles_law() -> None:
    records = users_in_turn(72)
    stray = [lasting(100 + i, 1.0, 4.0, phase=Phase.DRAIN) for i in range(8)]
    (doubt,) = littles_law_doubts(view_of(records + stray))
    assert doubt.code == "littles_law"
    assert doubt.what.startswith("6.80 requests were under way on average where arrivals times")
    assert "say 3.60" in doubt.what


def test_times_that_run_backwards_break_littles_law() -> None:
    records = users_in_turn(76)
    bent = [lasting(100 + i, 5.0, -3.0) for i in range(6)]
    assert [d.code for d in littles_law_doubts(view_of(records + bent))] == ["littles_law"]


def test_few_requests_show_nothing() -> None:
    few = [lasting(i, 1.0, 4.0, phase=Phase.DRAIN) for i in range(40)] + users_in_turn(9)
    assert balance(view_of(few)) is None
    assert list(littles_law_doubts(view_of(few))) == []


def evenly(n: int, window_s: float, stays_s: np.ndarray) -> list[Record]:
    return [lasting(i, i * window_s / n, float(stays_s[i])) for i in range(n)]


def test_a_shift_of_the_median_is_not_steady_and_tells_the_start_up() -> None:
    stays = np.r_[np.full(140, 1.0), np.full(260, 0.1)]
    view = view_of(evenly(400, 100.0, stays), 100.0)
    state = steady_state(view)
    assert state.cut_s == pytest.approx(40.0)  # 35 s and the last slow ones, in batches of 5 s
    assert state.unsettled == []
    (doubt,) = steady_doubts(view)
    assert (doubt.code, doubt.severity) == ("not_steady", Severity.WARN)
    assert "the median TTFT went from 500 ms to 50.0 ms" in doubt.what
    assert doubt.what.endswith(
        "of the window (40.0 %) are start-up (MSER-5, or two answers "
        "long), and the figures hold them"
    )


def test_a_short_start_up_is_a_note_and_no_request_is_left_out() -> None:
    """12 of 100 s are slow: too few to move the medians of the first third."""
    stays = np.r_[np.full(48, 0.4), np.full(352, 0.1)]
    view = view_of(evenly(400, 100.0, stays), 100.0)
    (doubt,) = steady_doubts(view)
    assert (doubt.code, doubt.severity) == ("start_up", Severity.NOTE)
    assert doubt.what.startswith("the first 15.0 s of the window (15.0 %) are start-up")
    assert doubt.advice == "measure longer: load.duration_s=150 or more"
    assert len(view.measured) == 400


def test_the_population_must_turn_over_once() -> None:
    """Answers of 30 s each, already under way when the window begins: twice 30 s are start-up."""
    before = [lasting(1000 + i, -30.0 + i, 30.0, phase=Phase.WARMUP) for i in range(30)]
    view = view_of(before + [lasting(i, i * 1.0, 30.0) for i in range(400)], 400.0)
    assert steady_state(view).cut_s == pytest.approx(60.0)
    (doubt,) = steady_doubts(view)
    assert doubt.what.startswith("the first 60.0 s of the window (15.0 %) are start-up")


def test_requests_that_pile_up_are_not_steady() -> None:
    stays = np.linspace(0.2, 40.0, 400)
    (doubt,) = steady_doubts(view_of(evenly(400, 100.0, stays), 100.0))
    assert doubt.code == "not_steady"
    assert "the requests in flight never settled" in doubt.what


@pytest.mark.parametrize("shape", ["ramp", "trace"])
def test_a_load_that_moves_by_itself_is_not_asked_to_stand_still(shape: str) -> None:
    stays = np.linspace(0.2, 40.0, 400)
    assert list(steady_doubts(view_of(evenly(400, 100.0, stays), 100.0, shape=shape))) == []
