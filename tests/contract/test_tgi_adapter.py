"""TGI's launcher: settings to words, its log, its failures, its identity."""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.tgi import TgiAdapter
from adapters.tgi_launch import ADMITTED_REQUESTS
from harness.adapter import ServeContext
from harness.config import (
    SETTINGS,
    EngineConf,
    ImageConf,
    LaunchMode,
    ModelConf,
    SpeculationConf,
)
from harness.errors import ConfigError
from harness.types import EngineIdentity, LogFacts, Provenance

MODEL = ModelConf(name="m", repo="org/m")
CTX = ServeContext(port=8100, model_path=Path("/models/m"))
DOCKER = ServeContext(port=8100, host="0.0.0.0", mode=LaunchMode.DOCKER)


def engine(**settings: Any) -> EngineConf:
    return EngineConf(**{"name": "tgi", "program": "text-generation-launcher"} | settings)


def adapter(**settings: Any) -> TgiAdapter:
    return TgiAdapter(engine(**settings), MODEL)


def said(ctx: ServeContext = CTX, **settings: Any) -> tuple[list[str], dict[str, str]]:
    conf = engine(**settings)
    spec = adapter(**settings).serve(conf, MODEL, ctx)
    return list(spec.argv), dict(spec.env)


def value(argv: list[str], name: str) -> str:
    assert argv.count(name) == 1, argv
    return argv[argv.index(name) + 1]


def test_what_is_not_set_is_said_all_the_same() -> None:
    argv, env = said()
    assert argv == [
        *("text-generation-launcher", "--model-id", "/models/m"),
        *("--hostname", "127.0.0.1", "--port", "8100"),
        *("--prometheus-port", "8101", "--master-port", "8102"),
        *("--shard-uds-path", "/tmp/text-generation-server-8100", "--usage-stats", "off"),
        *("--max-concurrent-requests", str(ADMITTED_REQUESTS), "--num-shard", "1"),
    ]
    assert env == {"PREFIX_CACHING": "0"}


def test_neutral_settings_become_the_launchers_words() -> None:
    argv, env = said(
        dtype="bfloat16",
        kv_dtype="fp8_e5m2",
        max_running=64,
        max_model_len=4096,
        tokens_per_step=8192,
        memory_fraction=0.8,
        prefix_cache=True,
        chunked_prefill=False,
        cuda_graphs=False,
        speculation=SpeculationConf(method="ngram", tokens=3),
        lora={"fr": "/lora/fr", "de": "org/de"},
        tp=2,
        gpus=[2, 3],
    )
    for name, wanted in {
        "--dtype": "bfloat16",
        "--kv-cache-dtype": "fp8_e5m2",
        "--max-batch-size": "64",
        "--max-total-tokens": "4096",
        "--max-input-tokens": "4095",
        "--max-batch-prefill-tokens": "8192",
        "--cuda-memory-fraction": "0.8",
        "--cuda-graphs": "0",
        "--speculate": "3",
        "--lora-adapters": "fr=/lora/fr,de=org/de",
        "--num-shard": "2",
    }.items():
        assert value(argv, name) == wanted
    assert env == {
        "PREFIX_CACHING": "1",
        "PREFILL_CHUNKING": "0",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }
    assert value(said(quantization="fp8")[0], "--quantize") == "fp8"
    assert said(chunked_prefill=True)[1]["PREFILL_CHUNKING"] == "1"
    assert "--cuda-graphs" not in said(cuda_graphs=True)[0]


def test_the_image_gets_the_same_words_without_a_program() -> None:
    image = ImageConf(reference="ghcr.io/huggingface/text-generation-inference:3.3.7")
    argv, _ = said(DOCKER, image=image, program="")
    assert argv[:5] == ["--model-id", "org/m", "--hostname", "0.0.0.0", "--port"]
    spec = adapter().serve(engine(), MODEL, DOCKER)
    assert spec.base_url == "http://127.0.0.1:8100"


