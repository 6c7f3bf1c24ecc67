"""SGLang's adapter: the command line, what it sends, and what it reads. Nothing here was recorded.

The bytes are written by hand after the source of SGLang 0.5.23 (srt/entrypoints/openai).
"""

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.sglang import SglangAdapter
from adapters.sglang_launch import SETTINGS
from harness.adapter import ServeContext
from harness.config import SETTINGS as KEYS
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
from harness.types import (
    Chunk,
    ChunkKind,
    EngineIdentity,
    EngineSample,
    ErrorClass,
    LogFacts,
    Provenance,
    Request,
    ResponseHead,
)

MODEL = ModelConf(name="qwen", repo="org/qwen")
CTX = ServeContext(port=8190, python=Path("/env/bin/python"))
REQUEST = Request(index=0, prompt="hello", input_tokens=1, max_output_tokens=8, seed=7)
STREAM = ResponseHead(status=200, headers={"content-type": "text/event-stream"})


def engine(**settings: Any) -> EngineConf:
    return EngineConf(name="sglang", **settings)


def argv_of(conf: EngineConf, ctx: ServeContext = CTX, model: ModelConf = MODEL) -> list[str]:
    return list(SglangAdapter(conf, model).serve(conf, model, ctx).argv)


ADAPTER = SglangAdapter(engine(), MODEL)
ALWAYS = [
    *("--random-seed", "0", "--enable-metrics"),
    *("--decode-log-interval", "10", "--enable-cache-report"),
]


def event(data: str) -> bytes:
    return b"data: " + data.encode() + b"\n\n"


COMPLETION = '{"id":"5f0e","object":"text_completion","created":1764547200,"model":"qwen",'
CHAT = '{"id":"5f0e","object":"chat.completion.chunk","created":1764547200,"model":"qwen",'
TEXT = '"choices":[{"index":0,"text":"%s","logprobs":null,"finish_reason":%s,"matched_stop":%s}]'
DELTA = (
    '"choices":[{"index":0,"delta":{"reasoning_content":%s},"logprobs":null,'
    '"finish_reason":%s,"matched_stop":null}]}'
)
COUNTS = '"usage":{"prompt_tokens":7,"total_tokens":10,"completion_tokens":3,'
DONE = b"data: [DONE]\n\n"
ERROR = (
    '{"error": {"object": "error", "message": "The request queue is full.", '
    '"type": "SERVICE_UNAVAILABLE", "param": null, "code": 503}}'
)


def running_usage(text: str, reason: str, stop: str, k: int) -> bytes:
    usage = (
        f'"usage":{{"prompt_tokens":7,"total_tokens":{7 + k},"completion_tokens":{k},'
        '"prompt_tokens_details":null,"reasoning_tokens":0,"completion_tokens_details":null}}'
    )
    return event(f"{COMPLETION}{TEXT % (text, reason, stop)},{usage}")


class TestCompletions(AdapterSuite):
    adapter = ADAPTER
    body = b"".join(
        (
            event(COMPLETION + TEXT % (" a", "null", "null") + ',"usage":null}'),
            event(COMPLETION + TEXT % (" b", "null", "null") + ',"usage":null}'),
            event(COMPLETION + TEXT % (" c", '"length"', "null") + ',"usage":null}'),
            event(COMPLETION + '"choices":[],' + COUNTS + '"reasoning_tokens":0}}'),
            DONE,
        )
    )
    output_tokens, prompt_tokens, token_chunks = 3, 7, 3
    text, finish_reason = " a b c", "length"


class TestContinuousUsage(AdapterSuite):
    adapter = ADAPTER
    body = b"".join(
        (
            running_usage(" a", "null", "null", 1),
            running_usage("", "null", "null", 2),
            running_usage(" é", '"stop"', "2", 3),
            event(COMPLETION + '"choices":[],' + COUNTS + '"reasoning_tokens":0}}'),
            DONE,
        )
    )
    output_tokens, prompt_tokens, token_chunks = 3, 7, 3
    text, finish_reason = " a é", "stop"


