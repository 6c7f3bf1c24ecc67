#!/usr/bin/env python3
"""A stand-in for the docker command: `run` has a server started that is no descendant of it.

State lies in $FAKE_DOCKER: `images.json` (references to digests), `calls.jsonl` (each command
line), and for each container NAME.run.json (what is to be started; the test's own thread does it,
as docker's service would) and NAME.pid.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

STATE = Path(os.environ["FAKE_DOCKER"])
WITH_VALUE = {"--name", "--publish", "--gpus", "--ipc", "--shm-size", "--ulimit", "--volume"}
WITH_VALUE |= {"--env"}


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
    except OSError:
        return False


def images() -> dict[str, str]:
    return dict(json.loads((STATE / "images.json").read_text()))


def image(words: list[str]) -> int:
    assert words[:3] == ["inspect", "--format", "{{json .}}"], words
    digest = images().get(words[3])
    if digest is None:
        sys.stderr.write(f"Error: No such image: {words[3]}\n")
        return 1
    name = words[3].partition(":")[0]
    sys.stdout.write(
        json.dumps({"Id": f"sha256:{'1' * 64}", "RepoDigests": [f"{name}@{digest}"]}) + "\n"
    )
    return 0


def pull(words: list[str]) -> int:
    assert words[0] == "--quiet", words
    if "missing" in words[1]:
        sys.stderr.write(f"Error response from daemon: manifest for {words[1]} not found\n")
        return 1
    known = images() | {words[1]: f"sha256:{'2' * 64}"}
    (STATE / "images.json").write_text(json.dumps(known))
    return 0


def run(words: list[str]) -> int:
    """Parse as docker does, have it started, then stand for it until it ends."""
    options: list[tuple[str, str]] = []
    while words[0].startswith("--"):
        if words[0] == "--rm":
            words = words[1:]
            continue
        assert words[0] in WITH_VALUE, f"unknown flag: {words[0]}"
        options.append((words[0], words[1]))
        words = words[2:]
    name = dict(options)["--name"]
    started = {"options": options, "image": words[0], "argv": words[1:]}
    part = STATE / f"{name}.part"
    part.write_text(json.dumps(started))
    part.replace(STATE / f"{name}.run.json")
    file = STATE / f"{name}.pid"
    while not file.exists():
        time.sleep(0.02)
    pid = int(file.read_text())
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    while alive(pid):
        time.sleep(0.02)
    return 0


def remove(words: list[str]) -> int:
    assert words[0] == "--force", words
    file = STATE / f"{words[1]}.pid"
    if not file.exists():
        sys.stderr.write(f"Error response from daemon: No such container: {words[1]}\n")
        return 1
    pid = int(file.read_text())
    if alive(pid):
        os.kill(pid, signal.SIGKILL)
    return 0


def inspect(words: list[str]) -> int:
    file = STATE / f"{words[2]}.pid"
    sys.stdout.write(file.read_text() if file.exists() else "0")
    return 0


def main() -> int:
    with (STATE / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(sys.argv[1:]) + "\n")
    commands = {"image": image, "pull": pull, "run": run, "rm": remove, "inspect": inspect}
    return commands[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
