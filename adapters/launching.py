"""What every adapter that starts its server shares: the command in front, and the ServeSpec."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adapters.settings import Row, Words
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, LaunchMode, ModelConf
from harness.errors import ConfigError


def _gpus(value: Sequence[int]) -> Words:
    return Words(env={"CUDA_VISIBLE_DEVICES": ",".join(map(str, value))})


GPUS = Row(say=_gpus)
"""Pinning for every engine that heeds CUDA's own variable; a container is given its GPUs."""


def command(conf: EngineConf, ctx: ServeContext, *python_args: str) -> tuple[str, ...]:
    """What comes before the server's own arguments.

    In a container what its image wants, else `engine.program`, else the environment's Python with
    `python_args`. ConfigError if there is none of them.
    """
    if ctx.mode is LaunchMode.DOCKER:
        return tuple(conf.image.command) if conf.image else ()
    if conf.program:
        return (conf.program,)
    if ctx.python is None or not python_args:
        raise ConfigError(
            f"engine={conf.name}: its environment is not installed; run: bakeoff engines install "
            f"{conf.name}, or give a server program of your own: engine.program=PATH"
        )
    return (str(ctx.python), *python_args)


def script(ctx: ServeContext, name: str) -> str:
    """A program that the environment's packages have installed, such as `trtllm-serve`."""
    return str(ctx.python.parent / name) if ctx.python else name


def model_name(model: ModelConf, ctx: ServeContext) -> str:
    """What the server is to load: the folder on disk, else the name on a hub."""
    if ctx.model_path is not None:
        return str(ctx.model_path)
    if model.repo:
        return model.repo
    raise ConfigError(
        "model.path: not given; say which model: model.path=FOLDER, or model.repo=NAME on a hub"
    )


def served_name(model: ModelConf) -> str:
    """The name that requests carry."""
    return model.served_name or model.name


def serve_spec(
    conf: EngineConf,
    ctx: ServeContext,
    argv: Sequence[str],
    words: Words,
    **more: Any,
) -> ServeSpec:
    """The ServeSpec of a server that binds the context's port. `more`: further fields of it."""
    host = "127.0.0.1" if ctx.host in {"0.0.0.0", "::"} else ctx.host  # noqa: S104  # not bound here
    mounts = [Path(path) for path in _paths(conf) if Path(path).exists()]
    return ServeSpec(
        argv=(*argv, *words.argv),
        base_url=f"http://{f'[{host}]' if ':' in host else host}:{ctx.port}",
        env={**words.env, **conf.env},
        mounts=tuple(mounts),
        ready_timeout_s=conf.ready_timeout_s,
        stop_timeout_s=conf.stop_timeout_s,
        **more,
    )


def _paths(conf: EngineConf) -> list[str]:
    """What may be a path on this machine among the settings: a hub's name is none."""
    return [path for path in (*conf.lora.values(), conf.speculation.model) if path]