class TestChat(AdapterSuite):
    adapter = SglangAdapter(engine(route=Route.CHAT), MODEL)
    body = b"".join(
        (
            event(CHAT + DELTA % ('null,"role":"assistant","content":""', "null")),
            event(CHAT + DELTA % ('"hm"', "null")),
            event(CHAT + DELTA % ('null,"content":" a"', "null")),
            event(CHAT + DELTA % ('null,"content":" b"', "null")),
            event(CHAT + DELTA % ("null", '"length"')),
            event(CHAT + '"choices":[],"usage":null,"sglext":{"cached_tokens_details":null}}'),
            event(
                CHAT
                + '"choices":[],'
                + COUNTS
                + '"prompt_tokens_details":{"cached_tokens":4,"image_tokens":null,'
                '"audio_tokens":null,"video_tokens":null},"reasoning_tokens":1,'
                '"completion_tokens_details":{"reasoning_tokens":1}}}'
            ),
            DONE,
        )
    )
    output_tokens, prompt_tokens, token_chunks = 3, 7, 3
    text, finish_reason = " a b", "length"


def chunks_of(*pieces: bytes, head: ResponseHead = STREAM) -> list[Chunk]:
    decoder = ADAPTER.decoder(head)
    return [chunk for piece in pieces for chunk in decoder.feed(piece)] + decoder.end()


def test_the_chat_stream_is_these_chunks() -> None:
    assert chunks_of(TestChat.body) == [
        Chunk(kind=ChunkKind.REASONING, text="hm"),
        Chunk(kind=ChunkKind.TEXT, text=" a"),
        Chunk(kind=ChunkKind.TEXT, text=" b"),
        Chunk(kind=ChunkKind.END, finish_reason="length"),
        Chunk(
            kind=ChunkKind.USAGE,
            prompt_tokens=7,
            total_tokens=3,
            cached_tokens=4,
            reasoning_tokens=1,
        ),
        Chunk(kind=ChunkKind.END),
    ]


def test_a_full_queue_in_a_stream_fails_the_request_with_its_words() -> None:
    (chunk,) = chunks_of(event(ERROR), DONE)
    assert (chunk.error, chunk.message) == (ErrorClass.STREAM_ERROR, "The request queue is full.")
    token = event(COMPLETION + TEXT % (" a", "null", "null") + ',"usage":null}')
    assert [chunk.error for chunk in chunks_of(token, event(ERROR), DONE)] == [
        None,
        ErrorClass.STREAM_ERROR,
    ]


@pytest.mark.parametrize(
    ("status", "error"), [(400, ErrorClass.HTTP_4XX), (503, ErrorClass.HTTP_5XX)]
)
def test_a_flat_error_says_why(status: int, error: ErrorClass) -> None:
    flat = {"object": "error", "message": "too long", "type": "BadRequestError", "param": None}
    body = json.dumps({**flat, "code": status}).encode()
    (chunk,) = chunks_of(body, head=ResponseHead(status=status))
    assert (chunk.error, chunk.message) == (error, "too long")


