"""What a DeepSpeed-MII deployment's log says: of its start, and why it failed.

MII has no metrics. Source: DeepSpeed-MII 0.3.3 (mii/backend/server.py, mii/config.py) and
DeepSpeed 0.19.8 (inference/v2: engine_v2, engine_factory, ragged/kv_cache; op_builder/builder).
"""

import math
import re

from adapters.diagnosis import Failure
from harness.types import LogFacts

LOG_PREFIX = r"(?:\[[^\]]*\] ){1,3}(?:\w+: )?"
_HALF_BYTES = 2  # of one value in its KV cache: float16 or bfloat16
_BLOCK_TOKENS = 2  # place of the tokens of a block in the shape of the KV cache
_LINE = r"^\[[\d-]+ (\d+):(\d+):(\d+),(\d+)\] \[INFO\] \[engine_v2\.py:\d+:__init__\] "
_DAY_S = 86400.0
_BUILDING = re.compile(_LINE + r"Building model", re.MULTILINE)
_BUILT = re.compile(_LINE + r"Model built", re.MULTILINE)
_CACHE = re.compile(r"Allocating KV-cache \d+ with shape: \(([\d, ]+)\) consisting of (\d+) blocks")
_SMALLER = "lower engine.kv_tokens, engine.tokens_per_step or engine.max_model_len, raise engine.tp"

FAILURES = (
    Failure(
        pattern=r"Blocked attention requires CUDA compute capability",
        advice="DeepSpeed-MII needs an NVIDIA GPU of compute capability 8.0 or more",
    ),
    Failure(
        pattern=r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        advice=f"not enough GPU memory: {_SMALLER}, or take a smaller model",
    ),
    Failure(
        pattern=r"Insufficient memory to allocate KV-caches|must have at least 1 block",
        advice="the weights leave no room for a KV cache: raise engine.tp, or take a smaller model "
        "or engine.quantization=wf6af16",
    ),
    Failure(
        pattern=r"Unsupported model type|Unknown policy|OPT-350m model|Cannot find container for",
        advice="DeepSpeed-MII does not know this model: take another model or engine",
    ),
    Failure(
        pattern=r"Only fp16 and bf16 are supported",
        advice="the checkpoint must be float16 or bfloat16: convert it",
    ),
    Failure(
        pattern=r"Only able to place \d+ replicas|No slot '\d+' specified|not found in hostfile"
        r"|no GPU resources available|found no CUDA devices|No CUDA GPUs are available",
        advice="the GPUs are not there: check engine.gpus, engine.tp and nvidia-smi",
    ),
    Failure(
        pattern=r"CUDA_HOME does not exist|Unable to run .*nvcc|unable to compile CUDA op|CUDA "
        r"version mismatch|version torch was compiled with",
        advice="DeepSpeed compiles kernels when it starts: install a CUDA toolkit of the version "
        "that its torch was built with, and set engine.env.CUDA_HOME",
    ),
    Failure(
        pattern=r"Unable to JIT load the .* op|Error building extension|ninja: build stopped",
        advice="DeepSpeed could not compile its kernels: see the compiler's words in the log",
    ),
    Failure(
        pattern=r"Address already in use|Failed to bind|EADDRINUSE|errno: 98",
        advice="a port beside the measured one is in use: leave launch.port=null and run again, or "
        "end what holds it",
    ),
    Failure(
        pattern=r"max_ragged_sequence_count must be less than",
        advice="engine.max_running may not exceed engine.tokens_per_step",
    ),
    Failure(
        pattern=r"max_length \(\d+\) must be greater than prompt_length",
        advice="a prompt does not fit: raise engine.max_model_len",
    ),
    Failure(
        pattern=r"Keyword argument \S+ not recognized|Extra inputs are not permitted"
        r"|mii_server: error:",
        advice="MII does not take a setting: change engine.args",
    ),
    Failure(
        pattern=r"No module named",
        advice="the engine's environment is incomplete: run: bakeoff engines install deepspeed_mii",
    ),
    Failure(
        pattern=r"No such file or directory: 'deepspeed'",
        advice="the `deepspeed` launcher is not there: give engine.program a Python of an "
        "environment that has deepspeed-mii",
    ),
    Failure(
        pattern=r"Repository Not Found|is not a valid model identifier|offline mode|Checkpoint dir "
        r".* is not a directory|is not a local folder",
        advice="the model cannot be had: check model.path, or model.repo and the network",
    ),
    Failure(
        pattern=r"Could not find a deployment named|DeploymentNotFoundError",
        advice="the deployment has gone: see the engine's log",
    ),
    Failure(
        pattern=r"exits with return code = -9|exits with return code = 137",
        advice="a server process was killed, as the kernel does when memory runs out: give the "
        "machine more memory, or take a smaller model",
    ),
    Failure(  # the error of a server process that ended; MII's own words come after it
        pattern=r"^(?:\[rank\d+\]:\s*)?[\w.]*(?:Error|Exception): (?!server crashed)",
        advice="see the engine's log above this line",
    ),
    Failure(
        pattern=r"exits with return code = -?[1-9]|mii_server: process \d+ ended",
        advice="a server process has ended: see the engine's log above this line",
    ),
    Failure(
        pattern=r"server crashed for some reason",
        advice="a server process has ended: see the engine's log above this line",
    ),
)


def log_facts(log: str) -> LogFacts:
    """Reading the weights, and the KV cache.

    Every GPU says the shape of its own share: (layers, blocks, tokens of a block, 2, heads, head
    size), of 16 bits. They share the heads of the same tokens: bytes add up, tokens do not.
    """
    shapes = [[int(n) for n in found[1].split(",") if n.strip()] for found in _CACHE.finditer(log)]
    shape = shapes[0] if shapes else []
    is_known = len(shape) > _BLOCK_TOKENS and all(shape)
    return LogFacts(
        load_s=_between_s(log),
        kv_bytes=sum(math.prod(each) * _HALF_BYTES for each in shapes) if is_known else None,
        kv_capacity_tokens=shape[1] * shape[_BLOCK_TOKENS] if is_known else None,
    )


def _between_s(log: str) -> float | None:
    """From the first line of its kind to the first of the other; less than a day."""
    begin, end = _BUILDING.search(log), _BUILT.search(log)
    if begin is None or end is None or end.start() < begin.start():
        return None
    first_s, last_s = (_of_day_s(*found.groups()) for found in (begin, end))
    return round((last_s - first_s) % _DAY_S, 3)


def _of_day_s(hours: str, minutes: str, seconds: str, milliseconds: str) -> float:
    return (int(hours) * 60 + int(minutes)) * 60 + int(seconds) + int(milliseconds) * 1e-3
