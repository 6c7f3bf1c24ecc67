"""The experiment that bakeoff grew from, rehearsed on emulators: all of it, marked, no evidence."""

from pathlib import Path

import pytest

from harness.store import StoredRun, open_runs
from harness.testing.command_line import CommandLine, Ended
from harness.types import Outcome

pytestmark = pytest.mark.timeout(400)

ENGINES = {"vllm", "tgi", "tensorrt_llm", "deepspeed_mii"}
LEVELS = "[{users: 1, requests: 3}, {users: 4, requests: 12}]"
SMALL = (
    *("load.duration_s=null", f"load.levels={LEVELS}", "load.settle_s=0.05", "repeats=1"),
    *("scenario.input_tokens=64", "scenario.output_tokens=12", "launch.emulate.speed=4"),
    "validity.max_lag_s=0.5",
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    folder = tmp_path_factory.mktemp("article")
    return CommandLine(cwd=folder, env={"BAKEOFF_CACHE": str(folder / "cache")})


@pytest.fixture(scope="module")
def ended(here: CommandLine) -> Ended:
    words = ("run", "experiment=article_a100", "launch=emulate", "model=llama2_7b,llama2_70b")
    return here(*words, *SMALL, timeout_s=350)


@pytest.fixture(scope="module")
def runs(here: CommandLine, ended: Ended) -> list[StoredRun]:
    assert ended.code == 0, ended.err
    return list(open_runs(here.cwd / "results" / "article_a100").runs)


def test_every_engine_plays_every_model(runs: list[StoredRun]) -> None:
    played = {(run.info.engine, run.info.model, run.info.config["engine"]["tp"]) for run in runs}
    sizes = (("llama-2-7b", 1), ("llama-2-70b", 8))
    assert played == {(engine, *size) for engine in ENGINES for size in sizes}
    for run in runs:
        assert run.info.outcome is Outcome.OK
        assert run.info.emulated
        rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
        assert [row["error"] for row in rows] == [None] * 15
        is_forced = run.info.engine != "tgi"
        assert all((row["output_tokens"] == 12) or not is_forced for row in rows)


def test_the_page_marks_it_and_nothing_is_recommended_from_it(
    here: CommandLine, runs: list[StoredRun]
) -> None:
    assert runs
    page = here.cwd / "page.html"
    assert here("report", "results", "--slo", "chat", "--out", str(page)).code == 0
    assert "never evidence" in Path(page).read_text()
    advice = here("recommend", "results", "--scenario", "fixed", "--slo", "chat")
    assert advice.code == 7
    assert "emulated" in advice.out + advice.err


def test_the_plan_shows_each_command_where_the_hardware_is_elsewhere(here: CommandLine) -> None:
    shown = here("plan", "experiment=article_a100", "model=llama2_70b")
    assert shown.code == 0, shown.err
    lines = [line for line in shown.out.splitlines() if "Llama-2-70b" in line]
    assert len(lines) == 4
    assert sum("docker run" in line for line in lines) == 3  # MII has no image
    assert sum('"device=0,1,2,3,4,5,6,7"' in line for line in lines) == 3
    refused = here("run", "experiment=article_a100", "model=llama2_70b", "engine=vllm")
    assert refused.code == 2
    assert "needs a GPU; none found" in refused.err