def test_what_is_not_set_is_said_all_the_same() -> None:
    spec = SglangAdapter(engine(), MODEL).serve(engine(), MODEL, CTX)
    assert list(spec.argv) == [
        *("/env/bin/python", "-m", "sglang.launch_server", "--model-path", "org/qwen"),
        *("--served-model-name", "qwen", "--host", "127.0.0.1", "--port", "8190", *ALWAYS),
        *("--disable-radix-cache", "--tp-size", "1", "--pp-size", "1"),
    ]
    assert spec.env == {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
    assert spec.base_url == "http://127.0.0.1:8190"


def test_a_model_on_disk_is_not_looked_up_on_a_hub() -> None:
    on_disk = ServeContext(port=1, python=CTX.python, model_path=Path("/models/qwen"))
    conf = engine()
    spec = SglangAdapter(conf, MODEL).serve(conf, MODEL, on_disk)
    assert spec.argv[4] == "/models/qwen"
    assert spec.env["HF_HUB_OFFLINE"] == "1"
    draft = engine(speculation=SpeculationConf(method="draft", model="org/draft"))
    assert "HF_HUB_OFFLINE" not in SglangAdapter(draft, MODEL).serve(draft, MODEL, on_disk).env


def test_an_image_is_given_the_same_arguments() -> None:
    command = ["python3", "-m", "sglang.launch_server"]
    image = ImageConf(reference="lmsysorg/sglang:v0.5.23", command=command)
    conf = engine(image=image)
    ctx = ServeContext(port=8190, host="0.0.0.0", mode=LaunchMode.DOCKER)
    argv = argv_of(conf, ctx)
    assert argv[:3] == command
    assert "0.0.0.0" in argv
    assert argv[-5:] == argv_of(engine())[-5:]


RENDERED: list[tuple[dict[str, Any], str]] = [
    ({"dtype": "bfloat16"}, "--dtype bfloat16"),
    ({"quantization": "fp8"}, "--quantization fp8"),
    ({"kv_dtype": "fp8_e5m2"}, "--kv-cache-dtype fp8_e5m2"),
    ({"max_model_len": 4096}, "--context-length 4096"),
    ({"max_running": 64}, "--max-running-requests 64"),
    ({"tokens_per_step": 512}, "--max-prefill-tokens 512"),
    ({"tokens_per_step": 512}, "--chunked-prefill-size 512"),
    ({"chunked_prefill": False}, "--chunked-prefill-size -1"),
    ({"memory_fraction": 0.8}, "--mem-fraction-static 0.8"),
    ({"kv_tokens": 9000}, "--max-total-tokens 9000"),
    (
        {"cuda_graphs": False},
        "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled",
    ),
    ({"tp": 2, "pp": 3}, "--tp-size 2 --pp-size 3"),
    (
        {"lora": {"fr": "/l/fr", "de": "/l/de"}},
        "--enable-lora --lora-paths fr=/l/fr de=/l/de --max-loras-per-batch 3",
    ),
    (
        {"speculation": SpeculationConf(method="ngram", tokens=4)},
        "--speculative-algorithm NGRAM --speculative-num-draft-tokens 5",
    ),
    (
        {"speculation": SpeculationConf(method="EAGLE3", model="/d", tokens=4)},
        (
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d "
            "--speculative-num-draft-tokens 5 --speculative-num-steps 4 --speculative-eagle-topk 1"
        ),
    ),
    ({"speculation": SpeculationConf(method="mtp")}, "--speculative-algorithm NEXTN"),
    ({"args": {"schedule-policy": "lpm"}}, "--schedule-policy lpm"),
]


@pytest.mark.parametrize(("settings", "words"), RENDERED)
def test_a_neutral_setting_becomes_the_servers_flags(settings: dict[str, Any], words: str) -> None:
    line = " ".join(argv_of(engine(**settings)))
    assert f" {words} " in f"{line} "


def test_a_chunk_is_said_once() -> None:
    argv = argv_of(engine(tokens_per_step=512, chunked_prefill=False))
    assert argv.count("--chunked-prefill-size") == 1
    assert argv[argv.index("--chunked-prefill-size") + 1] == "-1"
    assert argv[argv.index("--max-prefill-tokens") + 1] == "512"
    assert "--chunked-prefill-size" not in argv_of(engine(chunked_prefill=True))


def test_what_the_engine_does_by_itself_needs_no_words() -> None:
    assert "--disable-radix-cache" not in argv_of(engine(prefix_cache=True))
    assert not [word for word in argv_of(engine(cuda_graphs=True)) if "cuda" in word]
    spec = SglangAdapter(engine(gpus=[3]), MODEL).serve(engine(gpus=[3]), MODEL, CTX)
    assert spec.env["CUDA_VISIBLE_DEVICES"] == "3"


def test_every_neutral_setting_has_an_answer() -> None:
    assert set(SETTINGS) == set(KEYS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threads": 4}, r"engine\.threads=4: engine=sglang runs on GPUs"),
        (
            {"speculation": SpeculationConf(method="medusa")},
            r"engine\.speculation=medusa: engine=sglang drafts by a method that can be: draft, ",
        ),
        (
            {"speculation": SpeculationConf(method="draft")},
            r"engine\.speculation=draft: engine=sglang needs engine\.speculation\.model=FOLDER",
        ),
        (
            {"speculation": SpeculationConf(method="ngram", model="/d")},
            r"engine\.speculation=ngram: engine=sglang takes no engine\.speculation\.model",
        ),
        ({"args": {"tp_size": 2}}, r"engine\.args\.tp_size=2: is set by bakeoff; use engine\.tp"),
        ({"args": {"model": "x"}}, r"engine\.args\.model=x: .*; use model\.path"),
        ({"args": {"decode-log-interval": 40}}, r"use engine=sglang as it is"),
        ({"args": {"chunked-prefill-size": 9}}, r"use engine\.tokens_per_step"),
        ({"args": {"disable-cuda-graph": True}}, r"use engine\.cuda_graphs"),
    ],
)
def test_what_the_engine_cannot_take_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SglangAdapter(engine(**settings), MODEL)


