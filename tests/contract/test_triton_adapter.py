"""Triton with TensorRT-LLM: settings, requests, streams, figures. Golden bytes are written after
its sources and the generate extension (no server was recorded)."""

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapters.settings import values_of
from adapters.triton import TritonAdapter
from adapters.triton_launch import SCRIPT
from harness.adapter import ServeContext, ServeSpec
from harness.answer import Answer
from harness.config import SETTINGS, EngineConf, ImageConf, LaunchMode, ModelConf, Route
from harness.errors import ConfigError
from harness.testing import AdapterSuite
from harness.types import EngineSample, ErrorClass, Provenance, Request, ResponseHead

MODEL = ModelConf(name="llama")
IMAGE = ImageConf(
    reference="nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3", command=["tritonserver"]
)
CTX = ServeContext(
    port=8100,
    mode=LaunchMode.DOCKER,
    model_path=Path("/models/llama"),
    folder=Path("/run/x"),
    cache_folder=Path("/cache"),
)
ARGS = {"convert_checkpoint": "/app/convert_checkpoint.py"}
REQUEST = Request(index=0, prompt="hi", input_tokens=1, max_output_tokens=8, seed=3)
STREAM = ResponseHead(status=200, headers={"content-type": "text/event-stream"})


def engine(**settings: Any) -> EngineConf:
    return EngineConf(name="triton", **{"image": IMAGE, "args": ARGS, **settings})


def adapter_of(**settings: Any) -> TritonAdapter:
    return TritonAdapter(engine(**settings), MODEL)


def spec_of(**settings: Any) -> ServeSpec:
    return adapter_of(**settings).serve(engine(**settings), MODEL, CTX)


def event(text: Any, **counts: int) -> bytes:
    body = {"model_name": "ensemble", "model_version": "1", "text_output": text, **counts}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def answer_of(*events: bytes) -> Answer:
    answer = Answer(adapter_of().decoder(STREAM))
    for k, one in enumerate(events):
        answer.feed(float(k), one)
    answer.end(float(len(events)))
    return answer


COUNTS = {"num_input_tokens": 5, "num_output_tokens": 1}


class TestStream(AdapterSuite):
    adapter = adapter_of()
    body = b"".join(event(text, **COUNTS) for text in (" Paris", " is", "."))
    output_tokens, prompt_tokens, token_chunks = 3, 5, 3
    text = " Paris is."
    finish_reason = None


class TestStreamWithoutCounts(AdapterSuite):
    adapter = adapter_of()
    body = b"".join(event(text) for text in (" Paris", " is", " it."))
    output_tokens, prompt_tokens, token_chunks = None, None, 3
    text = " Paris is it."
    finish_reason = None


def test_accumulated_text_is_taken_apart() -> None:
    answer = answer_of(
        *(
            event(text, num_output_tokens=count)
            for count, text in enumerate((" la", " la la", " la la", " la la la"), 1)
        )
    )
    assert (answer.text, answer.output_tokens, answer.error) == (" la la la", 4, None)
    assert answer.chunk_tokens == [1, 1, 1, 1]


def test_equal_pieces_of_new_text_stay_apart() -> None:
    answer = answer_of(*(event(" la", num_output_tokens=1) for _ in range(3)))
    assert (answer.text, answer.output_tokens) == (" la la la", 3)


def test_a_piece_may_come_in_a_list_and_an_empty_one_is_a_token_by_its_count() -> None:
    answer = answer_of(event(["é"], num_output_tokens=2), event("", num_output_tokens=1))
    assert (answer.text, answer.output_tokens, answer.chunk_tokens) == ("é", 3, [2, 1])


@pytest.mark.parametrize("rest", [b"d", b"data: ", event(" b")[:-1], event(" b")[:-9]])
def test_a_stream_that_ends_within_an_event_is_incomplete(rest: bytes) -> None:
    assert answer_of(event(" a"), rest).error is ErrorClass.INCOMPLETE_STREAM


def test_an_error_in_the_stream_and_one_instead_of_it() -> None:
    answer = answer_of(event(" a"), b'data: {"error":"Executor failed"}\n\n')
    assert (answer.error, answer.error_message) == (ErrorClass.STREAM_ERROR, "Executor failed")
    refused = Answer(adapter_of().decoder(ResponseHead(status=400)))
    refused.feed(0.0, b'{"error":"expected a text"}')
    refused.end(0.0)
    assert (refused.error, refused.error_message) == (ErrorClass.HTTP_4XX, "expected a text")


