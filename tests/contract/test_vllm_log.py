"""What vLLM's log says: of its start, and of every failure that is known."""

import pytest

from adapters.vllm import VllmAdapter, VllmCpuAdapter
from harness.config import EngineConf, ModelConf
from harness.types import LogFacts

VLLM = VllmAdapter(EngineConf(name="vllm"), ModelConf(name="m"))
VLLM_CPU = VllmCpuAdapter(EngineConf(name="vllm_cpu"), ModelConf(name="m"))
FACTS = """\
(APIServer pid=7) INFO 11-30 09:02:40 [api_utils.py:299] vLLM server version 0.32.0
(EngineCore pid=37) INFO 11-30 09:02:44 [default_loader.py:391] Loading weights took 0.41 seconds
(EngineCore pid=37) INFO 11-30 09:02:45 [gpu_model_runner.py:4] Model loading took 1.5 GiB memory \
and 12.250000 seconds
(EngineCore pid=37) INFO 11-30 09:02:46 [gpu_worker.py:645] Available KV cache memory: 5.05 GiB
(EngineCore pid=37) INFO 11-30 09:02:47 [kv_cache_utils.py:2395] GPU KV cache size: 87,296 tokens, \
Maximum concurrency for 4,096 tokens per request: 21.31x
(EngineCore pid=37) INFO 11-30 09:02:49 [core.py:355] init engine (profile, create kv cache, \
warmup model) took 87.24 s (compilation: 34.75 s)
"""
CPU_FACTS = """\
INFO [default_loader.py:391] Loading weights took 0.41 seconds
(Worker pid=80) INFO 11-30 06:35:12 [cpu_worker.py:271] Explicitly set (1.0/15.84) GiB for KV \
cache on node 0.
CPU KV cache size: 262144 tokens
init engine (profile, create kv cache, warmup model) took 2.67 seconds
"""


def test_the_log_of_a_start_gives_its_facts() -> None:
    assert VLLM.log_facts(FACTS) == LogFacts(
        load_s=12.25,
        compile_s=87.24,
        weights_bytes=1_610_612_736,
        kv_bytes=round(5.05 * 2**30),
        kv_capacity_tokens=87_296,
    )
    assert VLLM.log_facts(CPU_FACTS) == LogFacts(
        load_s=0.41, compile_s=2.67, kv_bytes=2**30, kv_capacity_tokens=262_144
    )
    older = "Model loading took 2.2 GiB and 3.5 seconds\nModel loading took 2.4 GiB and 3.1 seconds"
    assert VLLM.log_facts(older).load_s == 3.5
    assert VLLM.log_facts(older).weights_bytes == round(2.4 * 2**30)
    assert VLLM.log_facts("nothing of it\nKV cache size: x tokens") == LogFacts()


