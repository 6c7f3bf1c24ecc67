"""TensorRT-LLM: settings, requests, streams and figures. Golden bytes are written after the
sources of trtllm-serve 1.2 (no server was recorded)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.settings import DECLARED
from adapters.tensorrt_llm import TensorRtLlmAdapter
from adapters.tensorrt_llm_launch import OPTIONS_FILE, SETTINGS
from harness.adapter import ServeContext, ServeSpec
from harness.answer import Answer
from harness.config import SETTINGS as NEUTRAL
from harness.config import (
    EngineConf,
    ImageConf,
    LaunchMode,
    ModelConf,
    RecipeConf,
    Route,
    SpeculationConf,
)
from harness.errors import ConfigError
from harness.testing import AdapterSuite
from harness.types import EngineSample, ErrorClass, Provenance, Request, ResponseHead

CASES = Path(__file__).parent.parent / "data" / "cases"
MODEL = ModelConf(name="llama", repo="org/llama")
CTX = ServeContext(
    port=8100,
    python=Path("/env/bin/python"),
    model_path=Path("/models/llama"),
    folder=Path("/run/x"),
    cache_folder=Path("/cache"),
)
CONVERT = "/app/tensorrt_llm/examples/models/core/llama/convert_checkpoint.py"
REQUEST = Request(index=0, prompt="hi", input_tokens=1, max_output_tokens=8, seed=3)
STREAM = ResponseHead(status=200, headers={"content-type": "text/event-stream"})
HEAD = '"id":"cmpl-1","object":"text_completion","created":1,"model":"m"'
CHAT = '"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m"'
USAGE = (
    '"choices":[],"usage":{"prompt_tokens":5,"total_tokens":8,"completion_tokens":3,'
    '"prompt_tokens_details":{"cached_tokens":4}}'
)


def engine(**settings: Any) -> EngineConf:
    return EngineConf(name="tensorrt_llm", **settings)


def adapter_of(**settings: Any) -> TensorRtLlmAdapter:
    return TensorRtLlmAdapter(engine(**settings), MODEL)


def spec_of(ctx: ServeContext = CTX, **settings: Any) -> ServeSpec:
    return adapter_of(**settings).serve(engine(**settings), MODEL, ctx)


def file_of(**settings: Any) -> dict[str, Any]:
    text = spec_of(**settings).files[OPTIONS_FILE]
    said = json.loads(text)
    assert isinstance(said, dict)
    return said


def completion(text: str, finish: str = "null") -> str:
    return (
        f'data: {{{HEAD},"choices":[{{"index":0,"text":"{text}","token_ids":null,"logprobs":null,'
        f'"finish_reason":{finish},"stop_reason":null,"avg_decoded_tokens_per_iter":null}}],'
        '"usage":null} \n\n'
    )


def chat(delta: str, finish: str = "") -> str:
    return f'data: {{{CHAT},"choices":[{{"index":0,"delta":{{{delta}}}{finish}}}]}} \n\n'


COMPLETIONS_STREAM = "".join(
    [
        completion(" Paris"),
        completion(" is"),
        completion(".", '"length"'),
        f"data: {{{HEAD},{USAGE}}} \n\n",
        "data: [DONE]\n\n",
    ]
).encode()
CHAT_STREAM = "".join(
    [
        chat('"role":"assistant"'),
        chat('"content":" Paris"'),
        chat('"content":" is"'),
        chat('"content":"."', ',"finish_reason":"stop"'),
        f"data: {{{CHAT},{USAGE}}} \n\n",
        "data: [DONE]\n\n",
    ]
).encode()


class TestCompletions(AdapterSuite):
    adapter = adapter_of()
    body = COMPLETIONS_STREAM
    output_tokens, prompt_tokens, token_chunks = 3, 5, 3
    text, finish_reason = " Paris is.", "length"


class TestChat(AdapterSuite):
    adapter = adapter_of(route=Route.CHAT)
    body = CHAT_STREAM
    output_tokens, prompt_tokens, token_chunks = 3, 5, 3
    text, finish_reason = " Paris is.", "stop"


def test_cached_tokens_are_read() -> None:
    answer = Answer(adapter_of().decoder(STREAM))
    answer.feed(0.0, COMPLETIONS_STREAM)
    assert answer.cached_tokens == 4


def test_a_stream_that_breaks_off_without_an_event_has_failed() -> None:
    answer = Answer(adapter_of().decoder(STREAM))
    answer.feed(0.0, completion(" Paris").encode())
    answer.end(1.0)
    assert answer.error is ErrorClass.INCOMPLETE_STREAM


def test_a_flat_error_is_read() -> None:
    answer = Answer(adapter_of().decoder(ResponseHead(status=400)))
    answer.feed(
        0.0,
        b'{"object":"error","message":"no room","type":"BadRequestError","param":null,"code":400}',
    )
    answer.end(0.0)
    assert (answer.error, answer.error_message) == (ErrorClass.HTTP_4XX, "no room")


@pytest.mark.parametrize("route", list(Route))
def test_a_request_names_only_fields_that_every_version_knows(route: Route) -> None:
    call = adapter_of(route=route).encode(REQUEST)
    body = json.loads(call.body)
    prompt = {"prompt": "hi"} if route is Route.COMPLETIONS else {}
    messages = {"messages": [{"role": "user", "content": "hi"}]} if route is Route.CHAT else {}
    assert body == {
        "model": "llama",
        **prompt,
        **messages,
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "ignore_eos": True,
    }
    sampled = json.loads(adapter_of(route=route).encode(replace(REQUEST, temperature=0.5)).body)
    assert (sampled["temperature"], sampled["top_p"], sampled["seed"]) == (0.5, 1.0, 3)


def test_every_neutral_setting_has_a_row_in_every_flow() -> None:
    assert set(SETTINGS) == set(NEUTRAL) == set(DECLARED)
    assert set(adapter_of(args={"flow": "engine"}).settings) == set(NEUTRAL)


def test_the_pytorch_flow_is_said_in_flags_and_one_file() -> None:
    spec = spec_of()
    assert list(spec.argv) == [
        *("/env/bin/python", "/env/bin/trtllm-serve", "/models/llama", "--backend", "pytorch"),
        *("--host", "127.0.0.1", "--port", "8100"),
        *("--extra_llm_api_options", f"/run/x/{OPTIONS_FILE}", "--tp_size", "1", "--pp_size", "1"),
    ]
    assert (spec.base_url, spec.prepare) == ("http://127.0.0.1:8100", ())
    assert spec.files == {
        OPTIONS_FILE: (
            '{\n  "enable_iter_perf_stats": true,\n  "return_perf_metrics": false,\n'
            '  "kv_cache_config": {\n    "enable_block_reuse": false\n  }\n}\n'
        )
    }
    in_docker = spec_of(
        replace(CTX, mode=LaunchMode.DOCKER, python=None, model_path=None),
        image=ImageConf(reference="x:1.2.1", command=["trtllm-serve"]),
    )
    assert in_docker.argv[:2] == ("trtllm-serve", "org/llama")


def test_neutral_settings_in_the_engines_words() -> None:
    settings: dict[str, Any] = {
        "dtype": "bfloat16",
        "quantization": "FP8",
        "kv_dtype": "fp8",
        "kv_tokens": 4096,
        "prefix_cache": True,
        "chunked_prefill": True,
        "cuda_graphs": False,
        "speculation": SpeculationConf(method="draft", model="/draft", tokens=4),
        "lora": {"french": "/lora/french"},
        "max_model_len": 512,
        "max_running": 8,
        "tokens_per_step": 256,
        "tp": 2,
        "pp": 2,
        "gpus": [3, 2, 1, 0],
    }
    spec, said = spec_of(**settings), file_of(**settings)
    assert list(spec.argv[11:]) == [
        *("--max_seq_len", "512", "--max_batch_size", "8", "--max_num_tokens", "256"),
        *("--tp_size", "2", "--pp_size", "2"),
    ]
    assert spec.env == {"CUDA_VISIBLE_DEVICES": "3,2,1,0"}
    assert said == {
        "enable_iter_perf_stats": True,
        "return_perf_metrics": False,
        "dtype": "bfloat16",
        "quant_config": {"quant_algo": "FP8"},
        "kv_cache_config": {"dtype": "fp8", "max_tokens": 4096, "enable_block_reuse": True},
        "enable_chunked_prefill": True,
        "cuda_graph_config": None,
        "speculative_config": {
            "decoding_type": "Draft_Target",
            "max_draft_len": 4,
            "speculative_model_dir": "/draft",
        },
        "lora_config": {"lora_dir": ["/lora/french"], "max_loras": 1, "max_cpu_loras": 1},
    }
    assert file_of(memory_fraction=0.5)["kv_cache_config"]["free_gpu_memory_fraction"] == 0.5
    assert file_of(cuda_graphs=True)["cuda_graph_config"] == {}


def test_raw_arguments_are_keys_of_the_file_or_flags() -> None:
    args = {"stream_interval": 2, "kv_cache_config": {"host_cache_size": 9}, "--ep_size": 2}
    spec = spec_of(args=args, prefix_cache=True)
    assert spec.argv[11:13] == ("--ep_size", "2")
    said = json.loads(spec.files[OPTIONS_FILE])
    assert said["stream_interval"] == 2
    assert said["kv_cache_config"] == {"enable_block_reuse": True, "host_cache_size": 9}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"args": {"flow": "triton"}}, r"args\.flow=triton: must be one of: pytorch, engine"),
        ({"args": {"dtype": "x"}}, r"args\.dtype=x: is set by bakeoff; use engine\.dtype"),
        (
            {"args": {"kv_cache_config": {"max_tokens": 1}}},
            r"args\.kv_cache_config\.max_tokens=1: is set by bakeoff; use engine\.kv_tokens",
        ),
        ({"args": {"cuda_graph_config": None}}, r"cuda_graph_config=None: is set by bakeoff"),
        (
            {"args": {"cuda_graph_config": {"max_batch_size": 8}}, "cuda_graphs": False},
            r"args\.cuda_graph_config=.*engine\.cuda_graphs=false switches",
        ),
        ({"args": {"--tp_size": 2}}, r"args\.--tp_size=2: is set by bakeoff; use engine\.tp"),
        ({"args": {"--config": "x"}}, r"args\.--config=x: is set by bakeoff; use engine\.args"),
        ({"threads": 2}, r"engine\.threads=2: engine=tensorrt_llm has no word for CPU threads"),
        ({"speculation": SpeculationConf(method="x")}, r"can be: draft, eagle, eagle3, mtp, ngram"),
        ({"speculation": SpeculationConf(method="ngram")}, r"needs engine\.speculation\.tokens"),
        (
            {"speculation": SpeculationConf(method="eagle3", tokens=3)},
            r"needs engine\.speculation\.model",
        ),
        ({"args": {"flow": "engine"}, "lora": {"a": "b"}}, r"only as engine=tensorrt_llm"),
        ({"args": {"flow": "engine"}, "quantization": "fp8"}, r"weights of int8 or int4"),
        ({"args": {"flow": "engine"}, "kv_dtype": "fp8"}, r"KV cache of int8"),
    ],
)
def test_what_the_engine_cannot_take_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        adapter_of(**settings)


def test_an_engine_is_converted_built_and_served() -> None:
    settings: dict[str, Any] = {
        "args": {"flow": "engine", "convert_checkpoint": CONVERT},
        "dtype": "float16",
        "quantization": "int8",
        "max_model_len": 2048,
        "max_running": 64,
        "cuda_graphs": True,
        "gpus": [1],
        "recipe": RecipeConf(packages=["tensorrt-llm==1.2.1"]),
    }
    spec = spec_of(**settings)
    convert, build = spec.prepare
    assert list(convert.argv) == [
        *("/env/bin/python", CONVERT, "--model_dir", "/models/llama"),
        *("--dtype", "float16", "--use_weight_only", "--weight_only_precision", "int8"),
        *("--tp_size", "1", "--pp_size", "1", "--output_dir", str(convert.output)),
    ]
    assert build.argv[0] == "/env/bin/trtllm-build"
    words = " ".join(build.argv)
    assert "--gemm_plugin auto --gpt_attention_plugin auto --remove_input_padding enable" in words
    assert "--context_fmha enable --kv_cache_type paged" in words
    assert "--max_seq_len 2048 --max_input_len 2048" in words
    assert "--max_batch_size 64 --use_paged_context_fmha disable" in words
    assert words.endswith(f"--checkpoint_dir {convert.output} --output_dir {build.output}")
    assert {convert.output.parent, build.output.parent} == {Path("/cache")}
    assert convert.env == build.env == {"CUDA_VISIBLE_DEVICES": "1"}
    assert list(spec.argv[1:7]) == [
        *("/env/bin/trtllm-serve", str(build.output), "--backend", "tensorrt"),
        *("--tokenizer", "/models/llama"),
    ]
    said = json.loads(spec.files[OPTIONS_FILE])
    assert said["extended_runtime_perf_knob_config"] == {"cuda_graph_mode": True}
    assert "dtype" not in said
    assert "quant_config" not in said


def test_outputs_are_found_again_by_what_they_were_made_with() -> None:
    args = {"flow": "engine", "convert_checkpoint": CONVERT}

    def outputs(**settings: Any) -> list[Path]:
        return [step.output for step in spec_of(args=args, **settings).prepare]

    first = outputs(max_running=8)
    assert first == outputs(max_running=8)
    assert first == outputs(max_running=8, memory_fraction=0.5)
    longer = outputs(max_running=16)
    assert (longer[0], longer[1] != first[1]) == (first[0], True)
    assert outputs(max_running=8, dtype="bfloat16")[0] != first[0]
    assert outputs(max_running=8, prefix_cache=True)[1] != first[1]


@pytest.mark.parametrize(
    ("mode", "version", "is_refused"),
    [
        (LaunchMode.PROCESS, "1.2.1", False),
        (LaunchMode.PROCESS, "1.3.0rc21", True),
        (LaunchMode.DOCKER, "1.2.1", False),
        (LaunchMode.DOCKER, "1.3.0rc5", True),
        (LaunchMode.DOCKER, "2.0.0", True),
    ],
)
def test_a_version_without_the_engine_flow_is_refused(
    mode: LaunchMode, version: str, *, is_refused: bool
) -> None:
    is_docker = mode is LaunchMode.DOCKER
    settings: dict[str, Any] = {
        "args": {"flow": "engine", "convert_checkpoint": CONVERT},
        "recipe": RecipeConf(packages=[f"tensorrt-llm=={'9.9.9' if is_docker else version}"]),
        "image": ImageConf(
            reference=f"nvcr.io/nvidia/tensorrt-llm/release:{version if is_docker else '9.9.9'}",
            command=["trtllm-serve"],
        ),
    }
    ctx = replace(CTX, mode=mode)
    if not is_refused:
        assert len(spec_of(ctx, **settings).prepare) == 2
        return
    with pytest.raises(ConfigError, match=r"builds no engines any more .* 1\.3\.0rc21"):
        spec_of(ctx, **settings)


def test_what_a_built_engine_needs_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"engine\.args\.convert_checkpoint: not given"):
        spec_of(args={"flow": "engine"})
    args = {"flow": "engine", "convert_checkpoint": CONVERT}
    with pytest.raises(ConfigError, match=r"model\.path: not given"):
        spec_of(replace(CTX, model_path=None), args=args)


def test_a_lora_adapter_is_asked_for_by_name_number_and_folder() -> None:
    adapter = adapter_of(lora={"french": "/l/french", "dutch": "/l/dutch"})
    body = json.loads(adapter.encode(replace(REQUEST, lora="dutch")).body)
    assert body["lora_request"] == {
        "lora_name": "dutch",
        "lora_int_id": 1,
        "lora_path": "/l/dutch",
    }
    assert body["model"] == "llama"
    assert "lora_request" not in json.loads(adapter.encode(REQUEST).body)
    with pytest.raises(ConfigError, match=r"scenario\.lora=greek: is not loaded; engine\.lora has"):
        adapter.encode(replace(REQUEST, lora="greek"))


def test_c36_nothing_measured_is_not_zero() -> None:
    adapter = adapter_of()
    empty = adapter.engine_sample({"metrics": (CASES / "C36.empty.json").read_bytes()})
    assert empty == EngineSample()
    sample = adapter.engine_sample({"metrics": (CASES / "C36.json").read_bytes()})
    assert (sample.running, sample.waiting) == (2, None)
    assert (sample.kv_usage_ratio, sample.kv_provenance) == (0.25, Provenance.DERIVED)
    assert sample.generation_tokens_total is None
    assert adapter.engine_sample({}) == EngineSample()


def test_the_last_iteration_is_now() -> None:
    def iteration(running: int, waiting: int, used: int | None) -> dict[str, Any]:
        kv = {"maxNumBlocks": 10, "usedNumBlocks": used, "tokensPerBlock": 32}
        return {"numActiveRequests": running, "numQueuedRequests": waiting, "kvCacheStats": kv}

    body = json.dumps([iteration(1, 0, 1), iteration(3, 4, 5)]).encode()
    sample = adapter_of().engine_sample({"metrics": body})
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (3, 4, 0.5)
    for odd in ([iteration(1, 0, None)], [{"kvCacheStats": None}], [{"kvCacheStats": 3}], [None]):
        one = adapter_of().engine_sample({"metrics": json.dumps(odd).encode()})
        assert (one.kv_usage_ratio, one.kv_provenance) == (None, Provenance.NOT_EXPOSED)


@pytest.mark.parametrize("prefix", ["", "trtllm_"])
def test_prometheus_text_of_old_and_new_builds(prefix: str) -> None:
    labels = '{model_name="m",engine_type="undefined"}'
    values = {
        "num_requests_running": 3,
        "num_requests_waiting": 2,
        "kv_cache_utilization": 0.5,
        "prompt_tokens_total": 100,
        "prompt_cached_tokens_total": 10,
        "generation_tokens_total": 40,
        "kv_cache_max_blocks": 100,
        "kv_cache_tokens_per_block": 32,
    }
    text = "".join(f"{prefix}{name}{labels} {value}\n" for name, value in values.items()).encode()
    adapter = adapter_of(args={"return_perf_metrics": True})
    assert adapter.sample_probes == ("prometheus",)
    assert adapter.probes["prometheus"].path == "/prometheus/metrics"
    sample = adapter.engine_sample({"prometheus": text})
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (3, 2, 0.5)
    assert sample.kv_provenance is Provenance.MEASURED
    assert (sample.prompt_tokens_total, sample.prefix_cached_tokens_total) == (100, 10)
    assert sample.generation_tokens_total == 40
    assert adapter.identity({"prometheus": text}).kv_capacity_tokens == 3200
    assert adapter.engine_sample({"prometheus": b""}) == EngineSample()
    assert file_of(args={"return_perf_metrics": True})["return_perf_metrics"] is True


def test_the_json_figures_are_waited_for() -> None:
    metrics = adapter_of().probes["metrics"]
    assert adapter_of().sample_probes == ("metrics",)
    assert (metrics.path, metrics.method) == ("/metrics", "GET")
    assert metrics.hold_s >= 2


def test_identity_is_version_model_and_kv_capacity() -> None:
    bodies = {
        "version": b'{"version":"1.2.1"}',
        "models": b'{"object":"list","data":[{"id":"llama","owned_by":"tensorrt_llm"}]}',
        "metrics": (CASES / "C36.json").read_bytes(),
    }
    identity = adapter_of().identity(bodies)
    assert (identity.version, identity.model, identity.kv_capacity_tokens) == (
        "1.2.1",
        "llama",
        3200,
    )
    assert (identity.max_model_len_tokens, identity.is_emulated) == (None, False)


def test_the_log_tells_the_size_of_the_kv_cache() -> None:
    line = "[INFO] [MemUsageChange] Allocated {} GiB for max tokens in paged KV cache ({}).\n"
    facts = adapter_of().log_facts(line.format("1.50", 8192) + line.format("50.25", 1000000))
    assert (facts.kv_bytes, facts.kv_capacity_tokens) == (int(50.25 * 2**30), 1000000)
    assert adapter_of().log_facts(line.format("1.2.3", 32)).kv_bytes is None
    assert adapter_of().log_facts("").kv_capacity_tokens is None


NO_ROOM = "Executor creation failed due to insufficient GPU memory."
LOGS = {
    "[TRT-LLM] [E] ValueError: No GPU devices found on the node": (
        "ValueError: No GPU devices found on the node",
        "engine.gpus",
    ),
    "RuntimeError: Failed to bind socket to 127.0.0.1:8100: [Errno 98]": (
        "RuntimeError: Failed to bind socket to 127.0.0.1:8100: [Errno 98]",
        "launch.port",
    ),
    f"[11/30/2026-12:00:00] [TRT-LLM] [E] {NO_ROOM}": (NO_ROOM, "engine.memory_fraction"),
    f"[TensorRT-LLM][ERROR] {NO_ROOM}": (NO_ROOM, "engine.memory_fraction"),
    "The following component could not be created: KV cache": (
        "The following component could not be created: KV cache",
        "no room for the KV cache",
    ),
    "The following component could not be created: Model": (
        "The following component could not be created: Model",
        "engine.tp",
    ),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "out of GPU memory",
    ),
    "[TRT-LLM] [E] Failed to initialize executor on rank 1: x": (
        "Failed to initialize executor on rank 1: x",
        "engine's log",
    ),
    "RuntimeError: Executor worker returned error": (
        "RuntimeError: Executor worker returned error",
        "engine's log",
    ),
    "tensorrt_llm.executor.utils.CppExecutorError: broken": (
        "tensorrt_llm.executor.utils.CppExecutorError: broken",
        "while it served",
    ),
    "Error: No such option: --nope": ("Error: No such option: --nope", "engine.args"),
    "pydantic: 1 validation error for TorchLlmArgs": (
        "pydantic: 1 validation error for TorchLlmArgs",
        "engine.args",
    ),
    "ModuleNotFoundError: No module named 'tensorrt_llm'": (
        "ModuleNotFoundError: No module named 'tensorrt_llm'",
        "engines install tensorrt_llm",
    ),
}
HEALTHY = "".join(
    f"[11/30/2026-12:00:{k % 60:02}] [TRT-LLM] [I] {what}\n"
    for k, what in enumerate(
        200 * ["Setting PyTorch memory fraction to 0.9, KV cache is created, rank 0 is ready"]
    )
)


@pytest.mark.parametrize("line", LOGS)
def test_a_known_failure_is_told_in_the_engines_own_words(line: str) -> None:
    reason, advice = LOGS[line]
    diagnosis = adapter_of().diagnose(f"{HEALTHY}{line}\n{HEALTHY[:200]}")
    assert diagnosis is not None
    assert diagnosis.reason == reason
    assert advice in diagnosis.advice


def test_a_healthy_log_is_no_failure() -> None:
    assert len(HEALTHY.splitlines()) == 200
    assert adapter_of().diagnose(HEALTHY) is None


def test_the_adapter_stays_small() -> None:
    file = Path(__file__).parents[2] / "adapters" / "tensorrt_llm.py"
    assert 50 < len(file.read_text().splitlines()) < 100
