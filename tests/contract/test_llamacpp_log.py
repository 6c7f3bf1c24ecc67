"""llama.cpp's log: known failures in its own words, and what it says of its start."""

import pytest

from adapters.llamacpp import LlamaCppAdapter
from adapters.llamacpp_figures import FAILURES
from harness.config import EngineConf, ModelConf
from harness.types import LogFacts

ADAPTER = LlamaCppAdapter(EngineConf(name="llamacpp"), ModelConf(name="smol"))
START = """\
xllamacpp 2026.10.11549
0.00.000.275 I srv          init: initializing ...
0.00.002.078 I srv          init: build_info: b0-unknown
0.00.002.273 W srv          init: security: no API key is set and CORS allows all origins (see x)
0.00.003.537 I srv          init: loading model
0.00.003.583 I srv    load_model: loading model '/m.gguf'
0.00.188.565 I cmn          init: llama threadpool init, n_threads = 1
0.00.242.672 I srv    load_model: initializing, n_slots = 2, n_ctx_slot = 512, kv_unified = 'false'
0.00.242.715 W srv          init: --cache-idle-slots requires --cache-ram, disabling
0.00.244.893 I srv          init: model loaded
0.00.244.900 I srv          init: listening on http://127.0.0.1:18431
serving on http://127.0.0.1:18431
"""  # of the wheel 2026.10.11549, the model's path shortened
VERBOSE = """\
0.00.006.963 I cmn  common_param:   - CPU     : A CPU (24105 MiB, 24105 MiB free)
0.00.085.459 I print_info: file size   = 92.10 MiB (5.74 BPW)
0.00.246.546 I print_info: n_ctx_train           = 8192
0.00.251.275 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB
0.00.255.495 I llama_context: n_ctx                 = 1024
0.00.255.502 I llama_context: n_ctx_seq             = 512
0.00.255.627 I llama_context:        CPU  output buffer size =     0.38 MiB
0.00.255.750 I llama_kv_cache:        CPU KV buffer size =    22.50 MiB
0.00.268.031 I llama_kv_cache: size =   22.50 MiB (   512 cells,  30 layers,  2/2 seqs)
0.00.272.761 I sched_reserve:        CPU compute buffer size =    15.14 MiB
"""  # what the same server adds with -lv 4
REQUEST = """\
0.06.145.940 I slot get_availabl: id  1 | task -1 | selected slot by LRU, t_last = 26225873683
0.06.146.010 I slot launch_slot_: id  1 | task 8 | processing task, is_child = 0
0.06.196.611 I slot print_timing: id  1 | task 8 | prompt eval time =      32.62 ms /     2 tokens
0.06.196.620 I slot print_timing: id  1 | task 8 |    graphs reused =          1
0.06.196.633 I slot      release: id  1 | task 8 | stop processing: n_tokens = 3, truncated = 0
0.06.279.188 W srv    operator(): got exception: {"error":{"code":400,"message":"parse error"}}
"""
END = "0.00.010.080 E srv          init: exiting due to model loading error\n"
CLEAN_UP = "0.00.006.219 I srv    operator(): operator(): cleaning up before exit...\n"
LOGS = {
    "bind": (
        "0.00.004.186 E srv start: couldn't bind HTTP server socket, hostname: h, port: 8192\n",
        "start: couldn't bind HTTP server socket, hostname: h, port: 8192",
        "launch.port",
    ),
    "missing": (
        "0.00 E gguf_init: failed to open GGUF file '/m.gguf' (No such file or directory)\n",
        "gguf_init: failed to open GGUF file '/m.gguf' (No such file or directory)",
        "model.path",
    ),
    "magic": (
        "0.00.005.615 E gguf_init: invalid magic characters: 'l,?p', expected 'GGUF'\n",
        "gguf_init: invalid magic characters: 'l,?p', expected 'GGUF'",
        "not GGUF",
    ),
    "cut": (
        "0.00.020.594 E gguf_init_from_reader: failed to read key-value pairs\n",
        "gguf_init_from_reader: failed to read key-value pairs",
        "cut or damaged",
    ),
    "sigill": (
        "Fatal Python error: Illegal instruction\n\nThread 0x00007f (most recent call first):\n",
        "Fatal Python error: Illegal instruction",
        "no-repack",
    ),
    "memory": (
        "0.01.0 E alloc: failed to allocate CPU buffer of size 9\nfailed to create_context with m",
        "alloc: failed to allocate CPU buffer of size 9",
        "engine.max_running",
    ),
    "context": (
        "0.01.0 E llama: failed to create_context with model '/m.gguf'\n",
        "llama: failed to create_context with model '/m.gguf'",
        "engine.max_model_len",
    ),
    "full": (
        "0.01.0 E srv update_slots: Context size has been exceeded.\n",
        "update_slots: Context size has been exceeded.",
        "engine.max_model_len",
    ),
    "lora": (
        (
            "0.00.865.586 E llama_adapter_lora_init: failed to open: No such file or directory\n"
            "0.00.865.657 E cmn  common_init_: failed to load lora adapter '/a.gguf'\n"
            "0.00.865.672 E cmn  common_init_: failed to create context with model '/m.gguf'\n"
        ),
        "common_init_: failed to load lora adapter '/a.gguf'",
        "engine.lora",
    ),
    "damaged": (
        "0.0.07 E llama_model_load: tensor 'x' data is not within the file bounds, incomplete\n",
        "llama_model_load: tensor 'x' data is not within the file bounds, incomplete",
        "cut or damaged",
    ),
    "old": (
        "0.00.0 E llama_model_load: error loading model: unknown model architecture: 'new'\n",
        "llama_model_load: error loading model: unknown model architecture: 'new'",
        "too old",
    ),
    "gpu": (
        "0.01.0 E ggml_backend_cuda_buffer_type_alloc_buffer: unable to allocate CUDA0 buffer\n",
        "ggml_backend_cuda_buffer_type_alloc_buffer: unable to allocate CUDA0 buffer",
        "engine.max_running",
    ),
    "download": (
        "0.00.0 E common_download: failed to download from 'u'\n",
        "common_download: failed to download from 'u'",
        "model.path",
    ),
    "http": (
        "0.00.0 E srv init: exiting due to HTTP server error\n",
        "init: exiting due to HTTP server error",
        "log",
    ),
    "choice": (
        "xllamacpp_server: error: argument -fa/--flash-attn: invalid choice: 'x'\n",
        "xllamacpp_server: error: argument -fa/--flash-attn: invalid choice: 'x'",
        "engine.args",
    ),
    "flag": ("error: invalid argument: --x\n", "error: invalid argument: --x", "engine.args"),
    "module": (
        "ModuleNotFoundError: No module named 'xllamacpp'\n",
        "ModuleNotFoundError: No module named 'xllamacpp'",
        "engines install",
    ),
    "load": (
        "0.00.009.771 E srv    load_model: failed to load model, '/m.gguf'\n",
        "load_model: failed to load model, '/m.gguf'",
        "model.path",
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_a_known_failure_is_told_in_the_engines_own_words(name: str) -> None:
    log, reason, advice = LOGS[name]
    whole = START + REQUEST * 30 + log + CLEAN_UP + (END if name != "http" else "")
    assert len(whole.splitlines()) >= 190
    for said in (whole, f"0.0 I ok\n{log}{END}"):
        diagnosis = ADAPTER.diagnose(said)
        if name == "http" and said is not whole:
            continue  # the model's own failure is the more telling one
        assert diagnosis is not None
        assert diagnosis.reason == reason
        assert advice in diagnosis.advice


def test_every_known_failure_is_tried() -> None:
    advices = {failure.advice for failure in FAILURES}
    found = {ADAPTER.diagnose(log) for log, _, _ in LOGS.values()}
    assert {one.advice for one in found if one is not None} == advices


def test_a_healthy_log_shows_no_failure() -> None:
    healthy = START + VERBOSE + REQUEST * 30
    assert len(healthy.splitlines()) >= 190
    assert ADAPTER.diagnose(healthy) is None


def test_the_last_line_of_its_kind_is_the_reason() -> None:
    log = "a: No such file or directory: one\nb: No such file or directory: two\nexiting\n"
    diagnosis = ADAPTER.diagnose(log)
    assert diagnosis is not None
    assert diagnosis.reason == "b: No such file or directory: two"


def test_the_log_says_the_context_and_how_long_the_start_took() -> None:
    facts = ADAPTER.log_facts(START + REQUEST)
    assert facts.load_s == pytest.approx(0.244893 - 0.003583)
    assert facts.kv_capacity_tokens == 2 * 512
    assert (facts.weights_bytes, facts.kv_bytes, facts.compile_s) == (None, None, None)


def test_a_verbose_log_says_the_sizes_too() -> None:
    facts = ADAPTER.log_facts(VERBOSE + START)
    assert (facts.weights_bytes, facts.kv_bytes) == (round(92.1 * 2**20), round(22.5 * 2**20))
    assert ADAPTER.log_facts(VERBOSE).kv_capacity_tokens == 1024
    two = VERBOSE + "0.0 I load_tensors:        CUDA0 model buffer size =   100.00 MiB\n"
    assert ADAPTER.log_facts(two).weights_bytes == round(192.1 * 2**20)


def test_a_shared_pool_is_counted_once_and_minutes_are_understood() -> None:
    line = "I srv load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'\n"
    assert ADAPTER.log_facts(line).kv_capacity_tokens == 4096
    assert ADAPTER.log_facts(line.partition(", kv")[0]).kv_capacity_tokens == 4 * 4096
    slow = START.replace("0.00.244.893 I", "2.05.000.250 I")
    assert ADAPTER.log_facts(slow).load_s == pytest.approx(125.00025 - 0.003583)


@pytest.mark.parametrize("log", ["", "\xff\x00", "n_slots = , n_ctx_slot", "model loaded", END])
def test_what_the_log_does_not_say_is_none(log: str) -> None:
    assert ADAPTER.log_facts(log) == LogFacts()
    cut = START.partition("0.00.242.672")[0] + log
    assert ADAPTER.log_facts(cut) == LogFacts()
