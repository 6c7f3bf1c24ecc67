"""How a level is played: who is due when, what ends it, what is cut off. Through the child."""

from itertools import pairwise
from pathlib import Path

import pytest

from harness.load.job import Lane, LevelJob
from harness.load.journal import Kind
from harness.testing.played import Played, closed, play_job, write_job
from harness.testing.scripted import ScriptedServer, Step

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
ERROR = b"HTTP/1.1 500 Broken\r\nContent-Length: 2\r\n\r\n{}"
SCRIPTS = {
    "/fast": (ANSWER,),
    "/slow": (0.08, ANSWER),
    "/dies": (Step.CLOSE,),
    "/error": (ERROR,),
    "/silent": (Step.HANG,),
}


def due_of(played: Played, request: int) -> float:
    (due,) = played.of(Kind.DUE, request)
    return due.t_s


def sent_of(played: Played, request: int) -> float:
    (sent,) = played.of(Kind.SENT, request)
    return sent.t_s


def end_of(played: Played, request: int) -> float:
    (end,) = played.of(Kind.END, request)
    return end.t_s


OPEN_S = [round(0.02 * i, 3) for i in range(20)]
CLOSED, THINKING, LIMITED, SHORT, FAILING = range(1, 6)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Six levels of one job; the first request of each is at 0, 20, 26, 30, 130, 135."""
    paths = ["/fast"] * 18 + ["/slow"] * 2
    due_s: list[float | None] = [*OPEN_S]
    paths += ["/slow"] * 6 + ["/fast"] * 4 + ["/slow"] * 100 + ["/fast"] * 5 + ["/dies"] * 100
    due_s += [None] * (len(paths) - len(due_s))
    levels = (
        LevelJob(number=0, name="open", first=0, count=20, duration_s=0.5),
        closed("closed", 20, 6, 2),
        closed("thinking", 26, 4, 1, think_s=0.1),
        closed("limited", 30, 100, 2, duration_s=0.3),
        closed("short", 130, 5, 1, duration_s=5.0),
        closed("failing", 135, 100, 1, duration_s=0.5),
    )
    with ScriptedServer(SCRIPTS) as server:
        folder = tmp_path_factory.mktemp("stage")
        return play_job(write_job(folder, server.port, paths, levels, due_s=due_s, settle_s=0.05))


def test_an_open_load_is_due_by_its_plan_and_leaves_on_time(played: Played) -> None:
    start_s = played.level()["start_s"]
    assert start_s > played.zero_s
    lags = []
    for request, due_s in enumerate(OPEN_S):
        assert due_of(played, request) == pytest.approx(start_s + due_s, abs=1e-9)
        lags.append(sent_of(played, request) - due_of(played, request))
    assert all(lag_s >= 0 for lag_s in lags)
    assert sorted(lags)[10] < 0.005
    assert [e.payload for e in played.of(Kind.DUE) if e.request < 20] == [b""] * 20


def test_an_open_load_waits_for_no_answer(played: Played) -> None:
    assert sent_of(played, 19) < end_of(played, 18)
    level = played.level()
    assert level["window_end_s"] == pytest.approx(level["start_s"] + 0.5, abs=1e-9)
    assert (level["played"], level["exhausted"]) == (20, False)


def test_a_closed_user_is_due_again_when_its_last_answer_has_ended(played: Played) -> None:
    by_user: dict[bytes, list[int]] = {}
    for entry in played.of(Kind.DUE):
        if entry.extra == CLOSED:
            by_user.setdefault(entry.payload, []).append(entry.request)
    assert sorted(by_user) == [b"0", b"1"]
    assert sorted(r for requests in by_user.values() for r in requests) == list(range(20, 26))
    for requests in by_user.values():
        assert len(requests) == 3
        for before, after in pairwise(requests):
            assert due_of(played, after) == end_of(played, before)
            assert 0 <= sent_of(played, after) - due_of(played, after) < 0.05


def test_a_level_of_so_many_requests_ends_when_no_user_finds_one(played: Played) -> None:
    level = played.level(CLOSED)
    first_idle_s = min(end_of(played, 24), end_of(played, 25))
    assert first_idle_s <= level["window_end_s"] <= first_idle_s + 0.05
    assert (level["played"], level["exhausted"]) == (6, False)


def test_think_time_is_waited_before_a_user_is_due(played: Played) -> None:
    for request in (27, 28, 29):
        due_s = due_of(played, request)
        assert due_s == pytest.approx(end_of(played, request - 1) + 0.1, abs=1e-9)
        assert sent_of(played, request) >= due_s


def test_a_level_of_so_many_seconds_starts_nothing_after_them(played: Played) -> None:
    level = played.level(LIMITED)
    end_s = level["start_s"] + 0.3
    assert level["window_end_s"] == pytest.approx(end_s, abs=1e-9)
    requests = [e.request for e in played.of(Kind.DUE) if e.extra == LIMITED]
    assert requests == list(range(30, 30 + level["played"]))
    assert 6 <= len(requests) <= 10
    assert max(due_of(played, r) for r in requests) < end_s
    assert max(end_of(played, r) for r in requests) > end_s  # drained, not cut off
    assert {played.reason(r) for r in requests} == {"complete"}
    assert level["exhausted"] is False


def test_a_level_that_runs_out_of_requests_says_so_and_ends(played: Played) -> None:
    level = played.level(SHORT)
    assert (level["played"], level["exhausted"]) == (5, True)
    assert level["end_s"] - level["start_s"] < 1.0


def test_failed_requests_back_off_twice_as_long_each_time(played: Played) -> None:
    requests = [e.request for e in played.of(Kind.DUE) if e.extra == FAILING]
    waits = [due_of(played, b) - end_of(played, a) for a, b in pairwise(requests)]
    assert waits == pytest.approx([0.05, 0.1, 0.2][: len(waits)], abs=1e-9)
    assert len(requests) == 4
    assert played.level(FAILING)["end_s"] - played.level(FAILING)["start_s"] < 0.7


def test_levels_follow_one_another_with_a_pause(played: Played) -> None:
    levels = [played.level(number) for number in range(6)]
    for before, after in pairwise(levels):
        assert 0.05 <= after["start_s"] - before["end_s"] < 0.5


def test_a_steady_warm_up_ends_by_itself(tmp_path: Path) -> None:
    level = closed(
        "warm-up",
        0,
        400,
        2,
        duration_s=20.0,
        is_warmup=True,
        steady_ratio=0.2,
    )
    with ScriptedServer(SCRIPTS) as server:
        played = play_job(write_job(tmp_path, server.port, ["/slow"] * 400, [level]))
    assert 12 <= played.level()["played"] <= 40  # three rounds of two answers a user at least
    assert played.level()["end_s"] - played.level()["start_s"] < 3.0
    assert {e.payload for e in played.of(Kind.END)} == {b"complete"}


def test_what_is_not_drained_in_time_is_cut_off(tmp_path: Path) -> None:
    levels = (
        closed("closed", 0, 100, 2, duration_s=0.2),
        LevelJob(number=0, name="open", first=100, count=2, duration_s=0.2),
        closed("after", 102, 2, 1, think_s=60.0, duration_s=0.2),
    )
    paths = ["/silent"] * 102 + ["/fast"] * 2
    due_s = [None] * 100 + [0.0, 0.1] + [None] * 2
    with ScriptedServer(SCRIPTS) as server:
        job = write_job(
            tmp_path,
            server.port,
            paths,
            levels,
            due_s=due_s,
            drain_timeout_s=0.3,
            request_timeout_s=60.0,
        )
        played = play_job(job)
    for number, requests in ((0, (0, 1)), (1, (100, 101))):
        level = played.level(number)
        assert level["window_end_s"] == pytest.approx(level["start_s"] + 0.2, abs=1e-9)
        for request in requests:
            assert played.reason(request) == "cut off"
            assert end_of(played, request) - level["window_end_s"] == pytest.approx(0.3, abs=0.15)
    assert sorted(e.request for e in played.of(Kind.DUE)) == [0, 1, 100, 101, 102]
    assert played.reason(102) == "complete"
    after = played.level(2)  # its user thinks for a minute: the level does not wait for that
    assert after["end_s"] - after["start_s"] < 1.0


def test_an_answer_with_an_error_status_is_an_answer_to_the_client(tmp_path: Path) -> None:
    level = closed("errors", 0, 100, 1, duration_s=0.5)
    with ScriptedServer(SCRIPTS) as server:
        played = play_job(write_job(tmp_path, server.port, ["/error"] * 100, [level]))
        assert server.connections == 1
    assert {e.payload for e in played.of(Kind.END)} == {b"complete"}
    assert len(played.of(Kind.END)) == 4  # not hammered: at 0, 0.05, 0.15 and 0.35 s


def test_each_lane_has_its_own_users_and_its_own_calls(tmp_path: Path) -> None:
    lanes = (
        Lane(first=0, count=400, users=3, name="light"),
        Lane(first=400, count=100, users=1, name="heavy"),
    )
    level = LevelJob(number=0, name="mixed", first=0, count=500, lanes=lanes, duration_s=1.0)
    paths = ["/fast"] * 400 + ["/slow"] * 100
    with ScriptedServer({**SCRIPTS, "/fast": (0.01, ANSWER)}) as server:
        played = play_job(write_job(tmp_path, server.port, paths, [level]))
    users: dict[bytes, list[int]] = {}
    for entry in played.of(Kind.DUE):
        users.setdefault(entry.payload, []).append(entry.request)
    assert sorted(users) == [b"0", b"1", b"2", b"3"]
    light = sorted(request for user in (b"0", b"1", b"2") for request in users[user])
    assert light == list(range(len(light)))
    assert users[b"3"] == list(range(400, 400 + len(users[b"3"])))
    assert len(light) > 3 * len(users[b"3"]) >= 6
    assert (played.level()["exhausted"], played.level()["is_cut"]) == (False, False)


def test_a_lane_without_calls_ends_the_level_for_all(tmp_path: Path) -> None:
    lanes = (Lane(first=0, count=4, users=1), Lane(first=4, count=100, users=1))
    level = LevelJob(number=0, name="mixed", first=0, count=104, lanes=lanes)
    with ScriptedServer(SCRIPTS) as server:
        played = play_job(write_job(tmp_path, server.port, ["/slow"] * 104, [level]))
    others = [e.request for e in played.of(Kind.DUE) if e.request >= 4]
    assert [e.request for e in played.of(Kind.DUE) if e.request < 4] == [0, 1, 2, 3]
    assert 3 <= len(others) <= 6
    assert all(due_of(played, r) <= played.level()["window_end_s"] for r in others)
    assert {played.reason(r) for r in others} == {"complete"}


def test_many_arrivals_at_one_moment_are_all_started(tmp_path: Path) -> None:
    level = LevelJob(number=0, name="burst", first=0, count=60, duration_s=0.5)
    due_s = [0.1] * 30 + [0.2] * 30
    with ScriptedServer(SCRIPTS) as server:
        played = play_job(write_job(tmp_path, server.port, ["/slow"] * 60, [level], due_s=due_s))
    start_s = played.level()["start_s"]
    assert [due_of(played, r) - start_s for r in range(60)] == pytest.approx(due_s)
    assert min(sent_of(played, r) for r in range(30, 60)) > max(
        due_of(played, r) for r in range(30)
    )
    assert played.level()["client"]["peak_in_flight"] >= 30
    assert {played.reason(r) for r in range(60)} == {"complete"}


def test_what_is_due_at_the_end_or_after_it_is_not_sent(tmp_path: Path) -> None:
    level = LevelJob(number=0, name="open", first=0, count=4, duration_s=0.2)
    due_s = [0.0, 0.19, 0.2, 0.3]
    with ScriptedServer(SCRIPTS) as server:
        played = play_job(write_job(tmp_path, server.port, ["/fast"] * 4, [level], due_s=due_s))
    assert [e.request for e in played.of(Kind.DUE)] == [0, 1]
    assert played.level()["played"] == 2
