"""What TGI says of itself: `/info`, its launcher's log, and the failures in it.

Source: text-generation-inference 3.3.7, router/src and launcher/src; the fields of `/info` that
only 2.x has are read where they are there.
"""

import re
from typing import Any

from adapters.diagnosis import Failure
from adapters.failures import json_value
from adapters.openai_compatible import plain_name
from harness.types import EngineIdentity, LogFacts

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TARGET = r"(?:shard-manager|download|webserver|warmup|text_generation[\w:]*)(?:\{[^}]*\})?:\s*"
LOG_PREFIX = rf"\S+T[\d:.]+Z\s+[A-Z]+\s+(?:{_TARGET})*(?:[\w/.-]+\.rs:\d+: )?"
_CAPACITY = re.compile(r"Setting max batch total tokens to (\d{1,15})\b")
_READY = re.compile(r"Shard ready in (\d{1,15}(?:\.\d+)?)(ns|µs|us|ms|s)\b")
_WARM_UP = re.compile(r"T(\d\d):(\d\d):(\d\d(?:\.\d+)?)Z.*Warming up model")
_WARMED_UP = re.compile(r"T(\d\d):(\d\d):(\d\d(?:\.\d+)?)Z.*Setting max batch total tokens to")
_UNIT_S = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_DAY_S = 86_400.0

_SHARE = "spread the model over more GPUs (engine.tp), or take a smaller or a quantised one"
_LOG = "see the engine's log"

FAILURES = (
    Failure(
        pattern=r"Not enough memory to handle \d+ prefill tokens",
        advice=f"lower engine.tokens_per_step; or {_SHARE}",
    ),
    Failure(
        pattern=r"Not enough memory to handle `?max_total_tokens",
        advice=f"lower engine.max_model_len; or {_SHARE}",
    ),
    Failure(
        pattern=r"CUDA out of memory|OutOfMemoryError",
        advice=f"lower engine.tokens_per_step or engine.max_model_len; or {_SHARE}",
    ),
    Failure(
        pattern=r"signaled to shutdown with signal 9\b",
        advice="the machine ran out of memory while it read the weights: it needs more of its own",
    ),
    Failure(
        pattern=r"max_batch_prefill_tokens`? must be >= `?max_input_tokens",
        advice="raise engine.tokens_per_step to engine.max_model_len, or lower that",
    ),
    Failure(
        pattern=r"not enough cuda devices",
        advice="fewer GPUs are seen than are asked for: lower engine.tp, or give engine.gpus",
    ),
    Failure(
        pattern=r"Sharding is currently not supported with",
        advice="set engine.tp=1, or take another engine.quantization",
    ),
    Failure(
        pattern=r"Unknown quantization method",
        advice="change engine.quantization, or take a model that is quantised as TGI knows it",
    ),
    Failure(
        pattern=r"Unsupported model type",
        advice="TGI knows no models newer than its last release: take another model or engine",
    ),
    Failure(
        pattern=r"Unable to load tokenizer",
        advice="the model's folder needs its tokenizer.json: model.path",
    ),
    Failure(
        pattern=r"failed to build prometheus recorder",
        advice="the port after the server's is in use: give another, launch.port, "
        "or end what holds it",
    ),
    Failure(
        pattern=r"address (is )?already in use",
        advice="a port is in use: leave launch.port=null for a free one, or end what holds it",
    ),
    Failure(
        pattern=r"text-generation-server not found in PATH",
        advice="the launcher needs it beside itself: add it to PATH, or take launch=docker",
    ),
    Failure(
        pattern=r"Invalid argument: |error: (unexpected argument|invalid value|the argument)",
        advice="the launcher does not take this setting: change it, or engine.args",
    ),
    Failure(
        pattern=r"Download (error|encountered an error)|Download process was signaled",
        advice="give the model as a folder, model.path, or a name that the hub has, model.repo",
    ),
    Failure(
        pattern=r"Unable to warmup the Python model shards",
        advice=f"{_LOG}; if it is memory, lower engine.tokens_per_step or engine.max_model_len",
    ),
    Failure(pattern=r"^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): ", advice=_LOG),
    Failure(pattern=r"Webserver (Crashed|failed|cannot start)", advice=_LOG),
    Failure(pattern=r"Shard (\d+ failed to start|cannot start|disconnected|failed)", advice=_LOG),
    Failure(pattern=r"Shard complete standard error output:", advice=_LOG),
)


def plain(log: str) -> str:
    """The log as it reads without colours; lines of `--json-output` as those of the other form."""
    return "\n".join(_plain_line(line) for line in _COLOUR.sub("", log).splitlines())


def _plain_line(line: str) -> str:
    said = json_value(line.encode(errors="replace")) if line.startswith("{") else None
    if not isinstance(said, dict):
        return line
    fields = said.get("fields")
    message = said.get("message") or (fields.get("message") if isinstance(fields, dict) else None)
    if not isinstance(message, str):
        return line
    head = (said.get(key) for key in ("timestamp", "level", "target"))
    return f"{' '.join(str(one) for one in head)}: {message}"


def log_facts(log: str) -> LogFacts:
    """How many tokens its KV cache holds, and what its start took.

    `load_s`: of the slowest shard, from its process's start. `compile_s`: its warm-up, in which it
    sizes the cache and captures its graphs; by the log's own clock.
    """
    text = plain(log)
    capacity = _CAPACITY.findall(text)
    ready_s = [float(number) * _UNIT_S[unit] for number, unit in _READY.findall(text)]
    return LogFacts(
        load_s=max(ready_s, default=None),
        compile_s=_between_s(_WARM_UP.search(text), _WARMED_UP.search(text)),
        kv_capacity_tokens=int(capacity[-1]) if capacity else None,
    )


def _between_s(first: re.Match[str] | None, then: re.Match[str] | None) -> float | None:
    """Seconds between two lines of less than a day."""
    if first is None or then is None:
        return None
    return (_time_s(then) - _time_s(first)) % _DAY_S


def _time_s(line: re.Match[str]) -> float:
    hours, minutes, seconds = map(float, line.groups())
    return hours * 3600 + minutes * 60 + seconds


def identity(info_body: bytes) -> EngineIdentity:
    """From `/info`. 3.x tells neither the batch's limit nor the cache's size there, 2.x both."""
    info = json_value(info_body)
    if not isinstance(info, dict):
        return EngineIdentity()
    return EngineIdentity(
        version=_name(info.get("version")),
        model=plain_name(info.get("model_id")),
        max_model_len_tokens=_count(info.get("max_total_tokens")),
        max_running=_count(info.get("max_batch_size")),
        kv_capacity_tokens=_count(info.get("max_batch_total_tokens")),
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
