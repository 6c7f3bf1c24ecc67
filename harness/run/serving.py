"""How a job's server is started here: what its adapter says, in a process or in a container."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.adapter import Adapter, PrepareStep, ServeContext, ServeSpec
from harness.config import EngineConf, LaunchMode, RunConf
from harness.emulate.spec import emulate_spec
from harness.engine.container import run_command
from harness.errors import ConfigError
from harness.paths import cache_dir

_EVERYWHERE = "0.0.0.0"  # noqa: S104 (inside the container; docker publishes it on loopback only)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """One way to start a server. `env` comes on top of ours; `container`: its name, if it is one.

    `steps`: what has to be there first. `files`: written before it, by path.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    base_url: str
    stop_timeout_s: float
    container: str | None = None
    steps: tuple[PrepareStep, ...] = ()
    files: Mapping[Path, str]


def spare_threads() -> int:
    """CPU threads for an engine: all cores that we may use but one, which the client needs."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def serving(
    conf: RunConf,
    adapter: Adapter,
    *,
    port: int,
    python: Path | None,
    model_path: Path | None,
    folder: Path,
    gpu_count: int | None,
) -> Serving:
    """How this job's server is started.

    Args:
        conf: the job.
        adapter: of its engine.
        port: where it is to listen.
        python: of the engine's environment, if it has one.
        model_path: what it is to load, if that is on disk.
        folder: for its files; the job's own.
        gpu_count: GPUs of this machine; None: it will run on another one, which has them.

    Raises:
        ConfigError: a setting that the engine cannot take, or GPUs that are not there.
    """
    is_docker = conf.launch.mode is LaunchMode.DOCKER
    context = ServeContext(
        port=port,
        host=_EVERYWHERE if is_docker else "127.0.0.1",
        mode=conf.launch.mode,
        python=python,
        model_path=model_path,
        threads=conf.engine.threads or spare_threads(),
        folder=folder.absolute(),
        cache_folder=cache_dir().absolute() / "built" / conf.engine.name,
    )
    if conf.launch.mode is LaunchMode.EMULATE:
        return _plain(emulate_spec(conf, context), conf.engine, context)
    engine = _with_gpus(conf, adapter, gpu_count)
    spec = adapter.serve(engine, conf.model, context)
    return _in_container(spec, engine, context) if is_docker else _plain(spec, engine, context)


def _with_gpus(conf: RunConf, adapter: Adapter, count: int | None) -> EngineConf:
    """The engine with its GPUs named: as given, else the first that it needs or can use."""
    engine, image = conf.engine, conf.engine.image
    need = engine.tp * engine.pp
    runs_on_gpu = image.needs_gpu if image else engine.recipe.compute_capability is not None
    wanted = engine.gpus if engine.gpus is not None else list(range(need))
    pinned = replace(engine, gpus=wanted)
    if need == 1 and engine.gpus is None and not runs_on_gpu:
        return pinned if count and _can_use_gpus(adapter, pinned, conf) else engine
    if count is not None and max(wanted) >= count:
        have = f"this machine has {count}, numbered from 0" if count else "this machine has none"
        raise ConfigError(
            f"engine.gpus={wanted}: {have}; engine={engine.name} needs engine.tp x engine.pp = "
            f"{need} of them; preview the run with launch=emulate, or choose an engine for CPUs"
        )
    return pinned


def _can_use_gpus(adapter: Adapter, pinned: EngineConf, conf: RunConf) -> bool:
    """Whether its settings know GPUs at all: a build for CPUs refuses them."""
    try:
        type(adapter)(pinned, conf.model)
    except ConfigError:
        return False
    return True


def _plain(spec: ServeSpec, engine: EngineConf, context: ServeContext) -> Serving:
    # CUDA numbers GPUs by speed unless told; NVML, docker and we number them by their bus.
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if engine.gpus else {}
    return Serving(
        argv=spec.argv,
        env={**order, **spec.env, **engine.env},
        base_url=spec.base_url,
        stop_timeout_s=spec.stop_timeout_s,
        steps=spec.prepare,
        files=_files(spec, context),
    )


def _files(spec: ServeSpec, context: ServeContext) -> dict[Path, str]:
    return {context.folder / name: content for name, content in spec.files.items()}


def _in_container(spec: ServeSpec, engine: EngineConf, context: ServeContext) -> Serving:
    assert engine.image is not None
    image, name = engine.image, f"bakeoff-{engine.name}-{os.getpid()}-{context.port}"
    mounts = [(path, False) for path in (context.model_path, *spec.mounts) if path is not None]
    if spec.files:
        mounts.append((context.folder, False))
    if spec.prepare:
        mounts.append((context.cache_folder, True))
    mounts = list(dict(mounts).items())
    env = {k: v for k, v in {**spec.env, **engine.env}.items() if k != "CUDA_VISIBLE_DEVICES"}
    gpus = engine.gpus

    def inside(argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
        return run_command(
            image, argv, name=name, port=context.port, env=env, mounts=mounts, gpus=gpus
        )

    steps = tuple(
        replace(step, argv=inside(step.argv, {**env, **step.env}), env={}) for step in spec.prepare
    )
    return Serving(
        argv=inside(spec.argv, env),
        env={},
        base_url=spec.base_url,
        stop_timeout_s=spec.stop_timeout_s,
        container=name,
        steps=steps,
        files=_files(spec, context),
    )