def test_a_missing_environment_or_model_is_refused_with_what_to_do() -> None:
    conf = engine(recipe=RecipeConf(packages=["sglang"]))
    with pytest.raises(ConfigError, match="bakeoff engines install sglang"):
        ADAPTER.serve(conf, MODEL, ServeContext(port=1))
    with pytest.raises(ConfigError, match=r"model\.path: not given"):
        ADAPTER.serve(conf, ModelConf(name="m"), CTX)


UNFILTERED = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


def test_a_greedy_request_forces_its_length_and_names_all_sampling() -> None:
    call = ADAPTER.encode(REQUEST)
    assert call.path == "/v1/completions"
    assert json.loads(call.body) == {
        "model": "qwen",
        "prompt": "hello",
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "ignore_eos": True,
        **UNFILTERED,
    }


def test_a_sampled_chat_request_has_its_seed() -> None:
    request = Request(
        index=0, prompt="hi", input_tokens=1, max_output_tokens=8, seed=7, temperature=0.5
    )
    call = SglangAdapter(engine(route=Route.CHAT), MODEL).encode(request)
    body = json.loads(call.body)
    assert call.path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert body.items() >= {"temperature": 0.5, "seed": 7, **UNFILTERED}.items()


def test_a_lora_adapter_is_named_behind_the_model() -> None:
    request = Request(index=0, prompt="hi", input_tokens=1, max_output_tokens=8, lora="fr")
    assert json.loads(ADAPTER.encode(request).body)["model"] == "qwen:fr"


LABELS = 'engine_type="unified",model_name="qwen",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
METRICS = f"""# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{{LABELS}}} 5.0
sglang:num_queue_reqs{{{LABELS}}} 2.0
sglang:token_usage{{{LABELS}}} 0.25
sglang:num_retracted_reqs{{{LABELS}}} 0.0
sglang:realtime_tokens_total{{{LABELS},mode="decode"}} 900.0
sglang:prefill_effective_tokens_total{{{LABELS},mode="input"}} 300.0
sglang:prompt_tokens_total{{engine_type="unified",is_streaming="true",model_name="qwen"}} 260.0
sglang:prompt_tokens_total{{engine_type="unified",is_streaming="false",model_name="qwen"}} 40.0
sglang:generation_tokens_total{{engine_type="unified",is_streaming="true",model_name="qwen"}} 80.0
"""
HITS = """sglang:cached_tokens_total{cache_source="device",model_name="qwen"} 96.0
sglang:cached_tokens_total{cache_source="host",model_name="qwen"} 4.0
sglang:num_retracted_requests_total{model_name="qwen"} 3.0
"""


def sample_of(text: str) -> EngineSample:
    return ADAPTER.engine_sample({"metrics": text.encode()})


def test_figures_from_the_metrics() -> None:
    expected = EngineSample(
        running=5,
        waiting=2,
        kv_usage_ratio=0.25,
        kv_provenance=Provenance.MEASURED,
        prefix_cached_tokens_total=100,
        prompt_tokens_total=300,
        generation_tokens_total=80,
        preemptions_total=3,
    )
    assert sample_of(METRICS + HITS) == expected
    assert sample_of((METRICS + HITS).replace("sglang:", "sglang_")) == expected


