"""How a DeepSpeed-MII deployment is started, and what its log says."""

from pathlib import Path
from typing import Any

import pytest

from adapters.deepspeed_mii import DeepSpeedMiiAdapter
from adapters.deepspeed_mii_launch import OWNED, RAW_FLAGS, SERVER, SETTINGS
from harness.adapter import ServeContext, ServeSpec
from harness.config import SETTINGS as NEUTRAL
from harness.config import EngineConf, ImageConf, LaunchMode, ModelConf, Route, SpeculationConf
from harness.errors import ConfigError
from harness.types import LogFacts

MODEL = ModelConf(name="big", path="/models/big")
CTX = ServeContext(port=20000, python=Path("/env/bin/python"), model_path=Path("/models/big"))


def engine(**settings: Any) -> EngineConf:
    return EngineConf(name="deepspeed_mii", **settings)


def spec_of(conf: EngineConf, ctx: ServeContext = CTX, model: ModelConf = MODEL) -> ServeSpec:
    return DeepSpeedMiiAdapter(conf, model).serve(conf, model, ctx)


def said(spec: ServeSpec) -> dict[str, str]:
    """The flags of a command line and their values."""
    rest = spec.argv[spec.argv.index(str(SERVER)) + 1 :]
    return dict(zip(rest[::2], rest[1::2], strict=True))


def test_every_neutral_setting_has_a_row() -> None:
    assert set(SETTINGS) == set(NEUTRAL)


def test_what_is_not_set_still_names_ports_and_gpus() -> None:
    spec = spec_of(engine())
    assert spec.argv[:2] == ("/env/bin/python", str(SERVER))
    assert said(spec) == {
        "--model": "/models/big",
        "--served-name": "big",
        "--host": "127.0.0.1",
        "--grpc-port": "20000",
        "--rest-port": "20002",
        "--zmq-port": "20003",
        "--torch-dist-port": "20004",
        "--gpus": "0",
        "--tensor-parallel": "1",
    }
    assert spec.base_url == "http://127.0.0.1:20000"


def test_neutral_settings_become_flags() -> None:
    conf = engine(
        quantization="wf6af16",
        max_running=64,
        max_model_len=4096,
        tokens_per_step=512,
        kv_tokens=100_000,
        chunked_prefill=True,
        cuda_graphs=False,
        tp=2,
        gpus=[1, 3],
        threads=4,
    )
    spec = spec_of(conf)
    flags = said(spec)
    assert (
        flags.items()
        >= {
            "--quantization-mode": "wf6af16",
            "--max-running": "64",
            "--max-length": "4096",
            "--tokens-per-step": "512",
            "--kv-tokens": "100000",
            "--tensor-parallel": "2",
            "--gpus": "1,3",
            "--rest-port": "20003",
        }.items()
    )
    assert spec.env["OMP_NUM_THREADS"] == "4"
    assert "CUDA_VISIBLE_DEVICES" not in spec.env  # MII does not heed it


def test_no_two_ports_of_a_deployment_are_the_same() -> None:
    for tp in (1, 2, 8):
        for route in Route:
            flags = said(spec_of(engine(tp=tp, route=route)))
            ports = [int(value) for name, value in flags.items() if name.endswith("-port")]
            grpc = int(flags["--grpc-port"])
            ports += range(grpc + 1, grpc + 1 + tp)  # MII's own rule for its replica
            assert len(set(ports)) == len(ports)
            assert min(ports) == 20000


def test_the_openai_server_takes_the_port_that_is_measured() -> None:
    flags = said(spec_of(engine(route=Route.CHAT)))
    assert (flags["--openai-port"], flags["--grpc-port"]) == ("20000", "20001")


def test_fewer_tokens_in_a_step_than_its_own_sequences_lower_those() -> None:
    assert said(spec_of(engine(tokens_per_step=256)))["--max-running"] == "256"
    assert "--max-running" not in said(spec_of(engine(tokens_per_step=2048)))


def test_a_container_counts_its_gpus_from_0_and_sees_the_script() -> None:
    image = ImageConf(reference="ours/mii:1", command=["/opt/python"])
    conf = engine(tp=2, gpus=[4, 5], image=image)
    ctx = ServeContext(
        port=20000, host="0.0.0.0", mode=LaunchMode.DOCKER, model_path=Path("/models/big")
    )
    spec = spec_of(conf, ctx)
    assert spec.argv[:2] == ("/opt/python", str(SERVER))
    assert said(spec)["--gpus"] == "0,1"
    assert SERVER in spec.mounts
    with pytest.raises(ConfigError, match=r"engine\.image\.reference: .*no official image"):
        spec_of(engine(), ctx)


