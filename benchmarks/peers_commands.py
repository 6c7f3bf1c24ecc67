"""How each tool is told the same closed load, by its own command line.

The load: `streams` at a time, each its next request as soon as an answer ends, 16 tokens in, 100
out, streamed; the streams begin over `ramp_s` seconds; a round of warm-up, then
`requests_per_stream` rounds. Options not named here are the tools' defaults. Ours has no ramp of
users: all begin at once, which is harder.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

_MODEL = "stub"
_INPUT_TOKENS, _OUTPUT_TOKENS = 16, 100
_ANSWER_S = 2.1  # 70 ms and 99 gaps of 20 ms, and the way
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


def ours(job: Job) -> list[str]:
    """`bakeoff run` with users, who all begin at once."""
    return [
        *("run", "launch=attach", f'launch.base_url="{job.base_url}"'),
        *(f"model.served_name={_MODEL}", "scenario=fixed"),
        *(f"scenario.input_tokens={_INPUT_TOKENS}", f"scenario.output_tokens={_OUTPUT_TOKENS}"),
        *("engine=openai", "load=users", f"load.users={job.streams}"),
        *(f"load.requests={job.measured}", "load.force=true", f"store={job.folder / 'store'}"),
    ]


def vllm(job: Job) -> list[str]:
    """`vllm bench serve`; the rate spreads the beginnings, the cap keeps the streams."""
    rate = job.streams / job.ramp_s if job.ramp_s else math.inf
    return [
        *("-c", _VLLM_MAIN, "--backend", "openai", "--base-url", job.base_url),
        *("--endpoint", "/v1/completions", "--model", _MODEL, "--tokenizer", str(job.tokenizer)),
        *("--dataset-name", "random", "--random-input-len", str(_INPUT_TOKENS)),
        *("--random-output-len", str(_OUTPUT_TOKENS), "--num-prompts", str(job.measured)),
        *("--max-concurrency", str(job.streams), "--num-warmups", str(job.streams)),
        *("--request-rate", f"{rate:g}", "--burstiness", "1000"),  # an even beat
        *("--percentile-metrics", "ttft,tpot,itl", "--metric-percentiles", "50,99"),
        *("--save-result", "--result-dir", str(job.folder), "--result-filename", "vllm.json"),
        "--disable-tqdm",
    ]


def guidellm(job: Job) -> list[str]:
    """`guidellm run` with its concurrent profile."""
    # Its warm-up ends with the start of the first request that ends after so many: two rounds.
    profile = {
        "kind": "concurrent",
        "streams": [job.streams],
        "rampup_duration": job.ramp_s,
        "warmup": {"mode": "requests", "value": job.streams},
    }
    backend = f"kind=openai_http,target={job.base_url},model={_MODEL}"
    data = f"kind=synthetic_text,prompt_tokens={_INPUT_TOKENS},output_tokens={_OUTPUT_TOKENS}"
    count = job.measured + 2 * job.streams
    return [
        *("run", "--backend", f"{backend},request_format=/v1/completions"),
        *("--profile", json.dumps(profile), "--constraint", f"kind=max_requests,count={count}"),
        *("--data", data, "--tokenizer", f"kind=huggingface_auto,model={job.tokenizer}"),
        *("--output", f"kind=json,path={job.folder / 'guidellm.json'}"),
        "--disable-console-interactive",
    ]


def aiperf(job: Job) -> list[str]:
    """`aiperf profile` with a concurrency."""
    ramp = ["--concurrency-ramp-duration", f"{job.ramp_s:g}"] if job.ramp_s else []
    return [
        *("profile", "--model", _MODEL, "--url", job.base_url, "--endpoint-type", "completions"),
        *("--streaming", "--tokenizer", str(job.tokenizer), "--isl", str(_INPUT_TOKENS)),
        *("--osl", str(_OUTPUT_TOKENS), "--concurrency", str(job.streams), *ramp),
        *("--warmup-request-count", str(job.streams), "--request-count", str(job.measured)),
        *("--use-server-token-count", "--use-legacy-max-tokens", "--export-level", "summary"),
        *("--ui", "none", "--no-server-metrics", "--no-gpu-telemetry"),
        *("--artifact-dir", str(job.folder / "aiperf")),
    ]


def _spawn_rate(job: Job) -> int:
    """Users a second, whole as genai-bench wants it."""
    return max(round(job.streams / job.ramp_s), 1) if job.ramp_s else job.streams


def genai_bench(job: Job) -> list[str]:
    """`genai-bench benchmark` with one concurrency."""
    rounds = job.requests_per_stream + 1
    return [
        *("benchmark", "--api-backend", "openai", "--api-base", job.base_url),
        *("--api-key", "none", "--api-model-name", _MODEL, "--model", _MODEL),
        *("--model-tokenizer", str(job.tokenizer), "--task", "text-to-text"),
        *("--num-concurrency", str(job.streams), "--spawn-rate", str(_spawn_rate(job))),
        *("--traffic-scenario", f"D({_INPUT_TOKENS},{_OUTPUT_TOKENS})"),
        *("--warmup-ratio", f"{1 / rounds:.6f}", "--max-time-per-run", "3"),
        *("--max-requests-per-run", str(job.streams * rounds), "--metrics-time-unit", "ms"),
        *("--experiment-base-dir", str(job.folder), "--experiment-folder-name", "genai"),
        *("--log-dir", str(job.folder)),
    ]


def locust(job: Job) -> list[str]:
    """`locust` without its page, as long as the rounds take."""
    run_s = math.ceil(job.ramp_s + (job.requests_per_stream + 1) * _ANSWER_S)
    return [
        *("-f", str(Path(__file__).with_name("peers_locustfile.py")), "--headless"),
        *("--host", job.base_url, "-u", str(job.streams), "-r", str(_spawn_rate(job))),
        *("--run-time", f"{run_s}s", "--stop-timeout", "30", "--csv", str(job.folder / "locust")),
    ]
