"""Bytes of the key-value cache, from the shape of a model's attention.

Full attention: layers x KV heads x (key + value dimension) x bytes of an element; multi-head
latent attention: layers x (latent + rope dimension) x bytes, with no heads and no factor 2. A
sliding-window layer never holds more than its window and one block.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class KvGroup:
    """Layers that cache alike: `token_bytes` a token and layer; `window_tokens`: None is all."""

    layers: int
    token_bytes: float
    window_tokens: int | None = None

    def sequence_bytes(self, context_tokens: int, block_tokens: int) -> float:
        """One sequence of `context_tokens`, in whole blocks."""
        blocks = math.ceil(context_tokens / block_tokens)
        if self.window_tokens is not None:
            blocks = min(blocks, math.ceil(self.window_tokens / block_tokens) + 1)
        return self.layers * self.token_bytes * blocks * block_tokens


def kv_bytes_per_token(config: Mapping[str, Any], kv_dtype_bytes: float = 2) -> float:
    """Of a Hugging Face config.json: all layers together, before any window is outgrown."""
    groups = kv_groups_of_config(config, kv_dtype_bytes)
    return sum(group.layers * group.token_bytes for group in groups)


def kv_groups_of_config(
    config: Mapping[str, Any], kv_dtype_bytes: float = 2
) -> tuple[KvGroup, ...]:
    """The cache of a Hugging Face config.json; ConfigError if it does not say enough."""
    inner = config.get("text_config")
    config = inner if isinstance(inner, Mapping) else config
    layers = _needed(config, "num_hidden_layers", "n_layer", "n_layers")
    if config.get("kv_lora_rank"):
        latent = int(config["kv_lora_rank"]) + int(config.get("qk_rope_head_dim") or 0)
        return (KvGroup(layers=layers, token_bytes=latent * kv_dtype_bytes),)
    heads = _needed(config, "num_attention_heads", "n_head", "n_heads")
    each = config.get("head_dim") or _needed(config, "hidden_size", "n_embd", "d_model") // heads
    token_bytes = _kv_heads(config, heads) * 2 * int(each) * kv_dtype_bytes
    return _windowed(layers, token_bytes, _sliding_layers(config, layers), _window(config))


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    given = config.get("num_key_value_heads") or config.get("num_kv_heads")
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1  # Falcon's first form says it so, whatever its num_kv_heads
    return int(given or heads)


def _window(config: Mapping[str, Any]) -> int | None:
    is_off = config.get("use_sliding_window") is False
    window = config.get("sliding_window")
    return None if is_off or not window else int(window)


def _sliding_layers(config: Mapping[str, Any], layers: int) -> int:
    """How many layers have a sliding window: by type, by Gemma's pattern, else all."""
    types = config.get("layer_types")
    if isinstance(types, Sequence) and not isinstance(types, str):
        return sum(1 for kind in types if kind == "sliding_attention")
    pattern = config.get("sliding_window_pattern")
    return layers - layers // int(pattern) if pattern else layers


def kv_groups_of_gguf(values: Mapping[str, Any], kv_dtype_bytes: float = 2) -> tuple[KvGroup, ...]:
    """The cache of a GGUF file, from its metadata; ConfigError if it does not say enough.

    An upper bound where layers have a sliding window: the file does not say which.
    """
    arch = str(values.get("general.architecture") or "")

    def number(key: str) -> Any:
        return values.get(f"{arch}.{key}")

    layers = _needed(values, f"{arch}.block_count")
    latent = number("attention.kv_lora_rank")
    if latent:
        rope = int(number("rope.dimension_count") or 0)
        return (KvGroup(layers=layers, token_bytes=(int(latent) + rope) * kv_dtype_bytes),)
    heads = _needed(values, f"{arch}.attention.head_count")
    kv_heads = number("attention.head_count_kv") or heads
    width = _needed(values, f"{arch}.embedding_length") // heads
    key = int(number("attention.key_length") or width)
    value = int(number("attention.value_length") or width)
    per_head = (key + value) * kv_dtype_bytes
    if isinstance(kv_heads, Sequence):  # one number a layer; 0 where a layer caches nothing
        total = sum(int(one) for one in kv_heads) * per_head
        return (KvGroup(layers=1, token_bytes=total),)
    return (KvGroup(layers=layers, token_bytes=int(kv_heads) * per_head),)


def _windowed(
    layers: int, token_bytes: float, sliding: int, window: int | None
) -> tuple[KvGroup, ...]:
    if window is None or sliding == 0:
        return (KvGroup(layers=layers, token_bytes=token_bytes),)
    groups = [KvGroup(layers=sliding, token_bytes=token_bytes, window_tokens=window)]
    if sliding < layers:
        groups.insert(0, KvGroup(layers=layers - sliding, token_bytes=token_bytes))
    return tuple(groups)


def _needed(values: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = values.get(name)
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            value = max(value)
        if value:
            return int(value)
    raise ConfigError(f"the model's description has no {names[0]}, so its cache cannot be sized")
