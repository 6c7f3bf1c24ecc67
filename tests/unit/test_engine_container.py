import json
import os
from pathlib import Path

import pytest

from harness.config import ImageConf
from harness.engine.container import docker, ensure_image, hub_cache, run_command
from harness.errors import ConfigError, EnvironmentInstallError

FAKE = Path(__file__).parent.parent / "e2e" / "fake_docker.py"
IMAGE = ImageConf(
    reference="vllm/vllm-openai:v1",
    ipc_host=True,
    shm_size="1g",
    ulimits=["memlock=-1", "stack=67108864"],
    hub_cache="/hub",
)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker command that knows one image."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").symlink_to(FAKE)
    (tmp_path / "images.json").write_text(json.dumps({"here:1": "sha256:abc"}))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(tmp_path))
    return tmp_path


def calls(fake: Path) -> list[list[str]]:
    return [json.loads(line) for line in (fake / "calls.jsonl").read_text().splitlines()]


def test_the_command_says_everything_that_the_container_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HOME", "/models/hub")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    command = run_command(
        IMAGE,
        ("--model", "/m/x"),
        name="bakeoff-x",
        port=8123,
        env={"A": "b c"},
        mounts=[(Path("/m/x"), False), (Path("/built"), True)],
        gpus=[0, 2],
    )
    assert command == (
        *("docker", "run", "--rm", "--name", "bakeoff-x", "--publish", "127.0.0.1:8123:8123"),
        *("--gpus", '"device=0,2"', "--ipc", "host", "--shm-size", "1g"),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--volume", "/m/x:/m/x:ro", "--volume", "/built:/built"),
        *("--volume", "/models/hub:/hub", "--env", "HF_TOKEN", "--env", "A=b c"),
        *("vllm/vllm-openai:v1", "--model", "/m/x"),
    )
    assert not any("hf_secret" in word for word in command)


def test_a_container_without_gpus_is_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HOME", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    plain = ImageConf(reference="cpu:1")
    command = run_command(plain, (), name="n", port=1, env={}, mounts=[], gpus=None)
    assert "--gpus" not in command
    assert command[-3:] == ("--volume", f"{hub_cache()}:{plain.hub_cache}", "cpu:1")


@pytest.mark.parametrize("reference", ["vllm", "vllm:latest", "host:5000/vllm", ":v1"])
def test_an_image_needs_a_fixed_tag(reference: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.image\.reference=.*fixed tag, not latest"):
        ImageConf(reference=reference)


@pytest.mark.parametrize("reference", ["", "a/b:v1", f"a@sha256:{'0' * 64}", "host:5000/a:1"])
def test_a_fixed_tag_or_a_digest_will_do(reference: str) -> None:
    assert ImageConf(reference=reference).reference == reference


def test_an_image_that_is_there_is_not_pulled(fake: Path) -> None:
    said: list[str] = []
    found = ensure_image("here:1", said.append)
    assert (found["reference"], found["digest"]) == ("here:1", "sha256:abc")
    assert said == []
    assert [call[0] for call in calls(fake)] == ["image"]


def test_an_image_is_pulled_and_its_digest_kept(fake: Path) -> None:
    said: list[str] = []
    found = ensure_image("far:2", said.append)
    assert found["digest"] == f"sha256:{'2' * 64}"
    assert said == ["pulling far:2"]
    assert [call[0] for call in calls(fake)] == ["image", "pull", "image"]


def test_an_image_that_cannot_be_had_says_why(fake: Path) -> None:
    with pytest.raises(EnvironmentInstallError, match=r"manifest for missing:1 not found; check"):
        ensure_image("missing:1", lambda _: None)
    assert len(calls(fake)) == 2


def test_without_docker_the_other_ways_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"no docker command on PATH; .* launch=attach"):
        docker()
