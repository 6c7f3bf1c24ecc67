"""A GGUF file's vocabulary as a `tokenizer.json`, rebuilt once and cached by the file's hash.

Only byte-level BPE (`tokenizer.ggml.model = gpt2`) with a pre-tokeniser whose rule is known
can be rebuilt exactly. The rules are those of llama.cpp, `src/llama-vocab.cpp`; the ids agree
with a running llama-server (tests/data/tokens_smollm2.jsonl holds its own answers).
"""

import hashlib
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import ConfigError

FORMAT = 1  # raise when the rebuilding changes, so that old cache files are left alone
_HASHED_BYTES = 64 << 20  # a GGUF's vocabulary stands before its weights, within this

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
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe"})  # a word in the vocabulary is not merged up to
_ADDS_BOS = frozenset({"llama-bpe"})  # unless the file says otherwise
_CONTROL, _USER_DEFINED = 3, 4  # gguf.TokenType


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A rebuilt vocabulary, or why there is none."""

    tokenizer_json: bytes | None
    added_tokens: int = 0
    reason: str = ""


def cache_folder() -> Path:
    """Where rebuilt vocabularies are kept: `$BAKEOFF_CACHE`, `$XDG_CACHE_HOME` or `~/.cache`."""
    own = os.environ.get("BAKEOFF_CACHE")
    root = Path(own or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "bakeoff" / "tokenizers"


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's first 64 MiB and its size: what identifies a GGUF's vocabulary.

    The weights that follow can be hundreds of gigabytes and say nothing about it.
    """
    try:
        with path.open("rb") as file:
            digest = hashlib.sha256(file.read(_HASHED_BYTES))
            digest.update(str(os.fstat(file.fileno()).st_size).encode())
    except OSError as error:
        raise ConfigError(
            f"model.path={path}: cannot be read ({error.strerror}); give the model file"
        ) from error
    return digest.hexdigest()


def cached_tokenizer_json(path: Path, cache: Path | None = None) -> Vocabulary:
    """The vocabulary of a GGUF file, from the cache if it was rebuilt before.

    Raises:
        ConfigError: the file cannot be read or is not GGUF.
    """
    folder = cache or cache_folder()
    kept = folder / f"{file_sha256(path)}-{FORMAT}.json"
    try:
        return msgspec.json.decode(kept.read_bytes(), type=Vocabulary)
    except (OSError, msgspec.DecodeError):
        built = rebuild(path)
    _keep(kept, msgspec.json.encode(built))
    return built


def _keep(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except OSError:
        return  # a cache that cannot be written only costs time
