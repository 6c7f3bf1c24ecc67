"""The store: exact round trips, atomic, never overwritten, damaged and newer folders refused."""

import json
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from harness.errors import ConfigError, StoreFormatError, StoreWriteError
from harness.store import (
    finish_run,
    new_run_folder,
    open_runs,
    read_run,
    run_folders,
    write_info,
    write_plan,
    write_tables,
)
from harness.store_format import HOST_SCHEMA, SCHEMA_VERSION
from harness.testing.records import make_info, make_record, store_run
from harness.types import (
    Capabilities,
    Clock,
    Doubt,
    EngineIdentity,
    EngineSample,
    ErrorClass,
    HostSample,
    Outcome,
    Phase,
    Provenance,
    Record,
    RunInfo,
    Severity,
    TokensSource,
)

FULL = Record(
    request_id="7",
    index=7,
    level=1,
    block=2,
    phase=Phase.MEASURE,
    due_s=0.1 + 0.2,
    connect_s=1e-9,
    sent_s=0.30000000001,
    chunk_s=(0.5, 0.625, 1 / 3 + 1),
    chunk_tokens=(1, None, 3),
    stream_end_s=1.5,
    prompt_tokens=12,
    output_tokens=5,
    tokens_source=TokensSource.USAGE,
    planned_input_tokens=12,
    planned_output_tokens=5,
    clock=Clock.USER,
    headers_s=0.4,
    cached_tokens=0,
    reasoning_tokens=2,
    finish_reason="length",
    error=ErrorClass.STREAM_ERROR,
    error_message="Grüße, 世界",
    http_status=200,
    censored_s=9.75,
    user=3,
    reads=4,
    merged_reads=1,
    late_s=0.001,
    text_sha256="ab" * 32,
)
EMPTY = make_record(
    8,
    chunk_s=(),
    chunk_tokens=(),
    sent_s=None,
    prompt_tokens=None,
    output_tokens=None,
    tokens_source=None,
    planned_output_tokens=1,
    error=ErrorClass.TIMEOUT,
)
ENGINE = EngineSample(t_s=1.5, running=2.0, kv_usage_ratio=0.25, kv_provenance=Provenance.DERIVED)
HOST = HostSample(t_s=0.5, cpu_total_ratio=0.75, engine_rss_bytes=2**40, gpu_power_w=699.5)


def info_of(**changes: object) -> RunInfo:
    return make_info(
        capabilities=Capabilities(
            forced_length=True,
            token_id_prompts=False,
            usage_in_stream=True,
            kv_metric=Provenance.MEASURED,
            prefix_cache_off=True,
            tokenize_route=False,
            metrics=True,
        ),
        identity=EngineIdentity(version="b11434", kv_capacity_tokens=2048),
        doubts=(Doubt(code="c", what="w", advice="a", severity=Severity.NOTE, where="x"),),
        time_to_ready_s=3.25,
        diagnosis=None,
        **changes,
    )


def stored(sweep: Path, run_id: str = "alpha-b0", **changes: object) -> Path:
    info = info_of(run_id=run_id, **changes)
    folder = new_run_folder(sweep, info.run_id)
    write_tables(folder, records=[FULL], engine=[], host=[])
    return finish_run(folder, info)


def as_row(record: Record) -> dict[str, object]:
    row: dict[str, object] = msgspec.to_builtins(record)
    return {**row, "chunk_s": list(record.chunk_s), "chunk_tokens": list(record.chunk_tokens)}


def test_what_is_written_is_read_exactly(tmp_path: Path) -> None:
    run = store_run(tmp_path, info_of(), [FULL, EMPTY], engine=[ENGINE], host=[HOST])
    assert run.info == info_of()
    assert run.requests().to_pylist() == [as_row(FULL), as_row(EMPTY)]
    assert run.engine_samples().to_pylist() == [msgspec.to_builtins(ENGINE)]
    assert run.host_samples().to_pylist() == [msgspec.to_builtins(HOST)]


