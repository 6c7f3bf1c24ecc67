"""The format on disk, held by golden files: a change must be meant, and old runs stay readable.

`UPDATE_GOLDEN=1` rewrites the files and then fails, so that the change is looked at. A change of
what is stored needs a new SCHEMA_VERSION and a line in the history of `harness/store_format.py`.
"""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.store import StoredRun, read_run
from harness.store_format import SCHEMA_VERSION
from harness.testing.records import make_info, make_record, store_run
from harness.types import (
    Capabilities,
    Doubt,
    EngineIdentity,
    EngineSample,
    HostSample,
    Level,
    Provenance,
    RunInfo,
    Severity,
)

GOLDEN = Path(__file__).parent / "store"

INFO = make_info(
    "llamacpp",
    run_id="llamacpp-chat-b0-0123abcd",
    config={"engine": {"name": "llamacpp", "threads": None}, "seed": 1},
    levels=(
        Level(
            index=0,
            name="users=2",
            shape="users",
            users=2,
            window_start_s=0.5,
            window_end_s=10.5,
            drained_s=11.25,
            planned=40,
            exhausted=False,
        ),
        Level(index=1, name="poisson=2/s", shape="poisson", rate_rps=2.0, planned=20),
    ),
    doubts=(
        Doubt(
            code="few_samples",
            what="20 requests",
            advice="play longer",
            severity=Severity.WARN,
            where="users=2",
        ),
    ),
    identity=EngineIdentity(version="b11434", model="tiny", kv_capacity_tokens=2048),
    capabilities=Capabilities(
        forced_length=True,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.MEASURED,
        prefix_cache_off=True,
        tokenize_route=True,
        metrics=True,
    ),
    time_to_ready_s=1.5,
)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    records = [make_record(0), make_record(1, due_s=0.25, chunk_s=(0.75,), output_tokens=1)]
    engine = [EngineSample(t_s=0.5, running=2.0, kv_provenance=Provenance.NOT_EXPOSED)]
    host = [HostSample(t_s=0.5, cpu_total_ratio=0.5, client_rss_bytes=1024)]
    return store_run(tmp_path, INFO, records, engine=engine, host=host)


def held(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path} is rewritten: look at the difference, then run without UPDATE_GOLDEN")
    assert text == path.read_text(), "the format has changed: see the top of this file"


def test_run_json_has_the_held_form(run: StoredRun) -> None:
    held("run.json", (run.folder / "run.json").read_text())


@pytest.mark.parametrize("table", ["requests", "engine", "host"])
def test_tables_have_the_held_columns(run: StoredRun, table: str) -> None:
    schema = pq.read_schema(run.folder / f"{table}.parquet").remove_metadata()
    held(f"{table}.schema", "".join(f"{field.name}: {field.type}\n" for field in schema))


def test_tables_are_plain_parquet_that_others_read(run: StoredRun) -> None:
    for table in ("requests", "engine", "host"):
        meta = pq.ParquetFile(run.folder / f"{table}.parquet").metadata
        assert meta.row_group(0).column(0).compression == "ZSTD"
        assert meta.num_rows >= 1


@pytest.mark.skipif("UPDATE_GOLDEN" in os.environ, reason="it is just being rewritten")
def test_the_held_run_json_is_still_read(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes((GOLDEN / "run.json").read_bytes())
    info: RunInfo = read_run(tmp_path).info
    assert info.schema_version <= SCHEMA_VERSION
    assert info == INFO
