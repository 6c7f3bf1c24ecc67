"""Sessions: turns follow answers, and send what was really said. Through the child."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.config import EngineConf, ModelConf, Route
from harness.errors import ConfigError
from harness.load.job import Lane, LevelJob
from harness.load.journal import Kind
from harness.testing.played import Played, WrittenLoad, play_job, write_sessions
from harness.testing.talking import FAIL, REFUSE, TalkingServer
from harness.types import Request, Turn

ENGINE = {
    "engine": msgspec.to_builtins(EngineConf(name="openai", route=Route.CHAT)),
    "model": msgspec.to_builtins(ModelConf(name="m")),
    "mode": "attach",
}
TURNS = (3, 1, 2)
PLACES = 3


@pytest.fixture
def server() -> Iterator[TalkingServer]:
    with TalkingServer() as running:
        yield running


def requests(
    turns: tuple[int, ...], prompts: dict[int, str] | None = None, due_s: tuple[float, ...] = ()
) -> list[Request]:
    """A request for every place; places that no turn uses hold one that is never played."""
    return [
        Request(
            index=index,
            prompt=(prompts or {}).get(index, f"s{index // PLACES} t{index % PLACES}"),
            input_tokens=4,
            max_output_tokens=8,
            due_s=due_s[index // PLACES] if due_s and index % PLACES == 0 else None,
            session=index // PLACES,
            turn=index % PLACES,
            history=(Turn(role="system", text="be brief"),),
        )
        for index in range(len(turns) * PLACES)
    ]


def written(
    folder: Path, port: int, level: LevelJob, planned: list[Request], **settings: Any
) -> WrittenLoad:
    return write_sessions(folder, port, planned, [level], **ENGINE, **settings)


def level(turns: tuple[int, ...] = TURNS, *, users: int = 0, **settings: Any) -> LevelJob:
    count = len(turns) * PLACES
    lanes = (Lane(first=0, count=count, users=users),) if users else ()
    return LevelJob(
        number=0,
        name="sessions",
        first=0,
        count=count,
        lanes=lanes,
        turns=turns,
        turns_max=PLACES,
        **settings,
    )


def times(played: Played, kind: Kind) -> dict[int, float]:
    return {entry.request: entry.t_s for entry in played.of(kind)}


def test_a_turn_sends_what_was_really_said_before_it(tmp_path: Path, server: TalkingServer) -> None:
    played = play_job(written(tmp_path, server.port, level(users=1), requests(TURNS)))
    assert [e.request for e in played.of(Kind.DUE)] == [0, 1, 2, 3, 6, 7]
    third = server.told[2].messages
    assert [(m["role"], m["content"]) for m in third] == [
        ("system", "be brief"),
        ("user", "s0 t0"),
        ("assistant", "re: s0 t0"),
        ("user", "s0 t1"),
        ("assistant", "re: s0 t1"),
        ("user", "s0 t2"),
    ]
    assert [m["content"] for m in server.told[3].messages] == ["be brief", "s1 t0"]
    row = played.level()
    assert (row["played"], row["turns_skipped"], row["exhausted"], row["is_cut"]) == (
        6,
        0,
        False,
        False,
    )


def test_a_turn_is_due_think_time_after_the_answer_before(
    tmp_path: Path, server: TalkingServer
) -> None:
    played = play_job(written(tmp_path, server.port, level(users=1, think_s=0.1), requests(TURNS)))
    due_s, end_s, sent_s = (times(played, kind) for kind in (Kind.DUE, Kind.END, Kind.SENT))
    for before, after in pairwise([0, 1, 2, 3, 6, 7]):
        assert due_s[after] == pytest.approx(end_s[before] + 0.1, abs=1e-9)
        assert sent_s[after] >= due_s[after]
    assert {entry.payload for entry in played.of(Kind.DUE)} == {b"0"}


def test_users_play_sessions_side_by_side_to_the_end_of_each(
    tmp_path: Path, server: TalkingServer
) -> None:
    played = play_job(written(tmp_path, server.port, level(users=2), requests(TURNS)))
    assert sorted(e.request for e in played.of(Kind.DUE)) == [0, 1, 2, 3, 6, 7]
    last_s = max(times(played, Kind.END).values())
    assert played.level()["window_end_s"] >= last_s  # no session is broken off by another's end


def test_open_sessions_begin_when_they_are_due(tmp_path: Path, server: TalkingServer) -> None:
    planned = requests(TURNS, due_s=(0.0, 0.05, 0.1))
    played = play_job(written(tmp_path, server.port, level(think_s=0.2), planned))
    start_s, due_s = played.level()["start_s"], times(played, Kind.DUE)
    assert [due_s[index] - start_s for index in (0, 3, 6)] == pytest.approx([0.0, 0.05, 0.1])
    assert due_s[6] < due_s[1]  # the third begins while the first still thinks
    assert due_s[7] == pytest.approx(times(played, Kind.END)[6] + 0.2, abs=1e-9)
    assert played.level()["played"] == 6


@pytest.mark.parametrize("word", [FAIL, REFUSE])
def test_a_turn_that_fails_ends_its_session_and_the_rest_is_counted(
    tmp_path: Path, server: TalkingServer, word: str
) -> None:
    planned = requests(TURNS, {0: f"{word} at once"})
    played = play_job(written(tmp_path, server.port, level(users=1), planned))
    assert [e.request for e in played.of(Kind.DUE)] == [0, 3, 6, 7]
    assert (played.level()["played"], played.level()["turns_skipped"]) == (4, 2)


def test_a_long_think_pause_does_not_hold_a_level_open(
    tmp_path: Path, server: TalkingServer
) -> None:
    for users in (0, 1):
        folder = tmp_path / str(users)
        planned = requests(TURNS, due_s=(0.0, 0.0, 0.0))
        ending = level(users=users, think_s=60.0, duration_s=0.3)
        played = play_job(written(folder, server.port, ending, planned))
        row = played.level()
        assert row["window_end_s"] == pytest.approx(row["start_s"] + 0.3, abs=1e-9)
        assert row["end_s"] - row["start_s"] < 2.0
        assert row["played"] == (1 if users else 3)
        assert row["turns_skipped"] == 0


def test_users_without_sessions_end_a_timed_level_early(
    tmp_path: Path, server: TalkingServer
) -> None:
    ending = level(users=1, duration_s=30.0)
    played = play_job(written(tmp_path, server.port, ending, requests(TURNS)))
    assert (played.level()["played"], played.level()["exhausted"]) == (6, True)
    assert played.level()["end_s"] - played.level()["start_s"] < 10.0


def test_an_engine_that_is_not_known_is_named(tmp_path: Path, server: TalkingServer) -> None:
    load = write_sessions(tmp_path, server.port, requests(TURNS), [level(users=1)])
    with pytest.raises(ConfigError, match="engine"):
        play_job(load)
