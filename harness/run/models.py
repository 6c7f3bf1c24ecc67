"""Which model a job's engine is given, in the format that it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.adapter import Adapter
from harness.config import LaunchMode, ModelConf, ModelFormat, RunConf
from harness.engine.converted import DEFAULT_DTYPE, converted
from harness.engine.environment import Environment, list_environments
from harness.engine.model_file import check_model_file
from harness.engine.model_folder import check_model_folder
from harness.errors import ConfigError

_CONVERTER = "transformers"  # the engine whose environment can read every format


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """`path`: what the engine loads; None: it finds the model by name, or has its own.

    `source`: what the sizes of prompts come from, the same for every engine that serves a form of
    one model; None: nothing is here.
    """

    path: Path | None = None
    source: Path | None = None


def find_model(
    conf: RunConf,
    adapter: Adapter,
    environment: Environment | None,
    progress: Callable[[str], None],
) -> Model:
    """The job's model, checked, and written in the engine's format if that is not there yet.

    ConfigError or EnvironmentInstallError says what is missing and what helps.
    """
    source = _source(conf.model, environment)
    is_started = conf.launch.mode in {LaunchMode.PROCESS, LaunchMode.DOCKER}
    if source is None:
        if is_started and not conf.model.repo:
            raise ConfigError("model.path: not given; say which model, model.path=/models/x.gguf")
        return Model()
    if source.is_dir():
        check_model_folder(source)
    else:
        check_model_file(source)
    if not is_started:
        return Model(path=source, source=source)
    if adapter.model_format is ModelFormat.HF and source.is_file():
        python = _converter(environment)
        dtype = conf.engine.dtype or DEFAULT_DTYPE
        return Model(path=converted(source, dtype, python=python, progress=progress), source=source)
    if adapter.model_format is ModelFormat.GGUF and source.is_dir():
        raise ConfigError(
            f"model.path={source}: a folder, but engine={conf.engine.name} reads one .gguf file; "
            "give that"
        )
    return Model(path=source, source=source)


def _source(model: ModelConf, environment: Environment | None) -> Path | None:
    if model.path:
        return own_path(model)
    if environment is not None and model.package_file:
        return environment.site_packages / model.package_file
    return None


def own_path(model: ModelConf) -> Path:
    """`model.path` as an absolute path."""
    return Path(model.path).expanduser().resolve()


def check_own_model(model: ModelConf) -> None:
    """ConfigError if `model.path` is given and cannot be a model."""
    if not model.path:
        return
    path = own_path(model)
    if path.is_dir():
        check_model_folder(path)
    else:
        check_model_file(path)


def _converter(environment: Environment | None) -> Path | None:
    """A Python with torch, transformers and gguf: the baseline's, else the engine's own."""
    found = [one for one in list_environments() if one.name == _CONVERTER]
    found += [environment] if environment is not None else []
    return found[0].python if found else None