def test_a_python_of_ones_own_runs_the_script() -> None:
    spec = spec_of(engine(program="/mine/bin/python"))
    assert spec.argv[:2] == ("/mine/bin/python", str(SERVER))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "bfloat16"}, r"engine\.dtype=bfloat16: .*checkpoint's own"),
        ({"quantization": "fp8"}, r"engine\.quantization=fp8: .*wf6af16"),
        ({"kv_dtype": "fp8"}, r"engine\.kv_dtype=fp8: .*type of the weights"),
        ({"memory_fraction": 0.9}, r"engine\.memory_fraction=0\.9: .*reserve_bytes"),
        ({"prefix_cache": True}, r"engine\.prefix_cache=True: .*has no prefix cache"),
        ({"chunked_prefill": False}, r"engine\.chunked_prefill=False: .*always cuts"),
        ({"cuda_graphs": True}, r"engine\.cuda_graphs=True: .*has no CUDA graphs"),
        ({"speculation": SpeculationConf(method="ngram")}, r"engine\.speculation=ngram: .*has no"),
        ({"lora": {"a": "/a"}}, r"engine\.lora=.*has no LoRA"),
        ({"pp": 2}, r"engine\.pp=2: .*engine\.tp"),
        ({"max_running": 800}, r"engine\.max_running=800: .*engine\.tokens_per_step=768"),
        ({"args": {"replica_num": 2}}, r"engine\.args\.replica_num=2: .*use engine\.tp"),
        ({"args": {"gpus": "1"}}, r"engine\.args\.gpus=1: is set by bakeoff; use engine\.gpus"),
        ({"args": {"port": 1}}, r"engine\.args\.port=1: is no flag .*reserve_bytes"),
        (
            {"args": {"reserve_bytes": 1}, "kv_tokens": 5},
            r"engine\.args\.reserve_bytes=1: .*two sizes",
        ),
    ],
)
def test_what_mii_cannot_take_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeepSpeedMiiAdapter(engine(**settings), MODEL)


def test_raw_arguments_are_flags_of_the_script() -> None:
    args = {"reserve_bytes": 2_000_000_000, "serve": {"profile_model_time": True}}
    assert spec_of(engine(args=args)).argv[-4:] == (
        *("--reserve-bytes", "2000000000"),
        *("--serve", '{"profile_model_time":true}'),
    )
    assert not set(RAW_FLAGS) & set(OWNED)


def test_what_a_start_lacks_is_refused() -> None:
    hub = ModelConf(name="big", repo="org/big")
    nowhere = ServeContext(port=20000, python=CTX.python)
    with pytest.raises(ConfigError, match=r"engine\.kv_tokens=5: .*model\.path"):
        spec_of(engine(kv_tokens=5), nowhere, hub)
    renamed = ModelConf(name="big", repo="org/big", served_name="mine")
    with pytest.raises(ConfigError, match=r"model\.served_name=mine: .*org/big"):
        spec_of(engine(route=Route.CHAT), nowhere, renamed)
    assert said(spec_of(engine(), nowhere, renamed))["--model"] == "org/big"
    with pytest.raises(ConfigError, match="bakeoff engines install deepspeed_mii"):
        spec_of(engine(), ServeContext(port=20000, model_path=CTX.model_path))
    last = ServeContext(port=65533, python=CTX.python, model_path=CTX.model_path)
    with pytest.raises(ConfigError, match=r"launch\.port=65533: .*65537"):
        spec_of(engine(), last)