def test_a_counter_that_has_counted_nothing_is_zero_only_where_it_is_known() -> None:
    new = sample_of(METRICS)
    assert (new.preemptions_total, new.prefix_cached_tokens_total) == (0, 0)
    lines = [line for line in METRICS.splitlines() if "prefill_effective" not in line]
    old = sample_of("\n".join(lines))
    assert (old.preemptions_total, old.prefix_cached_tokens_total) == (None, None)
    assert (old.running, new.draft_tokens_total) == (5, None)


def info(**more: Any) -> bytes:
    states = [{"effective_max_running_requests_per_dp": 48}]
    fields = {"version": "0.5.23", "served_model_name": "qwen", "max_total_num_tokens": 52736}
    return json.dumps(
        {**fields, "context_length": None, "internal_states": states, **more}
    ).encode()


MODELS = (
    b'{"object":"list","data":[{"id":"qwen","object":"model","created":1,"owned_by":"sglang",'
    b'"root":"qwen","parent":null,"max_model_len":32768},{"id":"fr","object":"model","created":1,'
    b'"owned_by":"sglang","root":"/l/fr","parent":"qwen","max_model_len":null}]}'
)


def test_the_identity_under_the_new_and_the_old_route() -> None:
    expected = EngineIdentity(
        version="0.5.23",
        model="qwen",
        max_model_len_tokens=32768,
        max_running=48,
        kv_capacity_tokens=52736,
    )
    for route in ("server_info", "get_server_info"):
        assert ADAPTER.identity({route: info(), "models": MODELS}) == expected
    alone = ADAPTER.identity({"server_info": info(context_length=4096, internal_states=[])})
    assert (alone.model, alone.max_model_len_tokens, alone.max_running) == ("qwen", 4096, None)
    flagged = ADAPTER.identity({"server_info": info(internal_states=None, max_running_requests=9)})
    assert flagged.max_running == 9


START = """[2026-11-30 10:00:00] server_args=ServerArgs(model_path='org/qwen', watchdog_timeout=300)
[2026-11-30 10:00:08 TP0] Load weight begin. avail mem=78.84 GB
[2026-11-30 10:00:10 TP0] Ignore import error when loading sglang.srt.models.x: No module named 'x'
[2026-11-30 10:00:20 TP1] Load weight end. elapsed=12.50 s, type=Qwen3ForCausalLM, avail mem=70.50 GB, mem usage=8.00 GB.
[2026-11-30 10:00:20 TP0] Load weight end. elapsed=12.25 s, type=Qwen3ForCausalLM, avail mem=70.50 GB, mem usage=8.25 GB.
[2026-11-30 10:00:21 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 52736, K size: 3.00 GB, V size: 3.50 GB
[2026-11-30 10:00:21 TP1] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 52736, KV size: 6.50 GB
[2026-11-30 10:00:21 TP0] Memory pool end. avail mem=63.10 GB
[2026-11-30 10:00:22 TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=63.10 GB
[2026-11-30 10:00:30 TP0] Capture target decode CUDA graph end. bs=[1, 2, 4], elapsed=8.00 s, mem usage=0.50 GB, avail mem=62.60 GB.
[2026-11-30 10:00:34 TP0] Capture target prefill CUDA graph end. elapsed=4.50 s, mem usage=0.25 GB, avail mem=62.35 GB.
[2026-11-30 10:00:34 TP0] max_total_num_tokens=52736, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=32768, available_gpu_mem=62.35 GB
[2026-11-30 10:00:36] The server is fired up and ready to roll!
"""  # noqa: E501  # lines of a log
OLD_START = """[2025-03-08 12:29:20] Load weight end. avail mem=9 GB, mem usage=15.5 GB.
[2025-03-08 12:29:28] Capture cuda graph end. Time elapsed: 7.23 s. avail mem=0.53 GB.
"""


