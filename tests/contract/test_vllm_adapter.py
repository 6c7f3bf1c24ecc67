import json
from pathlib import Path
from typing import Any

import pytest

from adapters.vllm import VllmAdapter, VllmCpuAdapter
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf, ImageConf, LaunchMode, ModelConf, Route, SpeculationConf
from harness.config.engine import SETTINGS
from harness.errors import ConfigError
from harness.testing import AdapterSuite, read_http
from harness.types import EngineIdentity, EngineSample, Provenance, Request

DATA = Path(__file__).parent.parent / "data"
MODEL = ModelConf(name="m", served_name="tiny")
FOLDER = DATA / "wire"  # any folder that exists
CTX = ServeContext(port=8190, python=Path("/env/bin/python"), model_path=FOLDER, threads=3)
REQUEST = Request(index=0, prompt="hello", input_tokens=1, max_output_tokens=8, seed=7)


def engine(**settings: Any) -> EngineConf:
    return EngineConf(name=settings.pop("name", "vllm"), **settings)


VLLM = VllmAdapter(engine(), MODEL)


def cpu(**settings: Any) -> EngineConf:
    return engine(name="vllm_cpu", **settings)


def spec_of(conf: EngineConf, ctx: ServeContext = CTX, model: ModelConf = MODEL) -> ServeSpec:
    kind = VllmCpuAdapter if conf.name == "vllm_cpu" else VllmAdapter
    return kind(conf, model).serve(conf, model, ctx)


def body_of(name: str) -> bytes:
    return b"".join(read_http((DATA / "wire" / f"vllm-0.32.0-{name}.http").read_bytes())[1])


class TestVllmCompletions(AdapterSuite):
    adapter = VLLM
    body = body_of("completions-stream-usage")
    output_tokens, prompt_tokens, token_chunks = 4, 10, 4
    text, finish_reason = "ctions isctions is", "length"


class TestVllmChat(AdapterSuite):
    adapter = VllmAdapter(engine(route=Route.CHAT), MODEL)
    body = body_of("chat-stream-usage")
    output_tokens, prompt_tokens, token_chunks = 4, 13, 4
    text, finish_reason = " these\n these\n", "length"


class TestVllmCpu(AdapterSuite):
    adapter = VllmCpuAdapter(cpu(), MODEL)
    body = body_of("completions-stream-ids-continuous")
    output_tokens, prompt_tokens, token_chunks = 3, 3, 3
    text, finish_reason = " adapter$ adapter", "length"


ALWAYS = [
    *("--generation-config", "vllm", "--enable-prompt-tokens-details"),
    "--disable-uvicorn-access-log",
]


