"""Doubts that hold for a whole run: how it was set up, and what the engine did beside the plan."""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from harness.analysis.facts import fact, machine_of, setting
from harness.types import Clock, Doubt, RunInfo, Severity, TokensSource
from harness.units import percent

if TYPE_CHECKING:
    import pandas as pd

_LENGTH_TOLERANCE = 0.02  # realised against planned lengths
_CACHED_TOLERANCE = 0.02  # share of prompt tokens that a switched-off cache may still serve
_USER_CLOCK_TOLERANCE = 0.01
_TEMPLATE_TOKENS = 64  # what a chat template may put around every prompt
_TELEMETRY_CPU = 0.01  # of one core
_TELEMETRY_SPAN_S = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def setup_doubts(info: RunInfo, frame: "pd.DataFrame") -> Iterator[Doubt]:
    """Doubts about the set-up of a run; `frame`: all its requests."""
    measured = frame[frame["is_measured"]]
    ok = measured[measured["is_ok"]]
    yield from _kind_of_run(info)
    yield from _shared_cpu(info)
    yield from _telemetry(info)
    yield from _guessed_lengths(info)
    yield from _determinism(info)
    yield from _other_model(info)
    if len(ok):
        yield from _lengths(ok, info)
        yield from _cache(ok, info)
        yield from _token_counts(ok)
        yield from _clock(measured, info)


def _kind_of_run(info: RunInfo) -> Iterator[Doubt]:
    if info.emulated:
        yield Doubt(
            code="emulated",
            what="the engine was an emulator",
            advice="measure the real engine; emulated figures are never evidence",
        )
    url = setting(info, "launch.base_url") or ""
    host = urlsplit(str(url)).hostname
    if host and host not in _LOOPBACK:
        yield Doubt(
            code="remote_target",
            what=f"the server was on another machine ({host}), so the network is in every figure",
            advice="run bakeoff on the server's own machine to measure the engine alone",
        )
    if setting(info, "warmup.mode") == "quick":
        yield Doubt(
            code="quick_warmup",
            what="the warm-up was a few requests, not until the engine stood still",
            advice="repeat with warmup.mode=steady before deciding on small differences",
            severity=Severity.NOTE,
        )


def _other_model(info: RunInfo) -> Iterator[Doubt]:
    """Some servers answer under any name: SGLang, TensorRT-LLM and Triton refuse none."""
    asked, served = setting(info, "model.served_name"), info.identity.model
    if setting(info, "launch.mode") != "attach" or not asked or served in {None, asked}:
        return
    yield Doubt(
        code="other_model",
        what=f"requests asked for {asked}, and the server says that it serves {served}",
        advice="check model.served_name and launch.base_url: it may be another model's speed",
    )


def _determinism(info: RunInfo) -> Iterator[Doubt]:
    found = info.determinism
    if found is None or found.together <= 1:
        return
    yield Doubt(
        code="output_not_deterministic",
        what=(
            f"one request had {found.together} different texts: {found.alone} of "
            f"{found.requests} sent alone, {found.crowd} of {found.requests} sent at once"
        ),
        advice="compare speed, not texts; a quality check needs several answers to a question, "
        "or the engine's batch-invariant mode",
        severity=Severity.NOTE,
    )


def _shared_cpu(info: RunInfo) -> Iterator[Doubt]:
    machine = machine_of(info)
    threads = setting(info, "engine.threads")
    cores = machine.cpu_cores
    is_here = setting(info, "launch.mode", "process") == "process"
    if is_here and threads is not None and cores is not None and int(threads) + 1 > cores:
        yield Doubt(
            code="cpu_shared",
            what=f"the engine's {threads} threads and the client shared {cores} cores",
            advice=f"leave a core to the client: engine.threads={max(1, cores - 1)}",
        )


def _telemetry(info: RunInfo) -> Iterator[Doubt]:
    """What our own sampling took; of a short load its first samples are too large a part."""
    cost, span_s = fact(info, "telemetry.cpu_ratio"), fact(info, "telemetry.span_s")
    if cost is not None and cost > _TELEMETRY_CPU and span_s >= _TELEMETRY_SPAN_S:
        yield Doubt(
            code="telemetry_cost",
            what=f"reading engine and machine took {percent(cost)} of a core",
            advice="leave a core free beside engine and client: engine.threads",
        )


