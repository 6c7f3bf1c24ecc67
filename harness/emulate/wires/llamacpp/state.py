"""What llama.cpp's server says of itself: properties, models and slots, as captured from b11434."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from adapters.openai_compatible import EMULATOR
from harness.emulate.model.slots import Slot
from harness.emulate.wires.llamacpp.order import LlamaOrder
from harness.emulate.wires.llamacpp.told import BUILD, Told

_SAMPLING: Mapping[str, Any] = MappingProxyType(
    {
        "seed": 2**32 - 1,
        "temperature": 0.8,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "typical_p": 1.0,
        "repeat_last_n": 64,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 64,
        "mirostat": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.1,
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "max_tokens": -1,
        "n_predict": -1,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": False,
        "stream": False,
        "n_probs": 0,
        "min_keep": 0,
        "chat_format": "Content-only",
        "reasoning_format": "none",
        "reasoning_in_content": False,
        "generation_prompt": "",
        "samplers": ["top_k", "top_p", "min_p", "temperature"],
        "speculative.types": "none",
        "timings_per_token": False,
        "post_sampling_probs": False,
        "backend_sampling": False,
        "lora": [],
    }
)
_OF_ANSWERS: Mapping[str, Any] = MappingProxyType(  # what only a native answer has beside these
    {
        "dry_sequence_breakers": ["\n", ":", '"', "*"],
        "stop": [],
        "logit_bias": [],
        "grammar": "",
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
    }
)


def settings_of(order: LlamaOrder) -> dict[str, Any]:
    """A request's settings as its native answer shows them."""
    return {
        **_SAMPLING,
        **_OF_ANSWERS,
        "temperature": order.temperature,
        "seed": _SAMPLING["seed"] if order.seed is None else order.seed,
        "max_tokens": order.max_tokens,
        "n_predict": order.max_tokens,
        "ignore_eos": order.is_forced,
        "stream": order.is_stream,
        "timings_per_token": order.has_timings,
    }


def props(alias: str, slots: int, n_ctx: int) -> dict[str, Any]:
    """`/props`; `n_ctx`: of one slot."""
    caps = (
        *("object_arguments", "parallel_tool_calls", "preserve_reasoning", "reasoning_effort"),
        *("string_content", "system_role", "tool_calls", "tools", "typed_content"),
    )
    return {
        "default_generation_settings": {"params": dict(_SAMPLING), "n_ctx": n_ctx},
        "total_slots": slots,
        "model_alias": alias,
        "model_ftype": "emulated",
        "model_path": "emulated.gguf",
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": "<__media__>",
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": True,
        "ui": False,
        "ui_settings": {},
        "chat_template": "",
        "chat_template_caps": {f"supports_{cap}": cap == "string_content" for cap in caps},
        "bos_token": "",
        "eos_token": "",
        "build_info": BUILD,
        "is_sleeping": False,
        "cors_proxy_enabled": False,
    }


def models(alias: str, n_ctx: int, created: int) -> dict[str, Any]:
    """`/v1/models`; the owner marks it as an emulator."""
    details: dict[str, Any] = {"parent_model": "", "format": "gguf", "family": "", "families": [""]}
    details |= {"parameter_size": "", "quantization_level": ""}
    texts = dict.fromkeys(("modified_at", "size", "digest", "description", "parameters"), "")
    sizes = {"vocab_type": 2, "n_vocab": 0, "n_ctx": n_ctx, "n_ctx_train": n_ctx, "n_embd": 0}
    one = {
        "id": alias,
        "aliases": [alias],
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": created,
        "owned_by": EMULATOR,
        "meta": {**sizes, "n_params": 0, "size": 0, "ftype": "emulated"},
    }
    listed: dict[str, Any] = {"name": alias, "model": alias, "type": "model", "tags": [""], **texts}
    listed |= {"capabilities": ["completion"], "details": details}
    return {"models": [listed], "object": "list", "data": [one]}


def slot_rows(slots: tuple[Slot, ...], n_ctx: int) -> list[dict[str, Any]]:
    """`/slots`. A slot that has never worked says least; an idle one keeps its last tokens."""
    return [_slot_row(slot, n_ctx) for slot in slots]


def _slot_row(slot: Slot, n_ctx: int) -> dict[str, Any]:
    at_work = slot.sequence
    row: dict[str, Any] = {"id": slot.number, "n_ctx": n_ctx, "speculative": False}
    row["is_processing"] = at_work is not None
    if slot.held_tokens is None:
        return row
    told: Told = slot.request.told
    cached = (at_work.cached_tokens or 0) if at_work else 0
    read = min(at_work.held_tokens, told.prompt_tokens) - cached if at_work else 0
    made = at_work.generated if at_work else 0
    token: dict[str, Any] = {"has_next_token": at_work is not None, "has_new_line": False}
    token |= {"n_remain": told.length - made if at_work else -1, "n_decoded": made}
    return row | {
        "id_task": told.task,
        "n_prompt_tokens": slot.held_tokens,
        "n_prompt_tokens_processed": read,
        "n_prompt_tokens_cache": cached,
        "params": {key: told.settings[key] for key in _SAMPLING},
        "next_token": [token],
    }