def test_figures_of_each_gpu_are_plain_lists(tmp_path: Path) -> None:
    sample = HostSample(
        t_s=1.0,
        cpu_total_ratio=0.5,
        gpu_throttle="hw_slowdown,sw_power_cap",
        gpu_ecc_corrected_total=2,
        gpu_each_util_ratio=(0.5, None),
        gpu_each_memory_bytes=(2**40, 7),
    )
    run = store_run(tmp_path, info_of(), [], host=[sample, HOST])
    first, second = run.host_samples().to_pylist()
    assert first["gpu_each_util_ratio"] == [0.5, None]
    assert first["gpu_each_memory_bytes"] == [2**40, 7]
    assert (first["gpu_throttle"], first["gpu_ecc_corrected_total"]) == (
        "hw_slowdown,sw_power_cap",
        2,
    )
    assert second["gpu_each_util_ratio"] is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_run_of_an_older_version_is_read_with_what_it_lacks_missing(
    tmp_path: Path, version: int
) -> None:
    info = replace(info_of(), schema_version=version)
    run = store_run(tmp_path, info, [FULL], host=[HOST])
    path = run.folder / "host.parquet"
    new = [name for name in HOST_SCHEMA.names if name.startswith("gpu_")][3:]
    pq.write_table(pq.read_table(path).drop_columns(new), path)
    (row,) = run.host_samples().to_pylist()
    assert row["gpu_power_w"] == 699.5
    assert {row[name] for name in new} == {None}
    assert len(new) == 8
    current = replace(run, info=replace(info, schema_version=SCHEMA_VERSION))
    with pytest.raises(StoreFormatError, match="lacks the columns"):
        current.host_samples()


def test_missing_stays_none_and_is_never_zero(tmp_path: Path) -> None:
    run = store_run(tmp_path, info_of(), [EMPTY])
    (row,) = run.requests().to_pylist()
    for name in ("sent_s", "prompt_tokens", "output_tokens", "tokens_source", "late_s", "user"):
        assert row[name] is None, name
    assert row["chunk_s"] == []


def test_tables_without_rows_keep_their_columns(tmp_path: Path) -> None:
    run = store_run(tmp_path, info_of(), [])
    for table in (run.requests(), run.engine_samples(), run.host_samples()):
        assert table.num_rows == 0
    assert len(run.requests().column_names) == 40


def test_a_run_is_hidden_until_it_is_whole(tmp_path: Path) -> None:
    info = info_of()
    folder = new_run_folder(tmp_path, info.run_id)
    assert folder.name == ".alpha-b0.part"
    assert (folder / "raw").is_dir()
    write_tables(folder, records=[FULL], engine=[], host=[])
    write_info(folder, info)
    assert list(run_folders(tmp_path)) == []
    with pytest.raises(ConfigError, match="holds no run"):
        open_runs(tmp_path)
    final = finish_run(folder, info)
    assert final == tmp_path / "alpha-b0"
    assert [path.name for path in tmp_path.iterdir()] == ["alpha-b0"]
    assert list(run_folders(tmp_path)) == [final]
    assert sorted(path.name for path in final.iterdir()) == [
        "engine.parquet",
        "host.parquet",
        "raw",
        "requests.parquet",
        "run.json",
    ]


def test_a_half_run_left_by_a_crash_is_thrown_away(tmp_path: Path) -> None:
    folder = new_run_folder(tmp_path, "x")
    (folder / "requests.parquet").write_bytes(b"half")
    again = new_run_folder(tmp_path, "x")
    assert again == folder
    assert [path.name for path in again.iterdir()] == ["raw"]


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    finals = [stored(tmp_path, started_at=f"2026-11-30T10:00:0{i}+00:00") for i in range(3)]
    assert [final.name for final in finals] == ["alpha-b0", "alpha-b0-2", "alpha-b0-3"]
    starts = [read_run(final).info.started_at[-8:-6] for final in finals]
    assert starts == ["00", "01", "02"]