def _guessed_lengths(info: RunInfo) -> Iterator[Doubt]:
    if setting(info, "scenario.lengths") == "lognormal":
        yield Doubt(
            code="lognormal_lengths",
            what="lengths were drawn from a lognormal law, which misses the tails of real services "
            "by a factor of 0.5 to 6.5",
            advice="use lengths of a real service: scenario.lengths=empirical, or a trace",
        )


def _lengths(ok: "pd.DataFrame", info: RunInfo) -> Iterator[Doubt]:
    alone = ok[~(ok["turn"] > 0)]  # later turns carry what was said before, which nobody planned
    real, plan = _mean_lengths(alone, "prompt_tokens", "planned_input_tokens")
    if _is_off(real, plan) and not _is_template(alone, info):
        yield Doubt(
            code="input_length_differs",
            what=f"mean input length was {real:.1f} tokens by the server's count where "
            f"{plan:.1f} were planned by ours",
            advice="check the model's tokenizer and chat template: model.tokenizer",
        )
    real, plan = _mean_lengths(ok, "output_tokens", "planned_output_tokens")
    if _is_off(real, plan):
        is_forced = info.capabilities is None or info.capabilities.forced_length
        why = "" if is_forced else "; the engine cannot be made to answer at length"
        yield Doubt(
            code="output_length_differs",
            what=f"mean output length was {real:.1f} tokens where {plan:.1f} were planned{why}",
            advice="compare only with runs of the same realised lengths",
        )


def _mean_lengths(ok: "pd.DataFrame", got: str, planned: str) -> tuple[float, float]:
    """Means of what came and of what was planned; equal where nothing is known."""
    known = ok[ok[got].notna()]
    return (float(known[got].mean()), float(known[planned].mean())) if len(known) else (0.0, 0.0)


def _is_off(real: float, plan: float) -> bool:
    return plan > 0 and abs(real - plan) > _LENGTH_TOLERANCE * plan


def _is_template(ok: "pd.DataFrame", info: RunInfo) -> bool:
    """Whether a chat route adds the same few tokens to every prompt: its template, no fault."""
    more = (ok["prompt_tokens"] - ok["planned_input_tokens"]).dropna()
    is_chat = "chat" in str(setting(info, "engine.route", ""))
    return is_chat and len(set(more)) == 1 and 0 < int(more.iloc[0]) <= _TEMPLATE_TOKENS


def _cache(ok: "pd.DataFrame", info: RunInfo) -> Iterator[Doubt]:
    cached, prompt = float(ok["cached_tokens"].sum()), float(ok["prompt_tokens"].sum())
    is_off = setting(info, "engine.prefix_cache") is False
    if is_off and prompt > 0 and cached > _CACHED_TOLERANCE * prompt:
        yield Doubt(
            code="cache_flattered",
            what=f"{percent(cached / prompt)} of the prompt tokens came out of the prefix cache, "
            "which was meant to be off",
            advice="TTFT is too good: switch the engine's prefix cache off by its own argument",
        )


def _token_counts(ok: "pd.DataFrame") -> Iterator[Doubt]:
    sources = ok["tokens_source"]
    chunks = int((sources == TokensSource.CHUNKS.value).sum())
    tokenizer = int((sources == TokensSource.TOKENIZER.value).sum())
    if chunks:
        yield Doubt(
            code="tokens_counted_by_chunks",
            what=f"{chunks} of {len(ok)} answers had only their chunks counted; a chunk may hold "
            "several tokens",
            advice="give the model's tokenizer: model.tokenizer=PATH",
        )
    elif tokenizer:
        yield Doubt(
            code="tokens_counted_by_tokenizer",
            what=f"{tokenizer} of {len(ok)} answers had their tokens counted from the text",
            advice="nothing to do if the tokenizer is the model's own",
            severity=Severity.NOTE,
        )


def _clock(measured: "pd.DataFrame", info: RunInfo) -> Iterator[Doubt]:
    """By requests; where single reads were counted, `unstamped_reads` says it better."""
    if info.levels and all(level.client is not None for level in info.levels):
        return
    user = int((measured["clock"] == Clock.USER.value).sum())
    if user > _USER_CLOCK_TOLERANCE * len(measured):
        yield Doubt(
            code="user_clock",
            what=f"{user} of {len(measured)} requests were stamped when read, not when they came",
            advice="use plain HTTP on Linux, or watch the client's load: late reads look slow",
        )