def test_what_is_not_set_is_said_all_the_same() -> None:
    spec = spec_of(engine())
    assert list(spec.argv) == [
        *("/env/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", str(FOLDER)),
        *("--host", "127.0.0.1", "--port", "8190", "--served-model-name", "tiny", *ALWAYS),
        *("--no-enable-prefix-caching", "--tensor-parallel-size", "1"),
        *("--pipeline-parallel-size", "1"),
    ]
    assert spec.env == {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    assert spec.base_url == "http://127.0.0.1:8190"


def test_neutral_settings_become_flags_and_variables() -> None:
    conf = engine(
        dtype="half",
        quantization="awq",
        kv_dtype="fp8",
        max_model_len=4096,
        max_running=64,
        tokens_per_step=8192,
        memory_fraction=0.5,
        prefix_cache=True,
        chunked_prefill=False,
        cuda_graphs=False,
        tp=2,
        gpus=[1, 3],
        threads=4,
        lora={"a": str(FOLDER), "b": str(DATA)},
        speculation=SpeculationConf(method="ngram", tokens=5),
    )
    spec = spec_of(conf)
    words = list(spec.argv)
    assert words[words.index("--disable-uvicorn-access-log") + 1 :] == [
        *("--dtype", "half", "--quantization", "awq", "--kv-cache-dtype", "fp8"),
        *("--max-model-len", "4096", "--max-num-seqs", "64", "--max-num-batched-tokens", "8192"),
        *("--gpu-memory-utilization", "0.5", "--enable-prefix-caching"),
        *("--no-enable-chunked-prefill", "--enforce-eager"),
        *("--speculative-config", '{"method":"ngram","num_speculative_tokens":5}'),
        *("--enable-lora", "--max-loras", "2", "--lora-modules", f"a={FOLDER}", f"b={DATA}"),
        *("--tensor-parallel-size", "2", "--pipeline-parallel-size", "1"),
    ]
    assert spec.env["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert spec.env["OMP_NUM_THREADS"] == "4"
    assert spec.mounts == (FOLDER, DATA)


def test_the_cpu_build_has_its_own_words() -> None:
    spec = spec_of(cpu())
    assert list(spec.argv)[3:5] == ["--model", str(FOLDER)]
    assert list(spec.argv)[-3:] == ["--dtype", "float32", "--no-enable-prefix-caching"]
    assert spec.env == {
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "3",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    own = {"VLLM_CPU_KVCACHE_SPACE": "4"}
    spec = spec_of(cpu(dtype="bfloat16", threads=2, cuda_graphs=False, env=own))
    assert spec.argv.count("--dtype") == 1
    assert "bfloat16" in spec.argv
    assert "--enforce-eager" in spec.argv
    assert (spec.env["OMP_NUM_THREADS"], spec.env["VLLM_CPU_KVCACHE_SPACE"]) == ("2", "4")


@pytest.mark.parametrize(("conf", "size", "blocks"), [(engine, "16", "512"), (cpu, "128", "64")])
def test_the_kv_cache_in_tokens_is_said_in_blocks(conf: Any, size: str, blocks: str) -> None:
    argv = spec_of(conf(kv_tokens=8192)).argv
    at = argv.index("--block-size")
    assert argv[at : at + 4] == ("--block-size", size, "--num-gpu-blocks-override", blocks)


def test_a_share_of_a_cpus_memory_takes_the_place_of_its_gib() -> None:
    spec = spec_of(cpu(memory_fraction=0.5))
    assert spec.argv[spec.argv.index("--gpu-memory-utilization") + 1] == "0.5"
    assert "VLLM_CPU_KVCACHE_SPACE" not in spec.env
    assert spec_of(cpu(kv_tokens=8192)).env["VLLM_CPU_KVCACHE_SPACE"] == "1"


@pytest.mark.parametrize(
    ("speculation", "said"),
    [
        (
            SpeculationConf(method="draft", model="org/small", tokens=3),
            {"method": "draft_model", "model": "org/small", "num_speculative_tokens": 3},
        ),
        (SpeculationConf(method="eagle3", model="/e"), {"method": "eagle3", "model": "/e"}),
    ],
)
def test_speculation_is_one_json(speculation: SpeculationConf, said: dict[str, Any]) -> None:
    argv = spec_of(engine(speculation=speculation)).argv
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == said


def test_the_hub_is_left_open_only_where_it_is_needed() -> None:
    named = ModelConf(name="m", repo="org/m")
    by_name = ServeContext(port=1, python=CTX.python)
    spec = spec_of(engine(), by_name, named)
    assert spec.argv[4] == "org/m"
    assert "HF_HUB_OFFLINE" not in spec.env
    draft = SpeculationConf(method="draft", model="org/small", tokens=3)
    assert "HF_HUB_OFFLINE" not in spec_of(engine(speculation=draft)).env
    with pytest.raises(ConfigError, match=r"model\.path: not given"):
        spec_of(engine(), by_name)


def test_a_vllm_command_and_the_image_want_the_model_in_its_place() -> None:
    program = spec_of(engine(program="/opt/vllm"), ServeContext(port=1, model_path=FOLDER)).argv
    assert program[:3] == ("/opt/vllm", "serve", str(FOLDER))
    docker = ServeContext(port=1, host="0.0.0.0", mode=LaunchMode.DOCKER, model_path=FOLDER)
    spec = spec_of(engine(image=ImageConf(reference="vllm/vllm-openai:v0.33.0")), docker)
    assert spec.argv[:3] == (str(FOLDER), "--host", "0.0.0.0")
    assert spec.base_url == "http://127.0.0.1:1"
    assert program[3:] == ("--host", "127.0.0.1", *spec.argv[3:])


def test_raw_arguments_come_last() -> None:
    argv = spec_of(engine(args={"max_lora_rank": None, "stream_interval": 4, "-O": 2})).argv
    assert argv[-4:] == ("--stream-interval", "4", "-O", "2")


REFUSED = [
    (engine(kv_tokens=100), r"engine.kv_tokens=100: engine=vllm has blocks of 16 tokens"),
    (
        engine(speculation=SpeculationConf(method="ngram")),
        r"engine.speculation=ngram: engine=vllm needs engine.speculation.tokens=N",
    ),
    (
        engine(speculation=SpeculationConf(method="draft", tokens=3)),
        r"engine.speculation=draft: engine=vllm needs engine.speculation.model=FOLDER",
    ),
    (engine(args={"max-num-seqs": 8}), r"engine.args.max-num-seqs=8: .* use engine.max_running"),
    (engine(args={"-tp": 2}), r"engine.args.-tp=2: is set by bakeoff; use engine.tp"),
    (engine(args={"port": 1}), r"engine.args.port=1: is set by bakeoff; use launch.port"),
    (engine(args={"disable_log_stats": True}), r"disable_log_stats=True: .* the engine as it is"),
    (engine(kv_tokens=16, args={"block_size": 32}), r"block_size=32: .* use engine.kv_tokens"),
    (cpu(kv_tokens=16), r"engine.kv_tokens=16: engine=vllm_cpu has blocks of 128 tokens"),
    (cpu(gpus=[0]), r"engine.gpus=\[0\]: engine=vllm_cpu runs on the CPU"),
    (cpu(tp=2), r"engine.tp=2: engine=vllm_cpu is started as one process"),
    (cpu(cuda_graphs=True), r"engine.cuda_graphs=True: engine=vllm_cpu has no CUDA graphs"),
]


@pytest.mark.parametrize(("conf", "message"), REFUSED, ids=lambda one: str(one)[:40])
def test_what_the_engine_cannot_take_is_refused(conf: EngineConf, message: str) -> None:
    kind = VllmCpuAdapter if conf.name == "vllm_cpu" else VllmAdapter
    with pytest.raises(ConfigError, match=message):
        kind(conf, MODEL)


def test_a_block_size_of_ones_own_is_let_through_alone() -> None:
    assert spec_of(engine(args={"block_size": 32})).argv[-2:] == ("--block-size", "32")


def test_a_missing_environment_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="bakeoff engines install vllm_cpu"):
        spec_of(cpu(), ServeContext(port=1, model_path=FOLDER))


def test_every_neutral_setting_has_a_row() -> None:
    for adapter in (VllmAdapter, VllmCpuAdapter):
        assert set(adapter.settings) == set(SETTINGS)


def test_a_completion_request_names_its_length_and_its_sampling() -> None:
    call = VLLM.encode(REQUEST)
    assert (call.method, call.path) == ("POST", "/v1/completions")
    assert json.loads(call.body) == {
        "model": "tiny",
        "prompt": "hello",
        "max_tokens": 8,
        "min_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "temperature": 0.0,
        "repetition_penalty": 1.0,
    }


def test_a_sampled_chat_request_of_a_lora_adapter() -> None:
    adapter = VllmAdapter(engine(route=Route.CHAT), MODEL)
    request = Request(
        index=0,
        prompt="hi",
        input_tokens=1,
        max_output_tokens=8,
        seed=7,
        temperature=0.5,
        lora="french",
    )
    call = adapter.encode(request)
    assert call.path == "/v1/chat/completions"
    assert json.loads(call.body) == {
        "model": "french",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "min_tokens": 8,
        "ignore_eos": True,
        "stream": True,
        "seed": 7,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }


def test_the_probes() -> None:
    tokenize = json.loads(VLLM.probes["tokenize"].body)
    assert tokenize["add_special_tokens"] is False
    assert {name: call.path for name, call in VLLM.probes.items()} == {
        "health": "/health",
        "metrics": "/metrics",
        "version": "/version",
        "models": "/v1/models",
        "tokenize": "/tokenize",
    }


def identity_of(metrics: bytes) -> EngineIdentity:
    bodies = {"version": body_of("version"), "models": body_of("models"), "metrics": metrics}
    return VLLM.identity(bodies)


def test_the_capture_gives_the_identity_and_a_sample() -> None:
    metrics = body_of("metrics")
    assert identity_of(metrics) == EngineIdentity(
        version="0.32.0", model="tiny", max_model_len_tokens=1024, kv_capacity_tokens=262144
    )
    sample = VLLM.engine_sample({"metrics": metrics})
    assert sample == EngineSample(
        running=0.0,
        waiting=0.0,
        kv_usage_ratio=0.0,
        kv_provenance=Provenance.MEASURED,
        prefix_cached_tokens_total=0.0,
        prompt_tokens_total=49.0,
        generation_tokens_total=20.0,
        preemptions_total=0.0,
    )


def test_the_capacity_of_older_versions_and_of_several_engines() -> None:
    old = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'
    assert identity_of(old).kv_capacity_tokens == 1600
    label = b'vllm:cache_config_info{engine="%d",kv_cache_size_tokens="%b"} 1.0\n'
    assert identity_of(label % (0, b"500") + label % (1, b"700")).kv_capacity_tokens == 1200
    assert identity_of(label % (0, b"500") + label % (1, b"None")).kv_capacity_tokens is None
    assert identity_of(b"").kv_capacity_tokens is None


CASES = json.loads((DATA / "cases" / "expected.json").read_text())


def sample_of(case: str) -> EngineSample:
    return VLLM.engine_sample({"metrics": (DATA / "cases" / case).read_bytes()})


@pytest.mark.parametrize("file", ["C30.prom", "C30.old.prom"])
def test_c30_old_and_new_names_give_the_same(file: str) -> None:
    sample = sample_of(file)
    assert sample.kv_usage_ratio == CASES["C30"]["expect"]["kv_cache_usage"]
    assert (sample.running, sample.generation_tokens_total) == (None, None)


def test_c31_engines_are_summed_and_their_ratio_is_not() -> None:
    sample, wanted = sample_of("C31.prom"), CASES["C31"]["expect"]
    assert (sample.running, sample.waiting) == (wanted["running"], wanted["waiting"])
    assert sample.generation_tokens_total == wanted["generation_tokens"]
    assert sample.kv_usage_ratio == wanted["kv_mean"]


def test_c33_the_time_of_creation_is_no_count() -> None:
    sample, wanted = sample_of("C33.prom"), CASES["C33"]["expect"]
    assert sample.draft_tokens_total == wanted["draft_tokens"]
    assert sample.accepted_tokens_total == wanted["accepted"]
