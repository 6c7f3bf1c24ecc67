"""How a job's server is started here, and what a preview shows of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.adapter import PrepareStep, ServeContext, ServeSpec
from harness.config import (
    EngineConf,
    ImageConf,
    LaunchConf,
    LaunchMode,
    ModelConf,
    RecipeConf,
    RunConf,
)
from harness.errors import ConfigError
from harness.registry import adapter_class, open_adapter
from harness.run.preview import preview
from harness.run.serving import Serving, serving
from harness.run.starting import started

PYTHON = Path("/env/bin/python")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", "/hub")
    monkeypatch.delenv("HF_TOKEN", raising=False)


def conf_of(engine: str, mode: LaunchMode = LaunchMode.PROCESS, **settings: Any) -> RunConf:
    image = ImageConf(reference=f"{engine}:1.2.1")
    return RunConf(
        engine=EngineConf(name=engine, **{"image": image, **settings}),
        model=ModelConf(name="m", path="/m.gguf" if engine == "llamacpp" else "/model"),
        launch=LaunchConf(mode=mode, base_url="http://x" if mode is LaunchMode.ATTACH else None),
    )


def how(conf: RunConf, gpus: int | None = 0, folder: Path = Path("/run")) -> Serving:
    return serving(
        conf,
        open_adapter(conf.engine, conf.model, conf.launch.mode),
        port=18080,
        python=PYTHON,
        model_path=Path(conf.model.path),
        folder=folder,
        gpu_count=gpus,
    )


ON_GPU = RecipeConf(compute_capability=8.0)


def test_an_engine_that_needs_gpus_gets_the_first_or_those_that_are_named() -> None:
    def visible(**settings: Any) -> str | None:
        found = how(conf_of("vllm", recipe=ON_GPU, **settings), gpus=8)
        return found.env.get("CUDA_VISIBLE_DEVICES")

    assert visible() == "0"
    assert visible(tp=2, pp=2) == "0,1,2,3"
    assert visible(tp=2, gpus=[5, 3]) == "5,3"
    assert how(conf_of("vllm", recipe=ON_GPU), gpus=8).env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(
    ("settings", "gpus", "words"),
    [
        ({}, 0, r"engine\.gpus=\[0\]: this machine has none; engine=vllm needs .* 1 of them"),
        ({"tp": 4}, 2, r"engine\.gpus=\[0, 1, 2, 3\]: this machine has 2, numbered from 0"),
        ({"gpus": [7]}, 2, r"engine\.gpus=\[7\]: this machine has 2"),
    ],
)
def test_gpus_that_are_not_there_are_refused(
    settings: dict[str, Any], gpus: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        how(conf_of("vllm", recipe=ON_GPU, **settings), gpus=gpus)


def test_an_engine_that_can_do_without_is_pinned_only_where_there_are_gpus() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in how(conf_of("llamacpp"), gpus=0).env
    assert how(conf_of("llamacpp"), gpus=2).env["CUDA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in how(conf_of("vllm_cpu"), gpus=2).env


def test_a_container_gets_its_gpus_by_docker_and_not_by_cudas_variable() -> None:
    found = how(conf_of("vllm", LaunchMode.DOCKER, tp=2), gpus=2)
    assert found.env == {}
    line = " ".join(found.argv)
    assert '--gpus "device=0,1"' in line
    assert "CUDA_VISIBLE_DEVICES" not in line
    assert "--volume /model:/model:ro" in line
    assert line.partition("vllm:1.2.1 ")[2].startswith("/model --host 0.0.0.0 --port 18080")
    assert found.container is not None
    assert found.base_url == "http://127.0.0.1:18080"


def test_steps_of_a_container_run_in_its_image_and_may_write_where_they_keep(
    tmp_path: Path,
) -> None:
    args = {"flow": "engine", "convert_checkpoint": "/app/convert.py"}
    found = how(conf_of("tensorrt_llm", LaunchMode.DOCKER, args=args), gpus=1)
    assert [step.what for step in found.steps]
    kept = f"{tmp_path}/cache/built/tensorrt_llm"
    for step in found.steps:
        assert step.argv[:2] == ("docker", "run")
        assert f"{kept}:{kept}" in step.argv
        assert str(step.output).startswith(kept)
    (file,) = found.files
    assert str(file).startswith("/run/")
    assert "--volume /run:/run:ro" in " ".join(found.argv)


def test_an_engine_starts_after_its_files_and_its_steps(tmp_path: Path) -> None:
    output, file = tmp_path / "built", tmp_path / "f" / "conf.json"
    make = PrepareStep(what="building", argv=("touch", str(output)), output=output)
    ready = Serving(
        argv=("cat", str(output), str(file)),
        env={},
        base_url="",
        stop_timeout_s=5,
        steps=(make,),
        files={file: "{}"},
    )
    said: list[str] = []

    def run(what: Serving) -> None:
        log_path = tmp_path / "log"
        with (
            (tmp_path / "lock").open("w") as lock,
            started(what, "x", log_path=log_path, lock=lock.fileno(), progress=said.append),
        ):
            pass

    run(ready)
    assert said == ["  building"]
    run(ready)  # what is kept is not made again
    assert said == ["  building"]
    bad = replace(make, argv=("false",), output=tmp_path / "never")
    with pytest.raises(ConfigError, match=r"engine=x: building ended with 1; see its words in"):
        run(replace(ready, steps=(bad,)))


@pytest.mark.parametrize("mode", [LaunchMode.PROCESS, LaunchMode.DOCKER])
def test_a_preview_shows_the_command_that_would_be_run(mode: LaunchMode) -> None:
    conf = conf_of("vllm", mode, recipe=ON_GPU, tp=2)
    conf = replace(conf, launch=replace(conf.launch, port=18080))
    seen = preview(conf)
    assert seen is not None
    (command,) = seen.commands
    assert "--port 18080" in command
    assert "--tensor-parallel-size 2" in command
    assert seen.limits == ()


def test_a_preview_says_what_an_engine_cannot_give() -> None:
    assert preview(conf_of("openai", LaunchMode.ATTACH)) is None
    tgi = preview(conf_of("tgi", LaunchMode.DOCKER))
    plain = preview(conf_of("transformers", LaunchMode.DOCKER, prefix_cache=True))
    assert tgi is not None
    assert plain is not None
    assert any("the lengths that came are compared" in line for line in tgi.limits)
    assert any("its KV use is not exposed" in line for line in tgi.limits)
    assert any("no metrics" in line for line in plain.limits)
    folder = preview(replace(conf_of("vllm_cpu"), model=ModelConf(name="m", path="/x.gguf")))
    assert folder is not None
    assert "--model x-float32 " in folder.commands[-1]


def test_a_spec_needs_no_more_than_a_command() -> None:
    spec = ServeSpec(argv=("x",), base_url="http://127.0.0.1:1")
    assert (spec.files, spec.prepare, spec.mounts) == ({}, (), ())
    assert adapter_class("llamacpp").__name__ == "LlamaCppAdapter"
    assert ServeContext(port=1).mode is LaunchMode.PROCESS