def test_run_json_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store_run(tmp_path, info_of(), [FULL])
    before = (run.folder / "run.json").read_bytes()

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("harness.store.os.fsync", full)
    with pytest.raises(StoreWriteError) as caught:
        write_info(run.folder, replace(run.info, diagnosis="new"))
    assert str(caught.value) == (
        f"{run.folder}/run.json: cannot be written: No space left on device"
    )
    assert caught.value.exit_code == 6
    assert (run.folder / "run.json").read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_without_permission_is_a_write_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreWriteError, match="cannot be made: Permission denied"):
        new_run_folder(tmp_path / "sweep", "x")


def test_a_store_that_is_a_file_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(StoreWriteError, match=r"\.x\.part: cannot be made: Not a directory"):
        new_run_folder(tmp_path / "results", "x")
    with pytest.raises(StoreWriteError, match="cannot be written"):
        write_plan(tmp_path / "results", "abc", {})


def test_tables_that_cannot_be_written_are_a_write_error(tmp_path: Path) -> None:
    with pytest.raises(StoreWriteError, match="cannot be written"):
        write_tables(tmp_path / "gone", records=[], engine=[], host=[])


def test_a_folder_that_cannot_be_moved_into_place_is_a_write_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_run_folder(tmp_path, "alpha-b0")

    def refuse(_self: Path, _target: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreWriteError, match="alpha-b0: cannot be written: Read-only file system"):
        finish_run(folder, info_of())


def test_a_plan_is_kept_once_by_its_hash(tmp_path: Path) -> None:
    write_plan(tmp_path, "abc", {"seed": 1})
    path = tmp_path / "plans" / "abc.json"
    assert json.loads(path.read_text()) == {"seed": 1}
    write_plan(tmp_path, "abc", {"seed": 2})
    assert json.loads(path.read_text()) == {"seed": 1}
    assert [item.name for item in path.parent.iterdir()] == ["abc.json"]


def damage(folder: Path, content: str) -> str:
    (folder / "run.json").write_text(content)
    with pytest.raises(StoreFormatError) as caught:
        read_run(folder)
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert message.startswith(f"{folder}/run.json: ")
    return message.removeprefix(f"{folder}/run.json: ")


def test_a_newer_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = stored(tmp_path)
    content = json.loads((folder / "run.json").read_text())
    newer = json.dumps({**content, "schema_version": SCHEMA_VERSION + 1, "unheard": "of"})
    assert damage(folder, newer) == (
        f"schema_version={SCHEMA_VERSION + 1}, this bakeoff reads up to {SCHEMA_VERSION}; "
        "update bakeoff to read it"
    )


@pytest.mark.parametrize("version", ["0", "-1", '"1"', "null", "1.0"])
def test_a_version_that_was_never_written_is_no_run(tmp_path: Path, version: str) -> None:
    folder = stored(tmp_path)
    shown = {"null": "None", '"1"': "'1'"}.get(version, version)
    assert damage(folder, f'{{"schema_version": {version}}}') == (
        f"schema_version={shown}: not a run of bakeoff"
    )


@pytest.mark.parametrize("content", ["", "{", '{"schema_version": 1', "[1]", "null"])
def test_a_cut_file_is_damaged_and_says_what_to_do(tmp_path: Path, content: str) -> None:
    message = damage(stored(tmp_path), content)
    assert message.startswith("not valid JSON (")
    assert message.endswith(
        "); the run is damaged: move its folder away, it will be measured again"
    )


def test_a_field_of_a_wrong_kind_is_named(tmp_path: Path) -> None:
    folder = stored(tmp_path)
    content = json.loads((folder / "run.json").read_text())
    message = damage(folder, json.dumps({**content, "outcome": "splendid"}))
    assert message.endswith("; the run is damaged")
    assert "splendid" in message
    assert "$.outcome" in message
    del content["plan_hash"]
    assert "plan_hash" in damage(folder, json.dumps(content))


