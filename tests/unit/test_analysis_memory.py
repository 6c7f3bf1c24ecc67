import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from harness.analysis.kv import kv_bytes_per_token, kv_groups_of_config
from harness.analysis.memory import size
from harness.errors import ConfigError

GIB = 2**30


def _llama(layers: int, heads: int, kv_heads: int, hidden: int, **more: Any) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        **more,
    }


_LLAMA_2_7B = _llama(32, 32, 32, 4096)
_LLAMA_2_13B = _llama(40, 40, 40, 5120)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (_LLAMA_2_7B, 524_288),
        (_LLAMA_2_13B, 819_200),
        (_llama(80, 64, 8, 8192), 327_680),
        (_llama(32, 32, 8, 4096), 131_072),
        (_llama(126, 128, 8, 16384), 516_096),
        (_llama(64, 64, 8, 5120, head_dim=128), 262_144),
        (_llama(28, 28, 4, 3584, sliding_window=131072, use_sliding_window=False), 57_344),
        (_llama(30, 9, 3, 576), 23_040),
        (
            {
                "num_hidden_layers": 32,
                "num_attention_heads": 71,
                "hidden_size": 4544,
                "multi_query": True,
                "num_kv_heads": 71,
            },
            8_192,
        ),
        (
            _llama(61, 128, 128, 7168, kv_lora_rank=512, qk_rope_head_dim=64),
            70_272,
        ),
    ],
)
def test_cache_bytes_a_token(config: dict[str, Any], expected: int) -> None:
    assert kv_bytes_per_token(config) == expected
    assert kv_bytes_per_token(config, 1) == expected / 2


def test_windows_are_counted_by_layer() -> None:
    gemma = {"text_config": _llama(62, 32, 16, 5376, head_dim=128)}
    gemma["text_config"] |= {"sliding_window": 1024, "sliding_window_pattern": 6}
    groups = kv_groups_of_config(gemma)
    assert [(g.layers, g.token_bytes, g.window_tokens) for g in groups] == [
        (10, 8192, None),
        (52, 8192, 1024),
    ]
    oss = _llama(36, 64, 8, 2880, head_dim=64, sliding_window=128)
    oss["layer_types"] = ["sliding_attention", "full_attention"] * 18
    groups = kv_groups_of_config(oss)
    assert [(g.layers, g.token_bytes, g.window_tokens) for g in groups] == [
        (18, 2048, None),
        (18, 2048, 128),
    ]
    assert groups[1].sequence_bytes(8192, 16) == 18 * 2048 * (128 + 16)


def _folder(tmp_path: Path, config: dict[str, Any], weights: int | None) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if weights is not None:
        index = {"metadata": {"total_size": weights}}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


@pytest.mark.parametrize(
    ("config", "parameters", "sequences"),
    [(_LLAMA_2_7B, 6_738_415_616, 21), (_LLAMA_2_13B, 13_015_864_320, 6)],
)
def test_sequences_that_fit_a_40_gb_card(
    tmp_path: Path, config: dict[str, Any], parameters: int, sequences: int
) -> None:
    plan = size(
        _folder(tmp_path, config, 2 * parameters),
        memory_bytes=int(39.4 * GIB),
        context_tokens=2048,
        memory_fraction=0.9,
        other_bytes=int(1.5 * GIB),
    )
    assert plan.sequences == sequences
    assert plan.weights_bytes == 2 * parameters


def test_a_sequence_takes_whole_blocks(tmp_path: Path) -> None:
    folder = _folder(tmp_path, _LLAMA_2_7B, 1)
    plan = size(folder, memory_bytes=GIB, context_tokens=2049)
    assert plan.sequence_bytes == 524_288 * 2064
    assert size(folder, memory_bytes=2, context_tokens=10).sequences == 0


def test_weights_are_read_from_safetensors_without_their_headers(tmp_path: Path) -> None:
    header = b'{"a": {}}'
    content = len(header).to_bytes(8, "little") + header + bytes(1000)
    (tmp_path / "model.safetensors").write_bytes(content)
    plan = size(_folder(tmp_path, _LLAMA_2_7B, None), memory_bytes=GIB, context_tokens=16)
    assert plan.weights_bytes == 1000


def test_without_weights_nothing_is_said_to_fit(tmp_path: Path) -> None:
    plan = size(_folder(tmp_path, _LLAMA_2_7B, None), memory_bytes=GIB, context_tokens=16)
    assert (plan.weights_bytes, plan.pool_bytes, plan.sequences) == (None, None, None)
    assert any("unknown" in note for note in plan.notes)


def _write_gguf(path: Path, *, with_layers: bool = True) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    if with_layers:
        writer.add_block_count(30)
    writer.add_embedding_length(576)
    writer.add_head_count(9)
    writer.add_head_count_kv(3)
    writer.add_tensor("a", np.zeros((4, 8), dtype=np.float32))
    writer.add_tensor("b", np.zeros((16,), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_says_weights_and_cache(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    _write_gguf(path)
    plan = size(path, memory_bytes=GIB, context_tokens=2048)
    assert (plan.model, plan.weights_bytes) == ("tiny", 4 * 8 * 4 + 16 * 2)
    assert plan.kv_bytes_per_token == 23_040
    assert plan.sequences == (int(GIB * 0.9) - 160) // (23_040 * 2048)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    fake = tmp_path / "x.gguf"
    fake.write_bytes(b"<html>not found</html>")
    with pytest.raises(ConfigError, match="not a GGUF file: starts with b'<htm'"):
        size(fake, memory_bytes=GIB, context_tokens=16)
    with pytest.raises(ConfigError, match="cannot be read"):
        size(tmp_path / "missing.gguf", memory_bytes=GIB, context_tokens=16)
    cut = tmp_path / "cut.gguf"
    _write_gguf(cut)
    cut.write_bytes(cut.read_bytes()[:40])
    with pytest.raises(ConfigError, match="damaged"):
        size(cut, memory_bytes=GIB, context_tokens=16)
    poor = tmp_path / "poor.gguf"
    _write_gguf(poor, with_layers=False)
    with pytest.raises(ConfigError, match=r"no llama\.block_count"):
        size(poor, memory_bytes=GIB, context_tokens=16)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(ConfigError, match="not valid JSON"):
        size(tmp_path, memory_bytes=GIB, context_tokens=16)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"memory_bytes": 0}, "memory_bytes=0"),
        ({"context_tokens": -1}, "context_tokens=-1"),
        ({"memory_fraction": 90}, "memory_fraction=90"),
    ],
)
def test_numbers_out_of_range_are_refused(
    tmp_path: Path, changes: dict[str, Any], match: str
) -> None:
    values: dict[str, Any] = {"memory_bytes": GIB, "context_tokens": 16, **changes}
    with pytest.raises(ConfigError, match=match):
        size(_folder(tmp_path, _LLAMA_2_7B, 1), **values)
