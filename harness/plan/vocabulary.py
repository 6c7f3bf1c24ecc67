"""A GGUF file's vocabulary as a `tokenizer.json`.

Only byte-level BPE (`tokenizer.ggml.model = gpt2`) with a pre-tokeniser whose rule is known can
be rebuilt exactly; of any other there is a reason instead. The rules are those of llama.cpp,
`src/llama-vocab.cpp`; a test holds the ids against a running llama-server's own answers.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import ConfigError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# Each pre-tokeniser's patterns, applied one after another to what the one before left whole.
PATTERNS = {
    "smollm": (r"\p{N}", _GPT2),
    "gpt-2": (_GPT2,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "llama-bpe": (_LLAMA3,),
    "qwen2": (_QWEN2,),
}
# A word that is in the vocabulary whole is not merged up to; and BOS is added unless the file
# says otherwise: llama.cpp's defaults for this pre-tokeniser.
_LLAMA_BPE = "llama-bpe"
_CONTROL, _USER_DEFINED = 3, 4  # token types of GGUF whose text is matched before any splitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A rebuilt vocabulary, or None with the reason why there is none.

    `added_tokens`: BOS and EOS that llama.cpp puts around a plain prompt.
    """

    tokenizer_json: bytes | None
    added_tokens: int = 0
    reason: str = ""


def read_vocabulary(path: Path) -> Vocabulary:
    """Rebuild the tokenizer of a GGUF file; takes seconds, as every token is read.

    Raises:
        ConfigError: the file cannot be read, or is not GGUF.
    """
    fields = _fields(path)
    kind = fields.get("tokenizer.ggml.model")
    if kind != "gpt2":
        return Vocabulary(tokenizer_json=None, reason=f"{path.name}: vocabulary of type {kind}")
    pre = fields.get("tokenizer.ggml.pre", "default")
    if pre not in PATTERNS:
        return Vocabulary(tokenizer_json=None, reason=f"{path.name}: pre-tokeniser {pre}")
    wanted = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
    if any(not fields.get(key) for key in wanted):
        return Vocabulary(tokenizer_json=None, reason=f"{path.name}: no tokens or no merges")
    _check(path, fields)
    adds_bos = fields.get("tokenizer.ggml.add_bos_token", pre == _LLAMA_BPE)
    adds_eos = fields.get("tokenizer.ggml.add_eos_token", False)
    return Vocabulary(
        tokenizer_json=msgspec.json.encode(_tokenizer_json(fields, pre)),
        added_tokens=int(bool(adds_bos)) + int(bool(adds_eos)),
    )


def _fields(path: Path) -> dict[str, Any]:
    from gguf import GGUFReader  # noqa: PLC0415  # 300 ms, only for a vocabulary not in the cache

    try:
        reader = GGUFReader(path)
        return {
            name: field.contents()
            for name, field in reader.fields.items()
            if name.startswith("tokenizer.ggml.")
        }
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"model.path={path}: not a GGUF file that can be read ({reason}); "
        "fetch the model again, or give its tokenizer by model.tokenizer=FILE"
    )


def _check(path: Path, fields: dict[str, Any]) -> None:
    """Raise ConfigError for a vocabulary that was cut short: the reader does not notice."""
    known = set(fields["tokenizer.ggml.tokens"])
    for merge in fields["tokenizer.ggml.merges"]:
        left, _, right = merge.partition(" ")
        if left not in known or right not in known:
            raise _damaged(path, f"merge {merge!r} of unknown tokens")


def _tokenizer_json(fields: dict[str, Any], pre: str) -> dict[str, Any]:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    types: list[int] = fields.get("tokenizer.ggml.token_type") or []
    merges: list[str] = fields["tokenizer.ggml.merges"]
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in PATTERNS[pre]
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [
            _added_token(number, tokens[number], is_control=kind == _CONTROL)
            for number, kind in enumerate(types)
            if kind in {_CONTROL, _USER_DEFINED}
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*splits, {**byte_level, "use_regex": False}],
        },
        "decoder": {**byte_level, "use_regex": False},
        "model": {
            "type": "BPE",
            "ignore_merges": pre == _LLAMA_BPE,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in merges],
        },
    }


def _added_token(number: int, content: str, *, is_control: bool) -> dict[str, Any]:
    return {
        "id": number,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": is_control,
    }
