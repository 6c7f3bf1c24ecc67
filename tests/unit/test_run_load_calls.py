"""From planned levels to calls on disk, jobs of levels, their rows, and the warm-up."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from adapters.openai import OpenAIAdapter
from harness.config import (
    EngineConf,
    GroupConf,
    LevelConf,
    LoadConf,
    ModelConf,
    RunConf,
    ScenarioConf,
    Shape,
    SloConf,
    TraceConf,
    WarmupConf,
    WarmupMode,
)
from harness.errors import StoreWriteError
from harness.load.calls import Calls, Planned, PlannedCalls
from harness.load.decode import PlayedLevel
from harness.load.job import Lane, LevelJob, read_levels
from harness.plan.plan import Plan, build_plan
from harness.plan.probe import probe_level
from harness.plan.tokenizer import ApproximateTokenizer
from harness.run.load_calls import Written, warmup_size, write_levels, write_warmup
from harness.types import HttpCall, Request, Wire

TOKENIZER = ApproximateTokenizer()
SCENARIO = ScenarioConf(
    name="fixed", input_tokens=20, input_tokens_min=10, output_tokens=8, output_tokens_min=4
)
CONF = RunConf(
    engine=EngineConf(name="openai", max_running=3),
    model=ModelConf(name="tiny"),
    scenario=SCENARIO,
    load=LoadConf(
        shape=Shape.LEVELS,
        levels=[
            LevelConf(users=2, think_s=0.5, requests=5),
            LevelConf(shape=Shape.CONSTANT, rate_rps=2.0, duration_s=2.0),
        ],
    ),
)
ADAPTER = OpenAIAdapter(CONF.engine, CONF.model)


def written(folder: Path, conf: RunConf = CONF, base_url: str = "http://h:81") -> Written:
    levels = build_plan(conf, TOKENIZER).levels
    return write_levels(conf, levels, ADAPTER, folder, base_url=base_url, first_number=1)


def test_levels_become_jobs_and_rows(tmp_path: Path) -> None:
    found = written(tmp_path)
    plan = build_plan(CONF, TOKENIZER)
    assert found.job.calls == str(tmp_path)
    assert found.job.levels == (
        LevelJob(
            number=1,
            name="users=2",
            first=0,
            count=5,
            lanes=(Lane(first=0, count=5, users=2),),
            think_s=0.5,
        ),
        LevelJob(number=2, name="constant=2/s", first=5, count=4, duration_s=2.0),
    )
    assert found.rows == (
        PlayedLevel(
            name="users=2",
            shape="users",
            users=2,
            planned=5,
            think_s=0.5,
            plan_sha256=plan.levels[0].sha256,
        ),
        PlayedLevel(
            name="constant=2/s",
            shape="constant",
            rate_rps=2.0,
            planned=4,
            plan_sha256=plan.levels[1].sha256,
        ),
    )
    found.job.write(tmp_path / "levels.json")
    assert read_levels(tmp_path / "levels.json") == found.job


def requests_of(plan: Plan) -> list[Request]:
    return [request for level in plan.levels for request in level.requests()]


def test_each_call_is_the_adapters_request_with_its_index(tmp_path: Path) -> None:
    written(tmp_path)
    requests = requests_of(build_plan(CONF, TOKENIZER))
    assert len(requests) == 9
    with Calls(tmp_path) as calls:
        assert (calls.first, len(calls)) == (0, 9)
        for index, request in enumerate(requests):
            head, _, body = calls[index].data.partition(b"\r\n\r\n")
            assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: h:81\r\n")
            assert f"X-Request-Id: {index}\r\n".encode() in head
            assert body == ADAPTER.encode(request).body
            assert calls[index].due_s == request.due_s
            assert calls.planned(index) == Planned(
                input_tokens=request.input_tokens, output_tokens=request.max_output_tokens
            )
    assert [request.due_s for request in requests[5:]] == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize(
    ("base_url", "head"),
    [
        ("http://h:81/proxy", b"POST /proxy/v1/completions HTTP/1.1\r\nHost: h:81\r\n"),
        ("http://h:81/v1/", b"POST /v1/completions HTTP/1.1\r\nHost: h:81\r\n"),
        ("http://[::1]:8000", b"POST /v1/completions HTTP/1.1\r\nHost: [::1]:8000\r\n"),
        ("http://me:secret@h:81", b"POST /v1/completions HTTP/1.1\r\nHost: h:81\r\n"),
    ],
)
def test_calls_go_where_the_base_url_says(tmp_path: Path, base_url: str, head: bytes) -> None:
    written(tmp_path, base_url=base_url)
    with Calls(tmp_path) as calls:
        assert calls[0].data.startswith(head)
        assert not any(b"secret" in calls[index].data for index in range(len(calls)))


def test_a_key_is_never_in_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    conf = replace(CONF, launch=replace(CONF.launch, api_key_env="MY_KEY"))
    written(tmp_path, conf)
    found = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(found) == 3
    assert not any(b"sk-very-secret" in content for content in found)


def test_groups_get_lanes_of_their_own(tmp_path: Path) -> None:
    groups = [GroupConf(name="light"), GroupConf(name="heavy", output_tokens=40)]
    conf = replace(
        CONF,
        scenario=replace(SCENARIO, groups=groups),
        load=LoadConf(group_users={"light": 3, "heavy": 1}, requests=8),
    )
    found = written(tmp_path, conf)
    assert found.job.levels[0].lanes == (
        Lane(first=0, count=6, users=3, name="light"),
        Lane(first=6, count=2, users=1, name="heavy"),
    )
    assert found.rows[0].users == 4
    calls = PlannedCalls(tmp_path)
    assert [calls.planned(index).group for index in range(8)] == ["light"] * 6 + ["heavy"] * 2


def test_sessions_are_written_as_requests_with_empty_places(tmp_path: Path) -> None:
    conf = replace(
        CONF,
        scenario=replace(SCENARIO, turns=3, turns_min=1),
        load=LoadConf(shape=Shape.SESSIONS, users=2, sessions=8, think_s=0.1),
    )
    found = written(tmp_path, conf)
    (level,) = found.job.levels
    assert (level.count, level.turns_max, len(level.turns)) == (24, 3, 8)
    assert set(level.turns) == {1, 2, 3}
    assert level.lanes == (Lane(first=0, count=24, users=2),)
    assert found.rows[0].planned == sum(level.turns)
    (plan,) = build_plan(conf, TOKENIZER).levels
    requests = {request.index: request for request in plan.requests()}
    with Calls(tmp_path) as calls:
        assert len(calls) == 24
        for index in range(24):
            session, turn = divmod(index, 3)
            data = calls[index].data
            assert bool(data) == (turn < level.turns[session])
            if data:
                assert msgspec.json.decode(data, type=Request) == requests[index]
                planned = calls.planned(index)
                assert (planned.session, planned.turn) == (session, turn)


def test_what_was_done_to_a_trace_goes_to_its_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("time,input_tokens,output_tokens\n0,10,20\n2,200,80\n")
    conf = replace(CONF, load=LoadConf(shape=Shape.TRACE, trace=TraceConf(path=str(path))))
    found = written(tmp_path / "calls", conf)
    assert found.rows[0].trace is not None
    assert found.rows[0].trace["rows_played"] == 2
    assert found.job.levels[0].lanes == ()
    with Calls(tmp_path / "calls") as calls:
        assert [calls[index].due_s for index in range(2)] == [0.0, 2.0]


def test_a_probe_is_written_from_any_index(tmp_path: Path) -> None:
    conf = replace(CONF, load=LoadConf(shape=Shape.SEARCH), slo=SloConf(name="x", ttft_s=1.0))
    probe = probe_level(conf, TOKENIZER, number=4, rate_rps=5.0, first_index=70, duration_s=3.0)
    found = write_levels(conf, [probe], ADAPTER, tmp_path, base_url="http://h:81", first_number=4)
    (level,) = found.job.levels
    assert (level.number, level.first, level.count) == (4, 70, probe.count)
    with Calls(tmp_path) as calls:
        assert b"X-Request-Id: 70\r\n" in calls[70].data
        assert 69 not in calls
        assert 70 in calls


def test_a_grpc_call_is_written_as_one(tmp_path: Path) -> None:
    class GrpcAdapter(OpenAIAdapter):
        def encode(self, request: Request) -> HttpCall:
            return HttpCall(path="/pkg.Service/Call", body=b"\x01", wire=Wire.GRPC)

    levels = build_plan(CONF, TOKENIZER).levels[:1]
    adapter = GrpcAdapter(CONF.engine, CONF.model)
    write_levels(CONF, levels, adapter, tmp_path, base_url="http://h:81/p", first_number=0)
    with Calls(tmp_path) as calls:
        assert b"/pkg.Service/Call" in calls[0].data
        assert b"HTTP/1.1" not in calls[0].data
        assert calls[0].data.endswith(b"\x00\x00\x00\x00\x01\x01")


def warm(folder: Path, conf: RunConf = CONF) -> Written:
    return write_warmup(conf, TOKENIZER, ADAPTER, folder, base_url="http://h:81", first_index=9)


def test_the_warm_up_plays_prompts_of_its_own(tmp_path: Path) -> None:
    found = warm(tmp_path)
    assert found.job.levels == (
        LevelJob(
            number=0,
            name="warm-up",
            first=9,
            count=2,
            lanes=(Lane(first=9, count=2, users=2),),
            duration_s=120.0,
            is_warmup=True,
        ),
    )
    (row,) = found.rows
    assert (row.name, row.users, row.planned, row.is_warmup) == ("warm-up", 2, 2, True)
    measured = {ADAPTER.encode(one).body for one in requests_of(build_plan(CONF, TOKENIZER))}
    with Calls(tmp_path) as calls:
        bodies = {calls[index].data.partition(b"\r\n\r\n")[2] for index in (9, 10)}
    assert len(bodies) == 2
    assert not bodies & measured


def test_a_warm_up_is_no_larger_than_what_runs_together() -> None:
    assert warmup_size(CONF) == (2, 2)
    one = replace(CONF, engine=EngineConf(name="openai", max_running=1))
    assert warmup_size(one) == (1, 1)
    unknown = replace(CONF, engine=EngineConf(name="openai"))
    assert warmup_size(unknown) == (2, 2)
    steady = replace(CONF, warmup=WarmupConf(mode=WarmupMode.STEADY))
    assert warmup_size(steady) == (3, 120)


def test_a_steady_warm_up_may_end_by_itself(tmp_path: Path) -> None:
    steady = replace(CONF, warmup=WarmupConf(mode=WarmupMode.STEADY, max_s=9.0))
    (level,) = warm(tmp_path, steady).job.levels
    assert (level.count, level.duration_s, level.steady_ratio) == (120, 9.0, 0.02)


def test_a_disk_that_refuses_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreWriteError, match="cannot be written: Not a directory"):
        written(tmp_path / "file" / "calls")
