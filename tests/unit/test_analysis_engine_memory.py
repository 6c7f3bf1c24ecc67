"""Where an engine's memory goes, with the origin of each figure; missing is never 0."""

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.analysis.engine_memory import kv_bytes_per_token
from harness.analysis.model import Amount, EngineMemory
from harness.report.memory import HEADS, memory_rows
from harness.report.write import write_report
from harness.run.model_memory import memory_facts
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import EngineIdentity, EngineSample, HostSample, LogFacts, Provenance

MIB = 2**20
HOST = (
    HostSample(t_s=1.0, cpu_total_ratio=0.1, engine_rss_bytes=600 * MIB),
    HostSample(t_s=99.0, cpu_total_ratio=0.1, engine_rss_bytes=700 * MIB),  # after the window
)


def facts(**model: Any) -> dict[str, Any]:
    machine = {"cpu_model": "Test CPU", "cores_allowed": [0, 1], "gpus": []}
    return {"machine": machine, "model": {"sha256": "m" * 64, **model}}


def memory_of(tmp_path: Path, *runs: dict[str, Any], host: Any = HOST) -> EngineMemory:
    stored = [
        store_run(
            tmp_path / str(block),
            make_info(block=block, **changes),
            [make_record()],
            host=host,
            engine=[EngineSample(t_s=1.0, kv_provenance=Provenance.DERIVED)],
        )
        for block, changes in enumerate(runs)
    ]
    (memory,) = summarise(stored).memory
    return memory


def test_what_the_engine_says_comes_first(tmp_path: Path) -> None:
    memory = memory_of(
        tmp_path,
        {
            "log": LogFacts(weights_bytes=100 * MIB, kv_bytes=50 * MIB, kv_capacity_tokens=2048),
            "identity": EngineIdentity(kv_capacity_tokens=4096),
            "facts": facts(weights_bytes=1, bytes=2, kv_bytes_per_token=3),
        },
    )
    assert memory.weights == Amount("its log", 100 * MIB, Provenance.MEASURED)
    assert memory.kv_pool == Amount("its log", 50 * MIB, Provenance.MEASURED)
    assert memory.kv_capacity_tokens == 4096
    assert memory.kv_metric is Provenance.DERIVED


def test_the_models_files_come_next_and_are_derived(tmp_path: Path) -> None:
    memory = memory_of(
        tmp_path,
        {
            "identity": EngineIdentity(kv_capacity_tokens=2048),
            "facts": facts(weights_bytes=90 * MIB, bytes=91 * MIB, kv_bytes_per_token=23_040),
        },
    )
    assert memory.weights == Amount("the model's tensors", 90 * MIB, Provenance.DERIVED)
    assert memory.kv_pool == Amount("2,048 tokens x 23,040 B", 2048 * 23_040, Provenance.DERIVED)
    only_size = memory_of(tmp_path / "b", {"facts": facts(bytes=91 * MIB)})
    assert only_size.weights == Amount("the model's file", 91 * MIB, Provenance.DERIVED)


def test_what_nobody_tells_is_not_exposed_and_never_zero(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, {}, host=())
    for amount in (memory.weights, memory.kv_pool, memory.rss_peak):
        assert (amount.value_bytes, amount.provenance) == (None, Provenance.NOT_EXPOSED)
    (row,) = memory_rows(summarise([store_run(tmp_path / "s", make_info(), [make_record()])]))
    assert [cell.text for cell in row.cells] == [
        "not exposed",
        "not exposed",
        "not exposed",
        "no GPU",
        "not exposed",
    ]
    assert {cell.exact for cell in row.cells} == {""}
    assert len(row.cells) == len(HEADS)


def test_the_peak_is_that_of_the_whole_run_and_of_all_runs(tmp_path: Path) -> None:
    memory = memory_of(tmp_path, {}, {})
    assert memory.run_ids == ("alpha-b0", "alpha-b1")
    assert memory.rss_peak.value_bytes == 700 * MIB
    assert memory.gpu_peak == Amount("no GPU")
    gpu = HostSample(t_s=1.0, cpu_total_ratio=0.1, gpu_memory_bytes=3 * MIB)
    on_gpu = memory_of(tmp_path / "gpu", {}, host=(gpu,))
    assert on_gpu.gpu_peak == Amount("in use on the watched GPUs", 3 * MIB, Provenance.MEASURED)


@pytest.mark.parametrize(
    ("word", "bytes_per_token"),
    [
        (None, 23_040),
        ("auto", 23_040),
        ("bf16", 23_040),
        ("fp8", 11_520),
        ("fp8_e4m3", 11_520),
        ("float32", 46_080),
        ("q8_0", 23_040 * 34 / 64),
        ("nvfp4", None),
    ],
)
def test_a_cached_element_is_as_large_as_its_type(
    word: str | None, bytes_per_token: float | None
) -> None:
    config = make_config(engine={"kv_dtype": word})
    info = make_info(config=config, facts=facts(kv_bytes_per_token=23_040))
    assert kv_bytes_per_token(info) == bytes_per_token
    assert kv_bytes_per_token(make_info(config=config)) is None


@pytest.mark.parametrize(
    ("engine", "form", "bytes_per_token"),
    [
        ({}, "GGUF", 23_040),
        ({}, "safetensors float32", 46_080),
        ({}, "safetensors bfloat16", 23_040),
        ({"dtype": "bfloat16"}, "safetensors float32", 23_040),
        ({"dtype": "auto"}, "safetensors float32", 46_080),
        ({"dtype": "float32", "kv_dtype": "fp8"}, "safetensors float32", 11_520),
    ],
)
def test_a_cache_is_of_the_type_that_the_engine_computes_in(
    engine: dict[str, Any], form: str, bytes_per_token: float
) -> None:
    info = make_info(
        config=make_config(engine=engine), facts=facts(kv_bytes_per_token=23_040, format=form)
    )
    assert kv_bytes_per_token(info) == bytes_per_token


def test_the_facts_of_a_models_folder(tmp_path: Path) -> None:
    config = (
        '{"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, '
        '"hidden_size": 576}'
    )
    (tmp_path / "config.json").write_text(config)
    assert memory_facts(tmp_path) == {"kv_bytes_per_token": 23_040}
    assert memory_facts(None) == {}
    (tmp_path / "m.gguf").write_bytes(b"GGUF and no more")
    assert memory_facts(tmp_path / "m.gguf") == {}
    assert memory_facts(tmp_path / "none.gguf") == {}


def test_the_page_shows_each_figure_with_its_origin(tmp_path: Path) -> None:
    info = make_info(facts=facts(weights_bytes=90 * MIB))
    run = store_run(tmp_path / "sweep", info, [make_record()], host=HOST)
    summary = summarise([run])
    page = write_report(summary, [run], tmp_path / "page.html").read_text()
    assert f'data-exact="{90 * MIB}"><span class="v">90.0 MiB</span>' in page
    assert "derived: the model&#39;s tensors" in page
    assert f'data-exact="{700 * MIB}"' in page
    assert "measured: resident memory of its processes" in page
    table = page[page.index("<h3>Memory</h3>") :].partition("</table>")[0]
    assert table.count(">not exposed<") == 2  # pool and capacity