def test_facts_from_the_log() -> None:
    gib = 1 << 30
    assert ADAPTER.log_facts(START) == LogFacts(
        load_s=12.5,
        compile_s=12.5,
        weights_bytes=int(16.25 * gib),
        kv_bytes=13 * gib,
        kv_capacity_tokens=52736,
    )
    old = ADAPTER.log_facts(OLD_START)
    assert old == LogFacts(compile_s=7.23, weights_bytes=int(15.5 * gib))
    assert ADAPTER.log_facts("") == LogFacts()
    assert ADAPTER.log_facts("Load weight end. elapsed=1.2.3 s, mem usage=. GB") == LogFacts()


TIME = "[2026-11-30 10:01:00 TP0] "
FAILURES = {
    "no room": (
        (
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
            "Current value: mem_fraction_static=0.5"
        ),
        "engine.memory_fraction",
    ),
    "weights": (
        (
            "ValueError: Loaded weights leave no GPU memory for the KV cache under "
            "--mem-fraction-static=0.6. Raise --mem-fraction-static above 0.712"
        ),
        "engine.memory_fraction",
    ),
    "graphs": (
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate",
        "engine.cuda_graphs=false",
    ),
    "prefill graphs": (
        "Exception: Capture prefill CUDA graph failed: an illegal instruction",
        "engine.cuda_graphs=false",
    ),
    "batch": (TIME + "Out of memory. Try to lower your batch size.", "engine.max_running"),
    "prefill": (TIME + "Prefill out of memory. Try to lower your batch size.", "engine.max_run"),
    "decode": (TIME + "Decode out of memory. Try to lower your batch size.", "engine.max_run"),
    "memory": ("torch.OutOfMemoryError: CUDA out of memory. Tried", "engine.memory_fraction"),
    "old GPU": ("RuntimeError: SGLang only supports sm75 and above.", "too old"),
    "kernel": ("no kernel image is available for execution on the device", "driver"),
    "model": (
        "ValueError: Model architectures ['X'] are not supported for now. Supported",
        "model.path",
    ),
    "path": ("OSError: /m does not appear to have a file named config.json.", "model.path"),
    "port": (
        (
            "[Errno 98] error while attempting to bind on address ('127.0.0.1', 8190): "
            "address already in use"
        ),
        "launch.port",
    ),
    "flag": ("launch_server.py: error: unrecognized arguments: --x", "engine.args"),
    "module": ("/env/bin/python: No module named sglang", "engines install sglang"),
    "watchdog": (
        TIME + "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "watchdog",
    ),
    "warm-up": ("Initialization failed. warmup error: Traceback (most recent call", "log"),
    "scheduler": (TIME + "Scheduler hit an exception: Traceback (most recent call", "log"),
    "child": (
        "Received sigquit from a child process. It usually means the child failed.",
        "processes died",
    ),
    "running child": (
        "SIGQUIT received. signum=3, frame=x. It usually means one child failed.",
        "processes died",
    ),
}


def long_log(line: str) -> str:
    """A log of 200 lines with one that tells why it ended, and what always follows."""
    batch = TIME + "Decode batch, #running-req: 4, #token: 900, token usage: 0.02, cuda graph: True"
    lines = [*START.splitlines(), *[batch] * 200][:198]
    return "\n".join([*lines[:150], line, *lines[150:], "Killed"])


@pytest.mark.parametrize("name", FAILURES)
def test_a_known_failure_is_told_in_the_engines_own_words(name: str) -> None:
    line, advice = FAILURES[name]
    log = long_log(line)
    assert len(log.splitlines()) == 200
    diagnosis = ADAPTER.diagnose(log)
    assert diagnosis is not None
    assert diagnosis.reason == line.removeprefix(TIME)
    assert advice in diagnosis.advice


def test_the_cause_is_told_before_what_followed_from_it() -> None:
    log = "\n".join(
        (
            TIME + "Scheduler hit an exception: Traceback (most recent call last):",
            FAILURES["no room"][0],
            FAILURES["child"][0],
        )
    )
    diagnosis = ADAPTER.diagnose(log)
    assert diagnosis is not None
    assert diagnosis.reason == FAILURES["no room"][0]


def test_a_healthy_log_of_200_lines_is_no_failure() -> None:
    assert ADAPTER.diagnose(long_log(TIME + "Prefill batch, #new-seq: 1, #new-token: 6")) is None
