"""How Triton with TensorRT-LLM's backend is started: an engine, a model repository, tritonserver.

The launcher script of the image starts tritonserver and ends at once, which would look as if the
engine had died: so its command line is written here. Sources: TensorRT-LLM 1.2, triton_backend/
scripts/launch_triton_server.py, all_models/inflight_batcher_llm; not run here.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from adapters import launching
from adapters.arguments import flags
from adapters.settings import NOTHING, Row, Table, Words, never, option, translate
from adapters.tensorrt_llm_build import BUILT, CONVERT, built_engine, kept, step
from harness.adapter import ServeContext, ServeSpec
from harness.config import EngineConf
from harness.errors import ConfigError

SCRIPT = Path(__file__).parent / "servers" / "triton_repository.py"
TEMPLATES, PORT_OFFSET, MODEL = "model_templates", "metrics_port_offset", "model"
OWN_KEYS = (CONVERT, TEMPLATES, PORT_OFFSET, MODEL)
DEFAULT_PORT_OFFSET = 2  # Triton's own ports: HTTP 8000, gRPC 8001, metrics 8002
DEFAULT_MODEL = "ensemble"
_DEFAULT_TEMPLATES = "/app/all_models/inflight_batcher_llm"
_DEFAULT_RUNNING = 2048  # trtllm-build's own --max_batch_size
_IN_ENGINE = Row(say=lambda _value: NOTHING)


def _text(*path: str) -> Row:
    """A value of the repository's configuration: texts only."""

    def say(value: Any) -> Words:
        return option(*path).say(str(value))

    return Row(say=say)


SETTINGS: Table = MappingProxyType(
    {
        **BUILT,
        "max_model_len": _IN_ENGINE,
        "max_running": _text("triton_max_batch_size"),
        "tokens_per_step": _IN_ENGINE,
        "memory_fraction": _text("kv_cache_free_gpu_mem_fraction"),
        "kv_tokens": _text("max_tokens_in_paged_kv_cache"),
        "prefix_cache": _text("enable_kv_cache_reuse"),
        "chunked_prefill": _text("enable_chunked_context"),
        "cuda_graphs": _text("cuda_graph_mode"),
        "tp": _IN_ENGINE,
        "pp": _IN_ENGINE,
        "gpus": launching.GPUS,
        "threads": never("has no word for CPU threads: engine.env.OMP_NUM_THREADS is the closest"),
    }
)
OWNED = {
    **dict.fromkeys(("--http-port", "--http-address"), "launch.port"),
    **dict.fromkeys(("--metrics-port", "--metrics-address"), f"engine.args.{PORT_OFFSET}"),
    **dict.fromkeys(("--model-repository", "--allow-grpc"), "engine=triton as it is"),
}


def port_offset(conf: EngineConf) -> int:
    """How far the port of the metrics is above the server's."""
    value = conf.args.get(PORT_OFFSET, DEFAULT_PORT_OFFSET)
    if type(value) is not int or value == 0:
        raise ConfigError(
            f"engine.args.{PORT_OFFSET}={value}: must be an integer that is not 0: the port of the "
            "metrics less that of the requests"
        )
    return value


def serve_spec(conf: EngineConf, ctx: ServeContext) -> ServeSpec:
    """Three steps (convert, build, repository), then one tritonserver for each GPU."""
    if conf.image is None or not conf.image.reference:
        raise ConfigError(
            "engine.image.reference: not given; say which Triton image with TensorRT-LLM 1.2.1 or "
            "older: nvcr.io/nvidia/tritonserver:<yy.mm>-trtllm-python-py3"
        )
    words = translate(conf, SETTINGS)
    engine = built_engine(conf, ctx)
    values = _values(engine.folder, str(ctx.model_path), words.options)
    templates = str(conf.args.get(TEMPLATES, _DEFAULT_TEMPLATES))
    filled = msgspec.json.encode(values, order="sorted").decode()
    make = ["python3", str(SCRIPT), "--templates", templates, "--values", filled]
    repository = kept(ctx, "repository", [conf.image.reference, *make[2:]])
    steps = (*engine.steps, step(conf, "filling in", [*make, "--output", str(repository)]))
    argv = _argv(conf, ctx, str(repository))
    spec = launching.serve_spec(conf, ctx, argv, words, prepare=steps)
    return replace(spec, mounts=(*spec.mounts, SCRIPT.parent))


def _values(engine: str, tokenizer: str, said: Mapping[str, Any]) -> dict[str, str]:
    return {
        "triton_backend": "tensorrtllm",
        "triton_max_batch_size": str(_DEFAULT_RUNNING),
        "decoupled_mode": "True",  # without it nothing is streamed
        "batching_strategy": "inflight_fused_batching",
        "engine_dir": engine,
        "tokenizer_dir": tokenizer,
        "max_queue_delay_microseconds": "0",
        "max_queue_size": "0",
        "preprocessing_instance_count": "1",
        "postprocessing_instance_count": "1",
        "exclude_input_in_output": "True",
        "logits_datatype": "TYPE_FP32",
        "encoder_input_features_data_type": "TYPE_FP16",
        "prompt_embedding_table_data_type": "TYPE_FP16",
        **{key: str(value) for key, value in said.items()},
    }


def _argv(conf: EngineConf, ctx: ServeContext, repository: str) -> list[str]:
    """What launch_triton_server.py starts: under mpirun where the engine needs several GPUs."""
    server = launching.command(conf, ctx)
    ports = [f"--http-port={ctx.port}", f"--metrics-port={ctx.port + port_offset(conf)}"]
    bound = [f"--http-address={ctx.host}", f"--metrics-address={ctx.host}", "--allow-grpc=false"]
    raw = flags({key: value for key, value in conf.args.items() if key not in OWN_KEYS})

    def rank(number: int) -> list[str]:
        argv = [*server, f"--model-repository={repository}", *ports, *bound]
        argv += ["--disable-auto-complete-config"]
        argv += [f"--backend-config=python,shm-region-prefix-name=prefix{number}_", *raw]
        if number:  # the other ranks only compute
            argv += ["--model-control-mode=explicit", "--load-model=tensorrt_llm"]
        return argv

    world = conf.tp * conf.pp
    if world == 1:
        return rank(0)
    argv = ["mpirun", "--allow-run-as-root"]
    for number in range(world):
        argv += ["-n", "1", *rank(number), ":"]
    return argv