def test_unknown_fields_of_this_version_are_left_alone(tmp_path: Path) -> None:
    folder = stored(tmp_path)
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**content, "note": "mine"}))
    assert read_run(folder).info == info_of()


def test_a_folder_without_run_json_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError) as caught:
        read_run(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: not a run folder: No such file or directory: {tmp_path}/run.json"
    )


@pytest.mark.parametrize("content", [None, b"", b"PAR1 half a file"])
def test_a_damaged_table_says_so(tmp_path: Path, content: bytes | None) -> None:
    run = read_run(stored(tmp_path))
    path = run.folder / "requests.parquet"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(StoreFormatError) as caught:
        run.requests()
    message = str(caught.value)
    assert message.startswith(f"{path}: cannot be read (")
    assert message.endswith("); the run is damaged: move its folder away and measure it again")
    assert "\n" not in message


def test_a_table_without_a_column_names_it(tmp_path: Path) -> None:
    run = read_run(stored(tmp_path))
    path = run.folder / "requests.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["due_s", "level"]), path)
    with pytest.raises(StoreFormatError) as caught:
        run.requests()
    assert str(caught.value) == (
        f"{path}: lacks the columns ['level', 'due_s']; the run is damaged"
    )


def test_more_columns_than_ours_are_left_out(tmp_path: Path) -> None:
    run = read_run(stored(tmp_path))
    path = run.folder / "requests.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("mine", [[1]]), path)
    assert run.requests().column_names == table.column_names


def test_runs_are_found_at_every_height(tmp_path: Path) -> None:
    first = stored(tmp_path / "store" / "one", "a")
    second = stored(tmp_path / "store" / "two", "b")
    for root, expected in (
        (first, [first]),
        (first.parent, [first]),
        (tmp_path / "store", [first, second]),
    ):
        assert [run.folder for run in open_runs(root).runs] == expected
        assert open_runs(root).doubts == ()


def test_a_store_in_a_hidden_folder_is_read(tmp_path: Path) -> None:
    run = stored(tmp_path / ".cache" / "sweep", "a")
    assert [found.folder for found in open_runs(tmp_path / ".cache").runs] == [run]


def test_one_damaged_run_ends_a_strict_reading_and_is_a_doubt_in_a_lenient_one(
    tmp_path: Path,
) -> None:
    good, bad = stored(tmp_path, "a"), stored(tmp_path, "b")
    (bad / "run.json").write_text("{")
    with pytest.raises(StoreFormatError, match="not valid JSON"):
        open_runs(tmp_path)
    opened = open_runs(tmp_path, strict=False)
    assert [run.folder for run in opened.runs] == [good]
    (doubt,) = opened.doubts
    assert (doubt.code, doubt.where, doubt.severity) == ("damaged_run", "b", Severity.WARN)
    assert doubt.what.startswith(f"{bad}/run.json: not valid JSON")
    assert doubt.advice == "move the folder away; the run will be measured again"


def test_only_damaged_runs_is_a_doubt_each(tmp_path: Path) -> None:
    bad = stored(tmp_path, "b")
    (bad / "run.json").write_text("{")
    opened = open_runs(tmp_path, strict=False)
    assert (len(opened.runs), len(opened.doubts)) == (0, 1)


def test_no_folder_and_no_run_say_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        open_runs(tmp_path / "no")
    assert str(caught.value) == (
        f"{tmp_path}/no: no such folder; give a run, a sweep or a store folder"
    )
    with pytest.raises(ConfigError) as caught:
        open_runs(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: holds no run; measure one with: bakeoff run store={tmp_path}"
    )


def test_a_failed_run_without_records_is_kept_too(tmp_path: Path) -> None:
    info = info_of(outcome=Outcome.NOT_READY, levels=())
    run = store_run(tmp_path, replace(info, diagnosis="the port was taken"), [])
    assert run.info.outcome is Outcome.NOT_READY
    assert run.info.diagnosis == "the port was taken"