def test_a_request_asks_for_the_length_and_the_counts() -> None:
    call = adapter_of().encode(REQUEST)
    assert call.path == "/v2/models/ensemble/generate_stream"
    greedy = json.loads(call.body)
    assert greedy == {
        "text_input": "hi",
        "bad_words": "",
        "stop_words": "",
        "max_tokens": 8,
        "min_tokens": 8,
        "stream": True,
        "exclude_input_in_output": True,
        "return_num_input_tokens": True,
        "return_num_output_tokens": True,
        "top_k": 1,
    }
    sampled = json.loads(adapter_of().encode(replace(REQUEST, temperature=0.5)).body)
    assert sampled == {**greedy, "temperature": 0.5, "seed": 3, "top_k": 0, "top_p": 1.0}
    other = adapter_of(args={"model": "tensorrt_llm_bls"}).encode(REQUEST)
    assert other.path == "/v2/models/tensorrt_llm_bls/generate_stream"


def test_the_server_is_started_on_its_own_ports_after_three_steps() -> None:
    settings: dict[str, Any] = {
        "max_running": 64,
        "max_model_len": 2048,
        "memory_fraction": 0.5,
        "chunked_prefill": True,
        "args": {**ARGS, "log-verbose": 1},
    }
    spec = spec_of(**settings)
    convert, build, fill = spec.prepare
    assert convert.argv[:2] == ("python3", "/app/convert_checkpoint.py")
    assert build.argv[0] == "trtllm-build"
    assert "--use_paged_context_fmha enable" in " ".join(build.argv)
    assert fill.argv[:4] == (
        *("python3", str(SCRIPT), "--templates"),
        "/app/all_models/inflight_batcher_llm",
    )
    values = json.loads(fill.argv[5])
    assert values["engine_dir"] == str(build.output)
    assert values["tokenizer_dir"] == "/models/llama"
    assert values["triton_max_batch_size"] == "64"
    assert values["decoupled_mode"] == "True"
    assert values["enable_kv_cache_reuse"] == "False"
    assert values["kv_cache_free_gpu_mem_fraction"] == "0.5"
    assert values["enable_chunked_context"] == "True"
    assert list(spec.argv) == [
        *("tritonserver", f"--model-repository={fill.output}"),
        *("--http-port=8100", "--metrics-port=8102"),
        *("--http-address=127.0.0.1", "--metrics-address=127.0.0.1", "--allow-grpc=false"),
        "--disable-auto-complete-config",
        "--backend-config=python,shm-region-prefix-name=prefix0_",
        *("--log-verbose", "1"),
    ]
    assert spec.base_url == "http://127.0.0.1:8100"
    assert SCRIPT.parent in spec.mounts
    assert fill.output != spec_of(**{**settings, "memory_fraction": 0.6}).prepare[2].output


def test_several_gpus_are_several_ranks() -> None:
    argv = spec_of(tp=2).argv
    assert argv[:5] == ("mpirun", "--allow-run-as-root", "-n", "1", "tritonserver")
    ranks = " ".join(argv).split(" : ")
    assert len(ranks) == 2
    assert "--load-model=tensorrt_llm" not in ranks[0]
    assert ranks[1].startswith("-n 1 tritonserver ")
    assert ranks[1].endswith("--model-control-mode=explicit --load-model=tensorrt_llm :")
    assert "prefix1_" in ranks[1]


def test_every_neutral_setting_has_a_row() -> None:
    assert set(adapter_of().settings) == set(SETTINGS)
    assert values_of(engine())["prefix_cache"] is False


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"route": Route.CHAT}, r"engine\.route=chat: engine=triton takes text, not messages"),
        ({"lora": {"a": "b"}}, r"only as engine=tensorrt_llm engine\.args\.flow=pytorch"),
        ({"threads": 4}, r"engine\.threads=4: engine=triton has no word for CPU threads"),
        (
            {"kv_dtype": "fp8"},
            r"kv_dtype=fp8: engine=triton converts to a KV cache of int8",
        ),
        ({"args": {"http-port": 1}}, r"args\.http-port=1: is set by bakeoff; use launch\.port"),
        ({"args": {"metrics_port_offset": 0}}, r"metrics_port_offset=0: must be an integer that"),
    ],
)
def test_what_it_cannot_take_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        adapter_of(**settings)