def test_the_ports_beside_the_servers_stay_in_range() -> None:
    argv, _ = said(ServeContext(port=65_534, model_path=Path("/m")))
    assert (value(argv, "--prometheus-port"), value(argv, "--master-port")) == ("65533", "65532")


def test_raw_arguments_follow_and_may_lower_the_limit_of_requests() -> None:
    argv, _ = said(args={"max_concurrent_requests": 5, "trust_remote_code": True})
    assert argv[-3:] == ["--max-concurrent-requests", "5", "--trust-remote-code"]
    assert value(argv, "--max-concurrent-requests") == "5"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_tokens": 1000}, r"engine.kv_tokens=1000: engine=tgi infers at its warm-up"),
        ({"pp": 2}, r"engine.pp=2: engine=tgi has no pipeline"),
        ({"threads": 4}, r"engine.threads=4: engine=tgi runs on GPUs"),
        ({"dtype": "float32"}, r"engine.dtype=float32: .* can be: bfloat16, float16"),
        ({"kv_dtype": "fp8"}, r"engine.kv_dtype=fp8: .* can be: fp8_e4m3fn, fp8_e5m2"),
        ({"quantization": "int3"}, r"engine.quantization=int3: .* can be: awq, bitsandbytes,"),
        (
            {"dtype": "float16", "quantization": "awq"},
            r"engine.dtype=float16: engine=tgi takes none beside engine.quantization=awq",
        ),
        ({"max_model_len": 1}, r"engine.max_model_len=1: .* at least 2"),
        (
            {"speculation": SpeculationConf(method="draft", model="d")},
            r"engine.speculation=draft: .* medusa .*, ngram",
        ),
        (
            {"speculation": SpeculationConf(method="ngram", model="d", tokens=2)},
            r"engine.speculation=ngram: .* has no draft model",
        ),
        (
            {"speculation": SpeculationConf(method="ngram")},
            r"engine.speculation=ngram: .* needs engine.speculation.tokens",
        ),
        ({"lora": {"a,b": "/x"}}, r"engine.lora=.* a,b=/x is none"),
        ({"args": {"num_shard": 2}}, r"engine.args.num_shard=2: .* use engine.tp"),
        ({"args": {"-p": 2}}, r"engine.args.-p=2: .* use launch.port"),
        ({"args": {"prometheus-port": 2}}, r"args.prometheus-port=2: .* use launch.port"),
        ({"args": {"max-batch-total-tokens": 2}}, r"use engine.memory_fraction"),
        ({"args": {"max-input-tokens": 2}}, r"use engine.max_model_len"),
        ({"args": {"usage-stats": "on"}}, r"use engine=tgi as it is"),
    ],
)
def test_what_the_engine_cannot_take_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        adapter(**settings)


def test_every_setting_has_a_row() -> None:
    assert set(TgiAdapter.settings) == set(SETTINGS)


def test_a_launcher_or_an_image_is_needed() -> None:
    conf = engine(program="")
    with pytest.raises(ConfigError, match=r"engine.program: not given; .*launch=docker"):
        TgiAdapter(conf, MODEL).serve(conf, MODEL, CTX)
    nameless = ModelConf(name="m")
    with pytest.raises(ConfigError, match=r"model.path: not given"):
        TgiAdapter(engine(), nameless).serve(engine(), nameless, ServeContext(port=1))


def test_a_length_cannot_be_forced_and_kv_usage_is_not_told() -> None:
    capabilities = TgiAdapter.capabilities
    assert not capabilities.forced_length
    assert capabilities.kv_metric is Provenance.NOT_EXPOSED


