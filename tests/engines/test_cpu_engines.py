"""`experiment=cpu_engines` in small: three real engines, one plan, and what may be compared."""

import json
from pathlib import Path

import pytest

from harness.store import StoredRun, open_runs
from harness.testing.command_line import CommandLine, Ended
from harness.types import Outcome

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

ENGINES = {"llamacpp", "vllm_cpu", "transformers"}
LEVELS = "[{shape: users, users: 1, requests: 4}, {shape: users, users: 4, requests: 16}]"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """With the user's own cache: each engine is installed once."""
    return CommandLine(cwd=tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def ended(here: CommandLine) -> Ended:
    words = ("run", "experiment=cpu_engines", "repeats=1", f"load.levels={LEVELS}")
    return here(*words, "load.duration_s=null", "validity.max_lag_s=1", timeout_s=1400)


@pytest.fixture(scope="module")
def runs(here: CommandLine, ended: Ended) -> dict[str, StoredRun]:
    assert ended.code in {0, 3}, ended.err  # 3: a machine so busy that the client was late
    found = open_runs(here.cwd / "results" / "cpu_engines").runs
    return {run.info.engine: run for run in found}


def test_each_engine_starts_from_its_recipe_and_answers_everything(
    runs: dict[str, StoredRun],
) -> None:
    assert set(runs) == ENGINES
    for name, run in runs.items():
        info = run.info
        assert info.outcome in {Outcome.OK, Outcome.INVALID}, (name, info.diagnosis)
        assert not info.emulated
        rows = [row for row in run.requests().to_pylist() if row["phase"] == "measure"]
        assert [row["error"] for row in rows] == [None] * 20, name
        assert {row["output_tokens"] for row in rows} == {24}, name
        assert len({row["prompt_tokens"] for row in rows}) == 1, name
        assert info.time_to_ready_s is not None
        assert info.start.up_s is not None
        assert info.start.first_answer_s is not None
        assert info.determinism is not None
        assert info.determinism.failed == 0


def test_one_plan_and_one_model_in_two_forms(runs: dict[str, StoredRun]) -> None:
    assert len({run.info.plan_hash for run in runs.values()}) == 1
    models = {name: run.info.facts["model"] for name, run in runs.items()}
    file = models["llamacpp"]
    assert file["format"] == "GGUF"
    for name in ("vllm_cpu", "transformers"):
        assert models[name]["format"] == "safetensors float32"
        assert models[name]["derived_from"]["sha256"] == file["sha256"]
    assert models["vllm_cpu"]["sha256"] == models["transformers"]["sha256"] != file["sha256"]


def test_what_each_engine_tells_is_kept_and_what_it_does_not_is_none(
    runs: dict[str, StoredRun],
) -> None:
    vllm, llama, plain = (runs[name] for name in ("vllm_cpu", "llamacpp", "transformers"))
    assert vllm.info.identity.version == "0.32.0"
    assert vllm.info.identity.kv_capacity_tokens == vllm.info.log.kv_capacity_tokens
    assert {row["kv_provenance"] for row in vllm.engine_samples().to_pylist()} == {"measured"}
    assert {row["kv_provenance"] for row in llama.engine_samples().to_pylist()} == {"derived"}
    assert plain.engine_samples().num_rows == 0
    assert plain.info.identity.kv_capacity_tokens is None
    totals = [row["generation_tokens_total"] for row in vllm.engine_samples().to_pylist()]
    assert max(totals) >= 20 * 24


def test_the_pair_with_the_same_weights_is_compared_and_the_other_is_not(
    here: CommandLine, runs: dict[str, StoredRun]
) -> None:
    folders = {name: str(run.folder) for name, run in runs.items()}

    def kinds(a: str, b: str) -> tuple[set[str], str]:
        ended = here("compare", folders[a], folders[b], "--json")
        verdicts = json.loads(ended.out)
        return {verdict["kind"] for verdict in verdicts}, ended.out

    alike, _ = kinds("vllm_cpu", "transformers")
    assert alike
    assert "NOT_COMPARABLE" not in alike
    apart, said = kinds("llamacpp", "vllm_cpu")
    assert apart == {"NOT_COMPARABLE"}
    assert "weights: " in said


def test_its_page_names_all_three(here: CommandLine, runs: dict[str, StoredRun]) -> None:
    assert runs
    page = here.cwd / "page.html"
    ended = here("report", "results/cpu_engines", "--slo", "cpu_small", "--out", str(page))
    assert ended.code == 0, ended.err
    text = Path(page).read_text()
    for name in ENGINES:
        assert name in text
