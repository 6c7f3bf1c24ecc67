import json
from pathlib import Path
from typing import Any

import pytest

from adapters.transformers import TransformersAdapter
from harness.adapter import ServeContext, ServeSpec
from harness.config import (
    SETTINGS,
    EngineConf,
    ImageConf,
    LaunchMode,
    ModelConf,
    Route,
    SpeculationConf,
)
from harness.errors import ConfigError
from harness.types import LogFacts, Request

MODEL = ModelConf(name="smollm2")
CTX = ServeContext(port=8190, python=Path("/env/bin/python"), model_path=Path("/m"), threads=3)
REQUEST = Request(index=0, prompt="hello", input_tokens=1, max_output_tokens=8, seed=7)
WARM = Request(index=0, prompt="x", input_tokens=1, max_output_tokens=8, temperature=0.5, seed=7)


def continuous(**settings: Any) -> EngineConf:
    return EngineConf(name="transformers", **{"prefix_cache": True, **settings})


def one_at_a_time(**settings: Any) -> EngineConf:
    return EngineConf(name="transformers", max_running=1, **settings)


def spec_of(conf: EngineConf, ctx: ServeContext = CTX, model: ModelConf = MODEL) -> ServeSpec:
    return TransformersAdapter(conf, model).serve(conf, model, ctx)


def body_of(conf: EngineConf, request: Request = REQUEST, model: ModelConf = MODEL) -> Any:
    return json.loads(TransformersAdapter(conf, model).encode(request).body)


def config_of(conf: EngineConf, request: Request = REQUEST) -> Any:
    text = body_of(conf, request)["generation_config"]
    assert isinstance(text, str)  # an object is a 500
    return json.loads(text)


def test_the_mode_is_said_and_nothing_is_fetched() -> None:
    spec = spec_of(continuous())
    assert spec.argv == (
        *("/env/bin/python", "/env/bin/transformers", "serve", "/m", "--host", "127.0.0.1"),
        *("--port", "8190", "--continuous-batching"),
    )
    assert spec.base_url == "http://127.0.0.1:8190"
    assert spec.env == {
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "3",
    }
    assert spec_of(one_at_a_time()).argv[-1] == "--no-continuous-batching"


def test_a_model_of_a_hub_may_be_fetched() -> None:
    ctx = ServeContext(port=1, python=CTX.python)
    spec = spec_of(continuous(), ctx, ModelConf(name="m", repo="org/m"))
    assert spec.argv[2:4] == ("serve", "org/m")
    assert "HF_HUB_OFFLINE" not in spec.env


def test_neutral_settings_become_the_servers_flags() -> None:
    conf = continuous(
        dtype="float32",
        quantization="bnb-8bit",
        tokens_per_step=512,
        kv_tokens=1000,
        chunked_prefill=True,
        cuda_graphs=False,
        gpus=[3],
        threads=2,
        args={"device": "cpu", "attn_implementation": "sdpa", "compile": True},
        env={"A": "b"},
    )
    spec = spec_of(conf)
    line = " ".join(spec.argv[9:])
    assert line == (
        "--dtype float32 --quantization bnb-8bit --cb-max-batch-tokens 512 --cb-num-blocks 4 "
        "--no-cb-use-cuda-graph --device cpu --attn-implementation sdpa --compile"
    )
    assert (spec.env["CUDA_VISIBLE_DEVICES"], spec.env["OMP_NUM_THREADS"]) == ("3", "2")
    assert spec.env["A"] == "b"
    fraction = spec_of(continuous(memory_fraction=0.5, cuda_graphs=True)).argv[9:]
    assert fraction == ("--cb-max-memory-percent", "0.5", "--cb-use-cuda-graph")


@pytest.mark.parametrize("conf", [continuous(), one_at_a_time()])
def test_every_neutral_key_has_a_row(conf: EngineConf) -> None:
    assert set(TransformersAdapter(conf, MODEL).settings) == set(SETTINGS)


def test_a_program_or_an_image_of_ones_own_takes_the_same_words() -> None:
    mine = spec_of(continuous(program="/opt/transformers"))
    assert mine.argv[:3] == ("/opt/transformers", "serve", "/m")
    ctx = ServeContext(port=8190, host="0.0.0.0", mode=LaunchMode.DOCKER, model_path=Path("/m"))
    image = ImageConf(reference="mine/transformers:5.24", command=["transformers"])
    boxed = spec_of(continuous(image=image), ctx)
    assert boxed.argv[:5] == ("transformers", "serve", "/m", "--host", "0.0.0.0")
    assert boxed.base_url == "http://127.0.0.1:8190"
    with pytest.raises(ConfigError, match=r"launch.mode=docker: .* has no image of its makers"):
        spec_of(continuous(), ctx)