TEXT = "text_generation_router::server: router/src/server.rs"
HEALTHY = [
    "2024-09-03T04:40:01.1Z  INFO text_generation_launcher: Args {",
    '    model_id: "org/m",',
    "    num_shard: Some(1),",
    "    quantize: None,",
    "}",
    (
        "2024-09-03T04:40:02.5Z  INFO download: text_generation_launcher: Successfully downloaded "
        "weights for org/m"
    ),
    "2024-09-03T04:40:02.6Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0",
    *(
        f"2024-09-03T04:40:{second}.6Z  INFO shard-manager: text_generation_launcher: Waiting for "
        "shard to be ready... rank=0"
        for second in range(10, 60)
    ),
    (
        "2024-09-03T04:40:15.6Z  INFO shard-manager: text_generation_launcher: Shard ready in "
        "13.012345s rank=0"
    ),
    "2024-09-03T04:40:15.7Z  INFO text_generation_launcher: Starting Webserver",
    f"2024-09-03T04:40:18.377577Z  INFO {TEXT}:1572: Warming up model",
    "2024-09-03T04:40:18.4Z  INFO text_generation_launcher: Cuda Graphs are enabled for sizes [2]",
    f"2024-09-03T04:40:19.377577Z  INFO {TEXT}:1651: Setting max batch total tokens to 19056",
    f"2024-09-03T04:40:19.4Z  WARN {TEXT}:1700: no pipeline tag found for model org/m",
    f"2024-09-03T04:40:19.441742Z  INFO {TEXT}:1889: Connected",
]


def test_what_the_start_took_is_read_from_the_log() -> None:
    facts = LogFacts(load_s=13.012345, compile_s=1.0, kv_capacity_tokens=19_056)
    found = adapter().log_facts("\n".join(HEALTHY))
    assert found.compile_s == pytest.approx(1.0)
    assert found == LogFacts(
        load_s=facts.load_s, compile_s=found.compile_s, kv_capacity_tokens=19_056
    )


def test_a_log_in_json_and_a_coloured_one_say_the_same() -> None:
    lines = [
        ("23:59:59.5", "INFO", "text_generation_router", "Warming up model"),
        ("00:00:01.5", "INFO", "text_generation_router", "Setting max batch total tokens to 7"),
    ]
    as_json = [
        json.dumps({"timestamp": f"2024-01-01T{t}Z", "level": level, "message": m, "target": where})
        for t, level, where, m in lines
    ]
    ready = {"message": "Shard ready in 5.3s"}
    as_json.insert(
        0, json.dumps({"timestamp": "x", "level": "INFO", "fields": ready, "target": "launcher"})
    )
    found = adapter().log_facts("\n".join([*as_json, "{", '{"message": 3}']))
    assert found == LogFacts(load_s=5.3, compile_s=2.0, kv_capacity_tokens=7)
    coloured = (
        "\x1b[2m2024-01-01T00:00:00Z\x1b[0m \x1b[32m INFO\x1b[0m Setting max batch total "
        "tokens to \x1b[1m9\x1b[0m\nShard ready in 812.5ms\nShard ready in 640ms\n"
    )
    assert adapter().log_facts(coloured) == LogFacts(load_s=0.8125, kv_capacity_tokens=9)


@pytest.mark.parametrize("log", ["", "Shard ready in soon", "\ud800", "9" * 5000, "{" * 9000])
def test_a_log_that_says_nothing_gives_none(log: str) -> None:
    assert adapter().log_facts(log) == LogFacts()
    assert adapter().log_facts(f"Setting max batch total tokens to {'9' * 5000}") == LogFacts()
    assert adapter().diagnose(log) is None


