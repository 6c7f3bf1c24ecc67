import hashlib
import json
import os
from pathlib import Path

import pytest

from harness.engine.facts import hardware_label, machine_facts, numa_nodes
from harness.engine.model_file import check_model_file, file_sha256, model_facts
from harness.errors import ConfigError


def test_facts_of_this_machine_can_be_kept_as_json() -> None:
    facts = machine_facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["cores_allowed"] == sorted(os.sched_getaffinity(0))
    assert facts["cores_logical"] >= len(facts["cores_allowed"]) >= 1
    assert facts["memory_bytes"] > 2**28
    assert facts["kernel"] == os.uname().release
    assert len(facts["load_average"]) == 3


def test_numa_nodes_are_the_kernels(tmp_path: Path) -> None:
    for node, cores in ((0, "0-15,32-47\n"), (10, "16-31\n")):
        folder = tmp_path / f"node{node}"
        folder.mkdir()
        (folder / "cpulist").write_text(cores)
        (folder / "distance").write_text("10 21\n")
    (tmp_path / "node0" / "meminfo").write_text("Node 0 MemTotal:       1024 kB\nNode 0 x: 1\n")
    first, second = numa_nodes(tmp_path)
    assert first == {
        "node": 0,
        "cores": "0-15,32-47",
        "memory_bytes": 2**20,
        "distances": [10, 21],
    }
    assert (second["node"], second["memory_bytes"]) == (10, None)
    assert numa_nodes(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        ({"gpus": [{"name": "NVIDIA H200"}]}, "NVIDIA H200"),
        ({"gpus": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}]}, "2 x NVIDIA H200"),
        ({"gpus": [{"name": "A"}, {"name": "B"}, {"name": "A"}]}, "2 x A + B"),
        ({"gpus": [{"name": None}]}, "unknown GPU"),
        (
            {
                "gpus": [],
                "cpu_model": "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz",
                "cores_allowed": [0, 1],
                "cores_logical": 8,
            },
            "Intel Xeon Platinum 8488C, 2 cores",
        ),
        (
            {"cpu_model": "AMD EPYC 9654 96-Core Processor", "cores_logical": 1},
            "AMD EPYC 9654 96-Core, 1 core",
        ),
        ({}, "unknown CPU"),
    ],
)
def test_a_machine_in_a_few_words(facts: dict[str, object], label: str) -> None:
    assert hardware_label(facts) == label


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_hash_is_computed_again_only_after_a_change(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF1")
    first = file_sha256(path)
    assert first == hashlib.sha256(b"GGUF1").hexdigest()
    status = path.stat()
    path.write_bytes(b"GGUF2")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_sha256(path) == first  # same size and time: taken from the cache
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert file_sha256(path) == hashlib.sha256(b"GGUF2").hexdigest()
    assert model_facts(path) == {
        "file": "m.gguf",
        "bytes": 5,
        "sha256": hashlib.sha256(b"GGUF2").hexdigest(),
    }


def test_a_cache_that_cannot_be_written_costs_only_time(cache: Path, tmp_path: Path) -> None:
    cache.write_text("a file where the folder should be")
    (tmp_path / "m").write_bytes(b"x")
    assert file_sha256(tmp_path / "m") == hashlib.sha256(b"x").hexdigest()


def test_a_model_file_that_cannot_be_one(tmp_path: Path) -> None:
    good, empty, wrong = (tmp_path / name for name in ("good", "empty", "wrong"))
    good.write_bytes(b"GGUF\x03\0\0\0more")
    empty.touch()
    wrong.write_bytes(b"<html>login")
    check_model_file(good)
    for path, words in (
        (tmp_path / "none.gguf", "no such file; give the path of a .gguf file"),
        (tmp_path, "a folder; give the path of a .gguf file in it"),
        (empty, "an empty file; fetch the model again"),
        (
            wrong,
            (
                "not a GGUF file: it begins with b'<html>lo', not b'GGUF'; give a .gguf file, "
                "or fetch it again if the download was cut or redirected"
            ),
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            check_model_file(path)
        assert str(caught.value) == f"model.path={path}: {words}"