BATCH = "in continuous batching"
REFUSED: list[tuple[EngineConf, str]] = [
    (continuous(max_running=8), r"engine.max_running=8: .* has no flag for a number"),
    (continuous(prefix_cache=False), r"engine.prefix_cache=False: .* has no switch"),
    (one_at_a_time(prefix_cache=True), r"engine.prefix_cache=True: .* keeps nothing"),
    (one_at_a_time(kv_tokens=512), f"engine.kv_tokens=512: .* only {BATCH}"),
    (one_at_a_time(memory_fraction=0.5), f"engine.memory_fraction=0.5: .* only {BATCH}"),
    (one_at_a_time(tokens_per_step=9), f"engine.tokens_per_step=9: .* only {BATCH}"),
    (one_at_a_time(cuda_graphs=True), r"engine.cuda_graphs=True: .*args.compile"),
    (one_at_a_time(chunked_prefill=True), r"engine.chunked_prefill=True: .* each prompt whole"),
    (continuous(chunked_prefill=False), r"engine.chunked_prefill=False: .* always cuts"),
    (continuous(max_model_len=99), r"engine.max_model_len=99: .* no flag for a limit"),
    (continuous(kv_dtype="fp8"), r"engine.kv_dtype=fp8: .* engine.dtype"),
    (continuous(dtype="fp8"), r"engine.dtype=fp8: .* can be: auto, bfloat16, float16, float32"),
    (continuous(quantization="awq"), r"engine.quantization=awq: .* bnb-4bit, bnb-8bit"),
    (continuous(tp=2), r"engine.tp=2: .* no tensor parallelism"),
    (continuous(pp=2), r"engine.pp=2: .* spreads layers"),
    (continuous(lora={"a": "b"}), r"engine.lora=.*: .* no LoRA"),
    (continuous(speculation=SpeculationConf(method="ngram")), r"speculation=ngram: .* nothing"),
    (continuous(args={"port": 1}), r"engine.args.port=1: is set by bakeoff; use launch.port"),
    (continuous(args={"continuous_batching": True}), r"use engine.max_running"),
    (continuous(args={"cb-num-blocks": 4}), r"use engine.kv_tokens"),
    (continuous(kv_tokens=256, args={"cb_block_size": 16}), r"cb_block_size=16: .* give one"),
    (one_at_a_time(args={"cb_block_size": 16}), f"engine.args.cb_block_size=16: .* {BATCH}"),
]


@pytest.mark.parametrize(("conf", "message"), REFUSED)
def test_what_the_engine_cannot_take_is_refused(conf: EngineConf, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TransformersAdapter(conf, MODEL)


def test_a_page_of_another_size_is_a_raw_flag_of_continuous_batching() -> None:
    assert spec_of(continuous(args={"cb_block_size": 16})).argv[-2:] == ("--cb-block-size", "16")


def test_a_name_cannot_be_chosen_and_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match=r"model.served_name=x: .* it was started with"):
        spec_of(continuous(), model=ModelConf(name="m", served_name="x"))
    with pytest.raises(ConfigError, match="bakeoff engines install transformers"):
        spec_of(continuous(), ServeContext(port=1, model_path=Path("/m")))
    with pytest.raises(ConfigError, match=r"model.path: not given"):
        spec_of(continuous(), ServeContext(port=1, python=Path("/env/bin/python")))


def test_a_completion_request_has_only_fields_that_the_server_knows() -> None:
    call = TransformersAdapter(continuous(), MODEL).encode(REQUEST)
    assert (call.method, call.path) == ("POST", "/v1/completions")
    body = json.loads(call.body)
    assert isinstance(body.pop("generation_config"), str)
    assert body == {"prompt": "hello", "max_tokens": 8, "stream": True, "temperature": 0.0}


def test_the_length_is_forced_by_what_the_mode_heeds() -> None:
    greedy = {"max_new_tokens": 8, "do_sample": False, "num_beams": 1, "repetition_penalty": 1.0}
    assert config_of(continuous()) == {**greedy, "eos_token_id": -1}
    assert config_of(one_at_a_time()) == {**greedy, "min_new_tokens": 8}


def test_sampling_is_unfiltered_and_only_one_at_a_time() -> None:
    body = body_of(one_at_a_time(), WARM)
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.5, 1.0, 7)
    config = config_of(one_at_a_time(), WARM)
    assert (config["do_sample"], config["top_k"], config["min_new_tokens"]) == (True, 0, 8)
    with pytest.raises(ConfigError, match=r"temperature=0.5: .* sampling of its first request"):
        body_of(continuous(), WARM)


def test_a_chat_request_and_a_name_for_a_server_that_runs_already() -> None:
    conf = continuous(route=Route.CHAT)
    call = TransformersAdapter(conf, MODEL).encode(REQUEST)
    assert call.path == "/v1/chat/completions"
    body = body_of(conf, model=ModelConf(name="m", served_name="org/m"))
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert body["model"] == "org/m"


def test_an_adapter_for_a_request_is_refused() -> None:
    request = Request(index=0, prompt="x", input_tokens=1, max_output_tokens=1, lora="french")
    with pytest.raises(ConfigError, match=r"scenario.lora=french: .* serves no adapters"):
        TransformersAdapter(continuous(), MODEL).encode(request)