HEALTHY = (
    (
        "WARNING 11-30 09:02:39 [interface.py:222] Failed to import from vllm._C: "
        "ModuleNotFoundError(\"No module named 'vllm._C'\")"
    ),
    "(APIServer pid=7) INFO 11-30 09:02:40 [utils.py:233] non-default args: {'model': '/m'}",
    "(APIServer pid=7) INFO 11-30 09:02:40 [model.py:600] Resolved architecture: LlamaForCausalLM",
    "(APIServer pid=7) INFO 11-30 09:02:40 [model.py:1700] Using max model len 4096",
    (
        "(EngineCore pid=37) INFO 11-30 09:02:41 [core.py:93] Initializing a V1 LLM engine "
        "(v0.32.0) with config: model='/m', quantization=None, enforce_eager=False"
    ),
    (
        "(EngineCore pid=37) INFO 11-30 09:02:42 [gpu_model_runner.py:1] CUDA graphs take more. "
        "If you are running out of memory, consider decreasing `gpu_memory_utilization`"
    ),
    *FACTS.splitlines(),
    "(APIServer pid=7) INFO 11-30 09:02:50 [launcher.py:37] Starting vLLM server on http://h:1",
    "(APIServer pid=7) INFO:     Application startup complete.",
    (
        "(APIServer pid=7) INFO 11-30 09:03:00 [loggers.py:300] Engine 000: Avg prompt throughput: "
        "1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%"
    ),
)
CORE = "(EngineCore pid=37) ERROR 11-30 09:03:15 [core.py:700] "
FAILED = {
    "sigill": (
        "RuntimeError: Worker proc VllmWorker-0 died unexpectedly (exit code: -4)",
        "engine.dtype=float32",
    ),
    "length": (
        (
            "ValueError: User-specified max_model_len (9000) is greater than the derived "
            "max_model_len (max_position_embeddings=2048 or model_max_length=None)"
        ),
        "lower engine.max_model_len",
    ),
    "quantization": (
        "ValueError: Unknown quantization method: x. Must be one of ['awq']",
        "engine.quantization",
    ),
    "checkpoint": (
        (
            "ValueError: Quantization method specified in the model config (awq) does not match "
            "the quantization method specified in the `quantization` argument (gptq)."
        ),
        "engine.quantization",
    ),
    "bfloat16": (
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
        "engine.dtype=half",
    ),
    "architecture": (
        "ValueError: Model architectures ['XForCausalLM'] are not supported for now.",
        "another model",
    ),
    "others": (
        (
            "ValueError: Free memory on device cuda:0 (5.01/6.0 GiB) on startup is less than "
            "desired GPU memory utilization (0.92, 5.5 GiB)."
        ),
        "engine.memory_fraction",
    ),
    "too little memory": (
        (
            "ValueError: Available memory on node 0 (3.1/15.8 GiB) on kv cache allocation is less "
            "than requested memory for kv (4.0 GiB). Decrease --kv-cache-memory-bytes."
        ),
        "VLLM_CPU_KVCACHE_SPACE",
    ),
    "one request": (
        (
            "ValueError: To serve at least one request with the model's max seq len (131072), "
            "(4.00 GiB KV cache is needed, which is larger than the available KV cache memory "
            "(0.65 GiB)."
        ),
        "lower engine.max_model_len",
    ),
    "one request, older": (
        "ValueError: To serve at least one request with the models's max seq len (131072), no room",
        "lower engine.max_model_len",
    ),
    "no blocks": (
        "ValueError: No available memory for the cache blocks. Try increasing it.",
        "raise engine.memory_fraction",
    ),
    "gpu memory": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "not enough GPU memory",
    ),
    "memory": ("RuntimeError: DefaultCPUAllocator: can't allocate memory", "not enough memory"),
    "no gpu": ("RuntimeError: Failed to infer device type", "engine=vllm_cpu"),
    "path": (
        (
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            "'namespace/repo_name': '/nowhere'. Use `repo_type` argument if needed."
        ),
        "model.path",
    ),
    "offline": (
        "OSError: We couldn't connect to 'https://hub' to load the files",
        "model.path=FOLDER",
    ),
    "not kept": ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find", "model.path"),
    "port": ("OSError: [Errno 98] Address already in use", "launch.port"),
    "flag": ("api_server.py: error: unrecognized arguments: --nonsense 1", "engine.args"),
    "value": ("api_server.py: error: argument --max-num-seqs: invalid int value", "engine.args"),
    "command": (
        "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm",
        "leave engine.program out",
    ),
    "torchvision": ("RuntimeError: operator torchvision::nms does not exist", "overrides"),
    "module": ("ModuleNotFoundError: No module named 'vllm'", "bakeoff engines install"),
    "engine": (
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
            "proc(s): {'EngineCore_0': 1}"
        ),
        "further up",
    ),
    "start": ("EngineCore failed to start.", "further up"),
    "fatal": ("EngineCore encountered a fatal error.", "further up"),
    "worker": (
        "RuntimeError: Worker proc VllmWorker-1 died unexpectedly (exit code: 1)",
        "further up",
    ),
}


def log_with(line: str) -> str:
    """A log of 200 lines: healthy, then the failure with what always follows one."""
    after = [
        f"{CORE}Traceback (most recent call last):",
        *(f'{CORE}  File "/x.py", line {n}, in run' for n in range(30)),
        f"{CORE}{line}",
        *(f'(APIServer pid=7)   File "/y.py", line {n}, in main' for n in range(20)),
    ]
    before = [HEALTHY[n % len(HEALTHY)] for n in range(200 - len(after))]
    return "\n".join([*before, *after]) + "\n"


@pytest.mark.parametrize("name", FAILED)
def test_a_known_failure_is_told_in_the_engines_own_words(name: str) -> None:
    line, advice = FAILED[name]
    log = log_with(line)
    assert len(log.splitlines()) == 200
    diagnosis = VLLM.diagnose(log)
    assert diagnosis is not None
    assert diagnosis.reason == line
    assert advice in diagnosis.advice


def test_the_root_of_a_failure_goes_before_what_follows_from_it() -> None:
    root = "ValueError: No available memory for the cache blocks."
    log = log_with(root) + f"{CORE}{FAILED['engine'][0]}\n{CORE}{FAILED['start'][0]}\n"
    diagnosis = VLLM.diagnose(log)
    assert diagnosis is not None
    assert diagnosis.reason == root


def test_a_healthy_log_is_no_failure() -> None:
    log = "\n".join(HEALTHY[n % len(HEALTHY)] for n in range(200))
    assert len(log.splitlines()) == 200
    assert VLLM.diagnose(log) is None
    assert VLLM_CPU.diagnose(CPU_FACTS) is None