SHARD = "2024-09-03T04:41:00.1Z ERROR shard-manager: text_generation_launcher: "
LAUNCHER = "2024-09-03T04:41:00.1Z ERROR text_generation_launcher: "
ROUTER = "2024-09-03T04:41:00.1Z ERROR text_generation_router: router/src/main.rs:310: "
WARMUP = (
    "2024-09-03T04:41:00.1Z ERROR warmup{max_input_length=1 max_total_tokens=2}:warmup: "
    "text_generation_client: router/client/src/lib.rs:33: "
)
FAILED = [
    (LAUNCHER, "Download encountered an error: no such repository", "model.path"),
    ("", "Download error", "model.repo"),
    (LAUNCHER, "Shard 0 failed to start", "log"),
    ("", "Shard cannot start", "log"),
    (SHARD, "Shard complete standard error output:", "log"),
    (SHARD, "Shard process was signaled to shutdown with signal 9", "ran out of memory"),
    (LAUNCHER, "Webserver Crashed", "log"),
    ("", "not enough cuda devices: `sharded` is true but only found 1 CUDA devices", "engine.tp"),
    ("", "Invalid argument: `num_shard` cannot be < 1", "engine.args"),
    ("", "error: unexpected argument '--x' found", "engine.args"),
    (
        "",
        "Sharding is currently not supported with `exl2` quantization",
        "engine.tp=1",
    ),
    (
        WARMUP,
        (
            "Not enough memory to handle 4096 prefill tokens. You need to decrease "
            "`--max-batch-prefill-tokens`"
        ),
        "engine.tokens_per_step",
    ),
    (WARMUP, "Not enough memory to handle `max_total_tokens=9`", "engine.max_model_len"),
    (ROUTER, "Unable to warmup the Python model shards: x", "engine.tokens_per_step"),
    (
        "",
        "`max_batch_prefill_tokens` must be >= `max_input_tokens`. Given: 1 and 2",
        "raise engine.tokens_per_step",
    ),
    ("", "ValueError: Unsupported model type qwen9", "another model"),
    ("", "ValueError: Unknown quantization method: q", "engine.quantization"),
    (ROUTER, "Unable to load tokenizer.", "tokenizer.json"),
    (
        "",
        "thread 'main' panicked at router/src/server.rs: failed to build prometheus recorder: x",
        "launch.port",
    ),
    ("", "Error: Axum(Address already in use (os error 98))", "launch.port=null"),
    ("", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "engine.tp"),
    (LAUNCHER, "text-generation-server not found in PATH", "launch=docker"),
    ("", "RuntimeError: something else", "log"),
]


@pytest.mark.parametrize(("prefix", "message", "advice"), FAILED, ids=lambda text: text[:40])
def test_a_known_failure_is_found_in_a_long_log(prefix: str, message: str, advice: str) -> None:
    before = [HEALTHY[7]] * 150
    log = "\n".join([*before, prefix + message, *HEALTHY[-4:], *[HEALTHY[8]] * 60])
    assert len(log.splitlines()) > 200
    diagnosis = adapter().diagnose(log)
    assert diagnosis is not None
    assert diagnosis.reason == message
    assert advice in diagnosis.advice


def test_the_cause_is_told_before_what_follows_from_it() -> None:
    log = [
        SHARD + "Shard complete standard error output:",
        "",
        "Traceback (most recent call last):",
        '  File "/x.py", line 1, in main',
        "ValueError: Unsupported model type qwen9",
        LAUNCHER + "Shard 0 failed to start",
        LAUNCHER + "Shutting down shards",
        "Error: ShardCannotStart",
    ]
    diagnosis = adapter().diagnose("\n".join([*HEALTHY, *log]))
    assert diagnosis is not None
    assert diagnosis.reason == "ValueError: Unsupported model type qwen9"
    as_json = {"message": "Shard complete standard error output:\n\nKeyError: 'x'"}
    line = json.dumps(
        {"timestamp": "2024-01-01T00:00:00Z", "level": "ERROR", "fields": as_json, "target": "t"}
    )
    told = adapter().diagnose("\n".join([*HEALTHY, line]))
    assert told is not None
    assert told.reason == "KeyError: 'x'"


def test_a_healthy_log_is_no_failure() -> None:
    assert len(HEALTHY * 4) > 200
    assert adapter().diagnose("\n".join(HEALTHY * 4)) is None


def test_identity_is_tolerant_of_versions() -> None:
    v3 = {"model_id": "org/m", "version": "3.3.7", "max_total_tokens": 4096, "sha": "x"}
    found = adapter().identity({"info": json.dumps(v3).encode()})
    assert found == EngineIdentity(model="org/m", version="3.3.7", max_model_len_tokens=4096)
    v2 = {**v3, "max_batch_total_tokens": 16_000, "max_batch_size": 8, "max_total_tokens": True}
    found = adapter().identity({"info": json.dumps(v2).encode()})
    assert (found.kv_capacity_tokens, found.max_running) == (16_000, 8)
    assert found.max_model_len_tokens is None