MII = "[2026-11-30 12:00:{:02},{:03}] [INFO] [{}] {}\n"
ORDINARY = (
    "mii_server: versions: deepspeed-mii 0.3.3, deepspeed 0.19.8\n"
    + MII.format(1, 0, "server.py:107:_launch_server_process", "msg_server launch: ['deepspeed']")
    + MII.format(2, 5, "launch.py:162:main", "dist_world_size=1")
    + MII.format(3, 250, "engine_v2.py:82:__init__", "Building model...")
    + MII.format(4, 0, "huggingface_engine.py:109:parameters", "Loading checkpoint: /m/a.st")
    + MII.format(9, 750, "engine_v2.py:84:__init__", "Model built.")
    + MII.format(
        10,
        0,
        "kv_cache.py:135:__init__",
        "Allocating KV-cache 0 with shape: (32, 100, 64, 2, 8, 128) consisting of 100 blocks.",
    )
    + "".join(
        MII.format(11, n, "server.py:65:_wait_until_server_is_live", "waiting for server to start")
        for n in range(190)
    )
    + MII.format(59, 0, "server.py:71:_wait_until_server_is_live", "server has started on [20001]")
    + "mii_server: ready grpc=20000\n"
)


def test_the_log_tells_the_load_and_the_cache() -> None:
    facts = DeepSpeedMiiAdapter(engine(), MODEL).log_facts(ORDINARY)
    assert facts == LogFacts(
        load_s=6.5, kv_bytes=32 * 100 * 64 * 2 * 8 * 128 * 2, kv_capacity_tokens=6400
    )


@pytest.mark.parametrize(
    "log", ["", "Model built.", ORDINARY.replace("(32, 100, 64", "(32, , x"), "\x00[2026"]
)
def test_a_log_that_does_not_tell_gives_none(log: str) -> None:
    facts = DeepSpeedMiiAdapter(engine(), MODEL).log_facts(log)
    assert (facts.kv_bytes, facts.kv_capacity_tokens, facts.compile_s) == (None, None, None)


FAILURES = {
    "memory": (
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "raise engine.tp",
    ),
    "cache": (
        "ValueError: Insufficient memory to allocate KV-caches. Required: 9, Available: -5",
        "no room for a KV cache",
    ),
    "model": ("ValueError: Unsupported model type gemma3", "does not know this model"),
    "dtype": ("NotImplementedError: Only fp16 and bf16 are supported", "float16 or bfloat16"),
    "gpu": (
        "RuntimeError: Blocked attention requires CUDA compute capability >= 8.0",
        "compute capability 8.0",
    ),
    "place": (
        "ValueError: Only able to place 1 replicas, but 2 replicas were requested.",
        "engine.gpus",
    ),
    "toolkit": (
        "op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile",
        "CUDA toolkit",
    ),
    "jit": ("RuntimeError: Error building extension 'ragged_ops'", "could not compile"),
    "port": (
        "RuntimeError: Failed to bind to address [::]:20001; set GRPC_VERBOSITY=debug",
        "launch.port",
    ),
    "zmq": ("zmq.error.ZMQError: Address already in use (addr='tcp://*:20003')", "launch.port"),
    "launcher": ("FileNotFoundError: No such file or directory: 'deepspeed'", "engine.program"),
    "module": ("ModuleNotFoundError: No module named 'pydantic_settings'", "engines install"),
    "long": (
        "AssertionError: max_length (512) must be greater than prompt_length (600)",
        "engine.max_model_len",
    ),
    "keyword": (
        "mii.errors.UnknownArgument: Keyword argument colour not recognized",
        "engine.args",
    ),
    "killed": (
        "[ERROR] [launch.py:325:sigkill_handler] [..] exits with return code = -9",
        "killed",
    ),
    "crash": ("RuntimeError: server crashed for some reason, unable to proceed", "above this line"),
    "other": ("[rank0]: KeyError: 'model.layers.0.weight'", "above this line"),
    "lost": ("mii_server: process 4711 ended with 1", "above this line"),
}
CRASH = "RuntimeError: server crashed for some reason, unable to proceed\n"


@pytest.mark.parametrize("name", FAILURES)
def test_a_known_failure_is_found_in_a_long_log(name: str) -> None:
    line, advice = FAILURES[name]
    log = ORDINARY.replace("mii_server: ready", f"{line}\nmii_server: ready") + CRASH
    assert len(log.splitlines()) >= 200
    diagnosis = DeepSpeedMiiAdapter(engine(), MODEL).diagnose(log)
    assert diagnosis is not None
    assert diagnosis.reason in line.replace("  ", " ")
    assert advice in diagnosis.advice


def test_an_ordinary_log_is_no_failure() -> None:
    assert len(ORDINARY.splitlines()) >= 190
    assert DeepSpeedMiiAdapter(engine(), MODEL).diagnose(ORDINARY) is None
