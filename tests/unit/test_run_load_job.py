"""From a plan to calls on disk, levels and the warm-up."""

from dataclasses import replace
from pathlib import Path

import pytest

from adapters.openai import OpenAIAdapter
from harness.config import (
    EngineConf,
    LevelConf,
    LoadConf,
    ModelConf,
    RunConf,
    ScenarioConf,
    Shape,
    WarmupConf,
    WarmupMode,
)
from harness.errors import StoreWriteError
from harness.load.calls import Calls
from harness.load.job import LevelJob
from harness.plan.plan import build_plan
from harness.plan.tokenizer import ApproximateTokenizer
from harness.run.load_job import PreparedLoad, prepare_load, warmup_size

TOKENIZER = ApproximateTokenizer()
CONF = RunConf(
    engine=EngineConf(name="openai", max_running=3),
    model=ModelConf(name="tiny"),
    scenario=ScenarioConf(
        name="fixed", input_tokens=20, input_tokens_min=10, output_tokens=8, output_tokens_min=4
    ),
    load=LoadConf(
        shape=Shape.LEVELS,
        request_timeout_s=7.0,
        drain_timeout_s=8.0,
        settle_s=0.25,
        levels=[
            LevelConf(users=2, think_s=0.5, requests=5),
            LevelConf(shape=Shape.CONSTANT, rate_rps=2.0, duration_s=2.0),
        ],
    ),
)


def prepared(folder: Path, conf: RunConf = CONF, base_url: str = "http://h:81") -> PreparedLoad:
    adapter = OpenAIAdapter(conf.engine, conf.model)
    plan = build_plan(conf, TOKENIZER)
    return prepare_load(conf, plan, TOKENIZER, adapter, base_url=base_url, folder=folder)


def test_calls_and_levels_of_the_whole_run(tmp_path: Path) -> None:
    load = prepared(tmp_path)
    job = load.job
    assert (job.host, job.port) == ("h", 81)
    assert (job.request_timeout_s, job.drain_timeout_s, job.settle_s) == (7.0, 8.0, 0.25)
    assert job.levels == (
        LevelJob(name="warm-up", first=9, count=2, users=2, duration_s=120.0, is_warmup=True),
        LevelJob(name="users=2", first=0, count=5, users=2, think_s=0.5),
        LevelJob(name="constant=2/s", first=5, count=4, duration_s=2.0),
    )
    names = [(level.name, level.is_warmup, level.planned) for level in load.levels]
    assert names == [("warm-up", True, 2), ("users=2", False, 5), ("constant=2/s", False, 4)]
    assert [level.shape for level in load.levels] == ["users", "users", "constant"]
    assert [level.rate_rps for level in load.levels] == [None, None, 2.0]


def test_each_call_is_the_adapters_request_with_its_index(tmp_path: Path) -> None:
    load = prepared(tmp_path)
    plan = build_plan(CONF, TOKENIZER)
    requests = [request for level in plan.levels for request in level.requests()]
    adapter = OpenAIAdapter(CONF.engine, CONF.model)
    with Calls(tmp_path) as calls:
        assert len(calls) == 11
        for index, request in enumerate(requests):
            head, _, body = calls[index].data.partition(b"\r\n\r\n")
            assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nHost: h:81\r\n")
            assert f"X-Request-Id: {index}\r\n".encode() in head
            assert body == adapter.encode(request).body
            assert calls[index].due_s == request.due_s
            planned = load.planned(index)
            assert planned.input_tokens == request.input_tokens
            assert planned.output_tokens == request.max_output_tokens
        bodies = {calls[index].data.partition(b"\r\n\r\n")[2] for index in range(11)}
    assert len(bodies) == 11  # the warm-up's prompts are its own


def test_a_path_in_the_base_url_comes_before_the_adapters(tmp_path: Path) -> None:
    prepared(tmp_path, base_url="http://h:81/proxy")
    with Calls(tmp_path) as calls:
        assert calls[0].data.startswith(b"POST /proxy/v1/completions HTTP/1.1\r\nHost: h:81\r\n")


def test_without_a_port_it_is_80(tmp_path: Path) -> None:
    job = prepared(tmp_path, base_url="http://h").job
    assert (job.host, job.port) == ("h", 80)


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
    warm = prepared(tmp_path, steady).job.levels[0]
    assert (warm.count, warm.duration_s, warm.steady_ratio) == (120, 9.0, 0.02)


def test_a_disk_that_refuses_is_a_write_error(tmp_path: Path) -> None:
    with pytest.raises(StoreWriteError, match="no: cannot be written: No such file or directory"):
        prepared(tmp_path / "no")
