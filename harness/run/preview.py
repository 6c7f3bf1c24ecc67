"""What would be started, as lines of a shell: nothing is installed, pulled or started for it."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.config import LaunchMode, ModelFormat, RunConf
from harness.engine.converted import DEFAULT_DTYPE, converted_path
from harness.engine.environment import expected_folder, installed
from harness.engine.ports import choose_port
from harness.registry import open_adapter
from harness.run.models import own_path
from harness.run.preflight import job_recipe, needs_environment
from harness.run.serving import serving
from harness.types import Capabilities, Provenance

_FOLDER = Path("RUN_FOLDER/engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How one engine of a sweep is started.

    `commands`: those that prepare, then the server's; `files`: written before, by path. `limits`:
    what it cannot do or will not tell over the measured route.
    """

    engine: str
    commands: tuple[str, ...]
    files: Mapping[str, str]
    limits: tuple[str, ...]


def preview(conf: RunConf, *, gpu_count: int | None = None) -> Start | None:
    """How this job's server would be started; None for one that runs already.

    A free port and the run's folder are chosen when it starts. `gpu_count`: GPUs of this machine;
    None: it will run on another. ConfigError for a setting that the engine cannot take, or GPUs
    that are not there.
    """
    if conf.launch.mode is LaunchMode.ATTACH:
        return None
    adapter = open_adapter(conf.engine, conf.model, conf.launch.mode)
    python = None
    if conf.launch.mode is LaunchMode.PROCESS and needs_environment(conf):
        python = expected_folder(conf.engine.name, job_recipe(conf)) / "bin" / "python"
    how = serving(
        conf,
        adapter,
        port=choose_port(conf.launch.port),
        python=python,
        model_path=_model(conf, adapter.model_format),
        folder=_FOLDER,
        gpu_count=gpu_count,
    )
    steps = [_line(step.argv, step.env) for step in how.steps]
    return Start(
        engine=conf.engine.name,
        commands=(*steps, _line(how.argv, how.env)),
        files={str(path): content for path, content in how.files.items()},
        limits=tuple(_limits(adapter.capabilities)),
    )


def _limits(can: Capabilities) -> Iterator[str]:
    if not can.forced_length:
        yield "answers end where the model ends them: the lengths that came are compared"
    if not can.usage_in_stream:
        yield "tokens are not counted by the server: by our tokenizer, or by chunks"
    if not can.metrics:
        yield "no metrics: queue, preemptions and its own KV use are not exposed"
    elif can.kv_metric is Provenance.NOT_EXPOSED:
        yield "its KV use is not exposed: only our own estimate, if its capacity is known"
    if not can.prefix_cache_off:
        yield "its prefix cache cannot be switched off: every prompt must be another one"


def _line(argv: tuple[str, ...], env: Mapping[str, str]) -> str:
    """A shell's line; variables in front."""
    return " ".join(
        [*(f"{key}={shlex.quote(value)}" for key, value in env.items()), shlex.join(argv)]
    )


def _model(conf: RunConf, wanted: ModelFormat | None) -> Path | None:
    """What the engine would load, as far as it can be known before anything is installed."""
    source = None
    if conf.model.path:
        source = own_path(conf.model)
    elif conf.model.package_file:
        environment = installed(conf.engine.name, job_recipe(conf))
        found = environment.site_packages / conf.model.package_file if environment else None
        source = found or Path(Path(conf.model.package_file).name)
    is_gguf = source is not None and source.suffix.lower() == ".gguf"
    if source is None or wanted is not ModelFormat.HF or not is_gguf:
        return source
    dtype = conf.engine.dtype or DEFAULT_DTYPE
    return converted_path(source, dtype) if source.is_file() else Path(f"{source.stem}-{dtype}")
