"""An engine in a container, through the docker command line: what is run, which image it really is.

The server is published on the loopback interface only. Host paths are mounted under their own
names, so that an adapter says the same paths inside as outside.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.config import ImageConf
from harness.errors import ConfigError, EnvironmentInstallError

_ASK_TIMEOUT_S = 30.0
_TOKENS = ("HF_TOKEN",)  # handed over by name: the value stands in no command line


def docker() -> str:
    """The docker program; ConfigError if there is none."""
    found = shutil.which("docker")
    if found is None:
        raise ConfigError(
            "launch=docker: there is no docker command on PATH; install docker, or use "
            "launch=process, or start the server yourself and use launch=attach"
        )
    return found


def run_command(
    image: ImageConf,
    argv: Sequence[str],
    *,
    name: str,
    port: int,
    env: Mapping[str, str],
    mounts: Sequence[tuple[Path, bool]],
    gpus: Sequence[int] | None,
) -> tuple[str, ...]:
    """`docker run` for a server on `port`; `argv` follows the image.

    Args:
        image: its reference and what it needs.
        argv: the server's arguments.
        name: of the container.
        port: inside as outside.
        env: what the server's environment gets.
        mounts: host paths, and whether the container may write to each.
        gpus: which GPUs it gets, in the system's order; None: none.
    """
    line = ["docker", "run", "--rm", "--name", name, "--publish", f"127.0.0.1:{port}:{port}"]
    if gpus is not None:
        line += ["--gpus", f'"device={",".join(map(str, gpus))}"']  # docker wants the quotes
    if image.ipc_host:
        line += ["--ipc", "host"]
    if image.shm_size:
        line += ["--shm-size", image.shm_size]
    line += [part for limit in image.ulimits for part in ("--ulimit", limit)]
    for path, is_writable in mounts:
        line += ["--volume", f"{path}:{path}{'' if is_writable else ':ro'}"]
    line += ["--volume", f"{hub_cache()}:{image.hub_cache}"]
    line += [part for key in _TOKENS if key in os.environ for part in ("--env", key)]
    line += [part for key, value in env.items() for part in ("--env", f"{key}={value}")]
    return (*line, image.reference, *argv)


def remove_command(name: str) -> tuple[str, ...]:
    """Ends a container whatever it does, and takes it away."""
    return ("docker", "rm", "--force", name)


def hub_cache() -> Path:
    """Where this user's models from a hub lie."""
    home = os.environ.get("HF_HOME")
    return Path(home) if home else Path.home() / ".cache" / "huggingface"


def ensure_image(reference: str, progress: Callable[[str], None]) -> Mapping[str, str]:
    """Pull the image if it is not there; its reference, its id, and the digest that the tag means.

    ConfigError without docker; EnvironmentInstallError says why it cannot be had.
    """
    docker()
    found = _inspect(reference)
    if found is None:
        progress(f"pulling {reference}")
        _docker("pull", "--quiet", reference, timeout_s=None)
        found = _inspect(reference)
    if found is None:
        raise EnvironmentInstallError(
            f"engine.image.reference={reference}: pulled, but docker does not know it; "
            f"try: docker image inspect {reference}"
        )
    return found


def has_image(reference: str) -> bool:
    """Whether docker is there and has the image."""
    return shutil.which("docker") is not None and _inspect(reference) is not None


def _inspect(reference: str) -> Mapping[str, str] | None:
    ended = _run("image", "inspect", "--format", "{{json .}}", reference, timeout_s=_ASK_TIMEOUT_S)
    if ended.returncode:
        return None
    try:
        said = json.loads(ended.stdout)
        digests = said.get("RepoDigests") or []
        digest = digests[0].rpartition("@")[2] if digests else "none: built on this machine"
        return {"reference": reference, "id": str(said["Id"]), "digest": digest}
    except (ValueError, LookupError, AttributeError, TypeError):
        return None


def container_pid(name: str) -> int | None:
    """The host's process id of the container's first process; None while there is none."""
    try:
        ended = _run("inspect", "--format", "{{.State.Pid}}", name, timeout_s=_ASK_TIMEOUT_S)
    except EnvironmentInstallError:
        return None
    text = ended.stdout.strip()
    return int(text) if ended.returncode == 0 and text.isdigit() and int(text) > 0 else None


def _docker(*words: str, timeout_s: float | None) -> None:
    ended = _run(*words, timeout_s=timeout_s)
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        raise EnvironmentInstallError(
            f"docker {' '.join(words)}: {lines[-1] if lines else 'it said nothing'}; "
            "check the image's name, your login and the docker service"
        )


def _run(*words: str, timeout_s: float | None) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            [docker(), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentInstallError(f"docker {' '.join(words)}: {error}") from error