def test_what_it_can_do_depends_on_the_mode() -> None:
    batch = TransformersAdapter(continuous(), MODEL)
    single = TransformersAdapter(one_at_a_time(), MODEL)
    assert (batch.capabilities.prefix_cache_off, single.capabilities.prefix_cache_off) == (
        False,
        True,
    )
    assert batch.capabilities.forced_length
    assert not batch.capabilities.metrics
    assert (set(batch.probes), batch.sample_probes) == ({"health", "models"}, ())


START = """[transformers] Loading ./smollm2-hf
Loading weights:   0%|          | 0/272 [00:00<?, ?it/s]
Loading weights: 100%|██████████| 272/272 [00:00<00:00, 22317.11it/s]
INFO:     Started server process [17641]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://127.0.0.1:18461 (Press CTRL+C to quit)
"""
ASKED = """INFO:     127.0.0.1:54576 - "GET /health HTTP/1.1" 200 OK
[transformers] [Request received] Model: ./smollm2-hf, CB: False
INFO:     127.0.0.1:56240 - "POST /v1/completions HTTP/1.1" 200 OK
[transformers] The following generation flags are not valid and may be ignored: ['temperature'].
[transformers] `eos_token_id` should consist of positive integers, but is tensor([-1]). Your \
generation will not stop until the maximum length is reached. Depending on other flags, it may \
even crash.
"""
TRACE = 'Traceback (most recent call last):\n  File "serve.py", line 1, in f\n    raise error\n'
FAILED = [  # a line as the server wrote it, and what its advice has
    (
        (
            "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 18461): "
            "address already in use"
        ),
        "launch.port",
    ),
    ("Error: No such option '--max-num-seqs'.", "engine.args"),
    (
        (
            "OSError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
            "'/nosuch/model'. Use `repo_type` argument if needed."
        ),
        "check model.path",
    ),
    ("OSError: Repo id must use alphanumeric chars", "check model.path"),
    (
        (
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and "
            "couldn't find them in the cached files."
        ),
        "not on this machine",
    ),
    ("OSError: x/y is not a local folder and is not a valid model identifier", "model.repo"),
    (
        "ValueError: Unrecognized processing class in /empty. Can't instantiate a processor",
        "tokenizer.json",
    ),
    (
        (
            "ValueError: The checkpoint you are trying to load has model type `nosuch` but "
            "Transformers does not recognize this architecture."
        ),
        "pin a newer one",
    ),
    (
        (
            "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: "
            "incomplete metadata, file not fully covered"
        ),
        "cut or damaged",
    ),
    (
        (
            "ImportError: Using `bitsandbytes` 4-bit quantization requires bitsandbytes: `pip "
            "install -U bitsandbytes>=0.46.1`"
        ),
        "add a pinned bitsandbytes",
    ),
    ("ValueError: Unsupported dtype: 'floaty'. Must be 'auto' or a valid", "engine.dtype"),
    ("ValueError: Unsupported quantization method: 'awq'.", "engine.quantization"),
    ("ImportError: FlashAttention2 has been toggled on, but it cannot be", "attn_implementation"),
    ("ValueError: Unsupported attention implementation: 'nosuch'.", "attn_implementation"),
    ("AssertionError: Torch not compiled with CUDA enabled", "engine.args.device"),
    ("MemoryError: Memory footprint 99 is more than available memory 9", "KV cache"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "not enough mem"),
    (
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: "
            "can't allocate memory: you tried to allocate 9 bytes."
        ),
        "not enough memory",
    ),
    ("Fatal Python error: Illegal instruction", "engine.dtype=float32"),
    ("ModuleNotFoundError: No module named 'fastapi'", "engines install"),
    ("ImportError: Missing dependencies for serving. Install with `pip", "engines install"),
    (
        (
            "2026-11-30 17:41:44,972 - ContinuousBatchingLogger - ERROR - Error in generation "
            "loop: cannot reshape tensor of 0 elements"
        ),
        "an empty prompt",
    ),
    ("Segmentation fault (core dumped)", "engine's log"),
]


@pytest.mark.parametrize(("line", "advice"), FAILED, ids=lambda text: text[:30])
def test_a_known_failure_is_found_in_a_long_log(line: str, advice: str) -> None:
    log = START + ASKED * 40 + TRACE + line + "\n" + ASKED * 8
    assert len(log.splitlines()) >= 200
    diagnosis = TransformersAdapter(continuous(), MODEL).diagnose(log)
    assert diagnosis is not None
    assert line.endswith(diagnosis.reason)
    assert advice in diagnosis.advice


def test_a_healthy_log_is_no_failure() -> None:
    assert TransformersAdapter(continuous(), MODEL).diagnose(START + ASKED * 40) is None


def test_the_time_to_load_is_that_of_the_progress_bar() -> None:
    adapter = TransformersAdapter(continuous(), MODEL)
    slow = START.replace("272/272 [00:00<", "272/272 [01:02<")
    assert adapter.log_facts(slow) == LogFacts(load_s=62.0)
    hours = START.replace("272/272 [00:00<", "272/272 [1:00:02<")
    assert adapter.log_facts(hours) == LogFacts(load_s=3602.0)
    assert adapter.log_facts(START) == LogFacts()  # below what the bar can tell
    assert adapter.log_facts("") == LogFacts()