def test_what_is_missing_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"engine\.image\.reference: not given; .*trtllm-python"):
        spec_of(image=ImageConf(command=["tritonserver"]))
    with pytest.raises(ConfigError, match=r"engine\.args\.convert_checkpoint: not given"):
        spec_of(args={})
    with pytest.raises(ConfigError, match=r"lora=french: engine=triton has it by weights"):
        adapter_of().encode(replace(REQUEST, lora="french"))


METRICS = (
    b"# TYPE nv_trt_llm_request_metrics gauge\n"
    b'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 3\n'
    b'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 2\n'
    b'nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 64\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",version="1"} 0.25\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",version="1"} 100\n'
    b'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",version="1"} 64\n'
    b'nv_llm_output_token_len_sum{response_metric_type="total_output_tokens"} 500\n'
    b'nv_llm_input_token_len_sum{response_metric_type="total_input_tokens"} 900\n'
)


def test_figures_come_from_the_port_beside() -> None:
    adapter = adapter_of()
    assert (adapter.probes["metrics"].path, adapter.probes["metrics"].port_offset) == (
        "/metrics",
        2,
    )
    assert adapter_of(args={"metrics_port_offset": -1}).probes["metrics"].port_offset == -1
    sample = adapter.engine_sample({"metrics": METRICS})
    assert (sample.running, sample.waiting, sample.kv_usage_ratio) == (3, 2, 0.25)
    assert sample.kv_provenance is Provenance.MEASURED
    assert (sample.prompt_tokens_total, sample.generation_tokens_total) == (900, 500)
    assert adapter.engine_sample({"metrics": b"nv_inference_count 3\n"}) == EngineSample()


def test_identity_is_tritons_version_and_the_kv_capacity() -> None:
    server = b'{"name":"triton","version":"2.59.0","extensions":[]}'
    identity = adapter_of().identity({"server": server, "metrics": METRICS})
    assert (identity.version, identity.kv_capacity_tokens) == ("2.59.0", 6400)
    assert identity.is_emulated is False


PORT_TAKEN = "failed to start Metrics service: Unavailable - Socket '0.0.0.0:8102' already in use"


@pytest.mark.parametrize(
    ("line", "reason", "advice"),
    [
        (f"E1130 12:00:00.123456 1 server.cc:413] {PORT_TAKEN}", PORT_TAKEN, "launch.port"),
        (
            "error: creating server: Internal - failed to load all models",
            "error: creating server: Internal - failed to load all models",
            "model of the repository",
        ),
        (
            "[TensorRT-LLM][ERROR] Executor creation failed due to insufficient GPU memory.",
            "Executor creation failed due to insufficient GPU memory.",
            "engine.memory_fraction",
        ),
    ],
)
def test_a_known_failure_is_told(line: str, reason: str, advice: str) -> None:
    healthy = "I1130 12:00:00.0 1 http_server.cc:4692] Started HTTPService at 0.0.0.0:8100\n" * 200
    assert adapter_of().diagnose(healthy) is None
    diagnosis = adapter_of().diagnose(f"{healthy}{line}\n")
    assert diagnosis is not None
    assert diagnosis.reason == reason
    assert advice in diagnosis.advice


def test_the_repository_is_made_of_the_templates(tmp_path: Path) -> None:
    make = runpy.run_path(str(SCRIPT))["make_repository"]
    templates, output = tmp_path / "templates", tmp_path / "repository"
    models = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls")
    for model in models:
        (templates / model).mkdir(parents=True)
        (templates / model / "config.pbtxt").write_text("size: ${size}\nother: ${other}\n")
    (templates / "preprocessing" / "1").mkdir()
    (templates / "preprocessing" / "1" / "model.py").write_text("code")
    make(templates, {"size": "64"}, output)
    assert {path.name for path in output.iterdir()} == set(models[:-1])
    assert (output / "ensemble" / "1").is_dir()
    assert (output / "preprocessing" / "1" / "model.py").read_text() == "code"
    config = output / "tensorrt_llm" / "config.pbtxt"
    assert config.read_text() == "size: 64\nother: ${other}\n"
