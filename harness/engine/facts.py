"""What this machine is, for the record of a run: plain JSON-able values, None where unknown."""

import os
import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from harness.engine.gpu import Gpus

CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "sve", "asimd")
_CGROUP = Path("/sys/fs/cgroup")
_NODES = Path("/sys/devices/system/node")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpuinfo() -> dict[str, str]:
    lines = (line.partition(":") for line in _text(Path("/proc/cpuinfo")).splitlines())
    return {key.strip(): value.strip() for key, _, value in reversed(list(lines))}


def _cgroup_limit(name: str) -> list[str] | None:
    """The words of a cgroup v2 limit of ours, or None if there is none."""
    own = _text(Path("/proc/self/cgroup")).strip().rpartition("::")[2].lstrip("/")
    for folder in (_CGROUP / own, _CGROUP):
        words = _text(folder / name).split()
        if words and words[0] != "max":
            return words
    return None


def _cpu_quota_cores() -> float | None:
    words = _cgroup_limit("cpu.max")
    return int(words[0]) / int(words[1]) if words and len(words) > 1 else None


def _memory_limit_bytes() -> int | None:
    words = _cgroup_limit("memory.max")
    return int(words[0]) if words else None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _affinity() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def numa_nodes(nodes: Path = _NODES) -> list[dict[str, Any]]:
    """The NUMA nodes with their cores, as the kernel writes them (`0-15,32`), and memory.

    `distances`: to each node, in its own unit (10: itself). Empty where the kernel does not say.
    """
    found = sorted(nodes.glob("node[0-9]*"), key=lambda path: int(path.name[4:]))
    return [
        {
            "node": int(path.name[4:]),
            "cores": _text(path / "cpulist").strip(),
            "memory_bytes": _node_memory_bytes(_text(path / "meminfo")),
            "distances": [int(word) for word in _text(path / "distance").split()],
        }
        for path in found
    ]


def _node_memory_bytes(meminfo: str) -> int | None:
    match = re.search(r"MemTotal:\s*(\d+) kB", meminfo)
    return int(match[1]) * 1024 if match else None


def bakeoff_version() -> str | None:
    """Our own version as installed; None in a bare checkout."""
    try:
        return version("bakeoff")
    except PackageNotFoundError:
        return None


def machine_facts() -> dict[str, Any]:
    """The machine and its state now.

    `cores_allowed`: the logical cores that this process may use. `cpu_quota_cores` and
    `memory_limit_bytes`: a container's limits, None if it has none. `load_average`: 1, 5 and 15
    minutes, to see afterwards whether the machine was idle at the start. `gpu_links`: how each
    GPU is joined to each other, a row each, as `nvidia-smi topo -m` writes it.
    """
    cpu = _cpuinfo()
    flags = set((cpu.get("flags") or cpu.get("Features") or "").split())
    with Gpus() as gpus:
        gpu_facts, gpu_links = gpus.facts(), gpus.links()
    return {
        "cpu_model": cpu.get("model name") or platform.processor() or None,
        "cpu_flags": [flag for flag in CPU_FLAGS if flag in flags],
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "cores_allowed": _affinity(),
        "cpu_quota_cores": _cpu_quota_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_limit_bytes": _memory_limit_bytes(),
        "os": _os_name(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "numa_nodes": numa_nodes(),
        "gpus": gpu_facts,
        "gpu_links": gpu_links,
        "python": platform.python_version(),
        "python_implementation": sys.implementation.name,
        "bakeoff": bakeoff_version(),
        "load_average": list(os.getloadavg()),
    }


def hardware_label(facts: Mapping[str, Any]) -> str:
    """The machine in a few words, such as `2 x NVIDIA H200` or `Intel Xeon 8488C, 2 cores`.

    Several kinds of GPU are joined by `+`. Equal machines get equal labels.
    """
    names = [gpu.get("name") or "unknown GPU" for gpu in facts.get("gpus") or []]
    if names:
        kinds = dict.fromkeys(names)
        counts = ((names.count(kind), kind) for kind in kinds)
        return " + ".join(f"{n} x {kind}" if n > 1 else kind for n, kind in counts)
    model = re.sub(r"\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b|@.*", "", facts.get("cpu_model") or "")
    model = " ".join(model.split()) or "unknown CPU"
    cores = len(facts.get("cores_allowed") or ()) or facts.get("cores_logical")
    unit = "core" if cores == 1 else "cores"
    return f"{model}, {cores} {unit}" if cores else model
