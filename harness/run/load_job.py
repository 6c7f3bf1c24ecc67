"""What holds for a whole load: the server, the limits in time, the clock's zero."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import urlsplit

from harness.config import RunConf
from harness.errors import ConfigError
from harness.load.job import LoadJob, Target
from harness.types import Wire

_PORTS = {"http": 80, "https": 443}


def load_target(conf: RunConf, base_url: str) -> Target:
    """The server behind a base URL.

    A slash or `/v1` at its end is taken off, since adapters know their paths; what else it has
    of a path comes before each of theirs. The key stays in the environment: only the name of its
    variable is passed on.

    Raises:
        ConfigError: not an http or https URL with a host.
    """
    url = urlsplit(base_url)
    try:
        port = url.port
    except ValueError as error:
        raise ConfigError(f"launch.base_url={base_url}: not a URL: {error}") from error
    if url.scheme not in _PORTS or not url.hostname:
        raise ConfigError(f"launch.base_url={base_url}: must be http://HOST:PORT or https://...")
    return Target(
        host=url.hostname,
        port=port or _PORTS[url.scheme],
        is_tls=url.scheme == "https",
        tls_verify=conf.launch.tls_verify,
        prefix=url.path.rstrip("/").removesuffix("/v1").rstrip("/"),
        api_key_env=conf.launch.api_key_env,
    )


def load_job(conf: RunConf, base_url: str, folder: Path, wire: Wire = Wire.HTTP) -> LoadJob:
    """What holds for all levels, its clock started now; `folder` gets the journal.

    `wire`: what the adapter's calls are written as.

    Raises:
        ConfigError: as `load_target`.
    """
    load = conf.load
    return LoadJob(
        zero_s=time.monotonic(),
        target=replace(load_target(conf, base_url), wire=wire),
        journal=str(folder / "journal.bin"),
        request_timeout_s=load.request_timeout_s,
        drain_timeout_s=load.drain_timeout_s,
        settle_s=load.settle_s,
        retries=load.retries,
        workers=load.workers,
        remote_workers=load.remote_workers,
        worker_wait_s=load.worker_wait_s,
        master_bind=load.master_bind,
        # the engine's environment is for starting it, and may hold secrets
        engine={**asdict(conf.engine), "env": {}},
        model=asdict(conf.model),
        mode=conf.launch.mode.value,
    )
