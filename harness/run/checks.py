"""What can be known to be wrong with a job before anything is installed or started: exit 2."""

import shutil
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from harness.adapter import Adapter
from harness.config import LaunchMode, ModelConf, RunConf
from harness.engine.ports import choose_port
from harness.errors import ConfigError
from harness.load.wire.secrets import read_key
from harness.registry import open_adapter
from harness.run.machine_limits import check_limits
from harness.run.models import check_own_model
from harness.types import Wire


def check(conf: RunConf, *, is_preview: bool = False) -> Adapter:
    """What can be checked without installing or starting anything; returns the adapter.

    `is_preview`: it will run on another machine, which has the model's files.
    """
    adapter = open_adapter(conf.engine, conf.model, conf.launch.mode)
    if conf.launch.mode is LaunchMode.ATTACH:
        _check_target(conf)
    else:
        choose_port(conf.launch.port)
        _check_program(conf)
    if conf.launch.mode is LaunchMode.DOCKER:
        _check_image(conf)
    if not is_preview:
        check_own_model(conf.model)
    tokenizer_path(conf.model)
    _check_wire(conf, adapter)
    read_key(conf.launch.api_key_env)
    check_limits(conf, adapter.capabilities.wire)
    return adapter


def tokenizer_path(model: ModelConf) -> Path | None:
    """`model.tokenizer` as a path, None if it is not given; ConfigError if it is not there."""
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


def _check_image(conf: RunConf) -> None:
    if conf.engine.image is None or not conf.engine.image.reference:
        raise ConfigError(
            f"engine.image.reference: not given, and engine={conf.engine.name} has no official "
            "image; say which one, engine.image.reference=NAME:TAG, or use launch=process"
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
