"""The model's own tokenizer, offline: what sizes prompts and counts answers.

From a `tokenizer.json`, or out of a GGUF file's vocabulary (`harness.plan.vocabulary`). Without
one that can be rebuilt exactly, lengths are approximate, and everything made with them says so.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.errors import ConfigError
from harness.plan.vocabulary_cache import cached_vocabulary

_CHINESE = re.compile(r"[\u3000-\u303f\u3400-\u4dbf\u4e00-\u9fff\uff00-\uffef]")
_CHARACTERS_PER_TOKEN = 4.0
_CHINESE_CHARACTERS_PER_TOKEN = 1.5


class Tokenizer(Protocol):
    """Counts and encodes texts; special tokens around a text are never part of its count."""

    @property
    def name(self) -> str:
        """Where it comes from, for people."""
        ...

    @property
    def exact(self) -> bool:
        """Whether it is the model's own, not an estimate."""
        ...

    @property
    def sha256(self) -> str | None:
        """Hash of the tokenizer.json, given or rebuilt; None for an estimate."""
        ...

    @property
    def added_tokens(self) -> int:
        """Special tokens (such as BOS) that an engine puts around a plain prompt.

        A server's prompt count is `count(text) + added_tokens`, without a chat template.
        """
        ...

    def count(self, text: str) -> int:
        """Tokens in a text."""
        ...

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each text, shape (len(texts),)."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text; ConfigError if approximate."""
        ...


class ModelTokenizer:
    """The model's tokenizer, run by the `tokenizers` library."""

    exact = True

    def __init__(
        self, tokenizer_json: bytes, *, name: str, added_tokens: int | None = None
    ) -> None:
        from tokenizers import Tokenizer as Encoder  # noqa: PLC0415  # 40 ms, not for --help

        self.name = name
        self.sha256: str | None = hashlib.sha256(tokenizer_json).hexdigest()
        try:
            self._encoder: Any = Encoder.from_buffer(tokenizer_json)
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(
                f"model.tokenizer={name}: not a tokenizer.json ({error}); give the file that "
                "comes with the model, or leave it empty for the model file's own vocabulary"
            ) from error
        self._encoder.no_truncation()
        self._encoder.no_padding()
        if added_tokens is None:
            added_tokens = len(self._encoder.encode("", add_special_tokens=True).ids)
        self.added_tokens = added_tokens

    def count(self, text: str) -> int:
        """Tokens in a text."""
        return self.count_batch([text])[0]

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each text, shape (len(texts),)."""
        return [len(encoding) for encoding in self._encodings(texts)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens around it."""
        return [encoding.ids for encoding in self._encodings(texts)]

    def _encodings(self, texts: Sequence[str]) -> Iterator[Any]:
        # One by one: the library's batches start threads, which a later fork does not survive
        # and an engine beside us pays for; on texts of this size they gain nothing.
        return (self._encoder.encode(text, add_special_tokens=False) for text in texts)


class ApproximateTokenizer:
    """Tokens from characters: about 4 of them a token, 1.5 Chinese ones, rounded up.

    A rule of thumb for byte-level BPE; a real vocabulary can differ by a third or more.
    """

    exact = False
    sha256: str | None = None
    added_tokens = 0

    def __init__(self, name: str = "approximate") -> None:
        self.name = name

    def count(self, text: str) -> int:
        """Tokens in a text, estimated."""
        chinese = len(_CHINESE.findall(text))
        tokens = chinese / _CHINESE_CHARACTERS_PER_TOKEN
        return math.ceil(tokens + (len(text) - chinese) / _CHARACTERS_PER_TOKEN)

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each text, estimated, shape (len(texts),)."""
        return [self.count(text) for text in texts]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Raise ConfigError: an estimate has no ids."""
        raise ConfigError(
            f"model.tokenizer: {self.name}: {len(texts)} texts cannot be encoded without the "
            "model's vocabulary; give its tokenizer.json by model.tokenizer=FILE"
        )


def load_tokenizer(
    model_path: Path | None, tokenizer_path: Path | None, *, cache: Path | None = None
) -> Tokenizer:
    """The best tokenizer there is: `tokenizer_path`, else the model's own, else an estimate.

    Args:
        model_path: a GGUF file, or a folder with a `tokenizer.json`; None if there is none here.
        tokenizer_path: a `tokenizer.json`, or a folder that holds one; wins over the model.
        cache: where rebuilt vocabularies are kept; None for the user's cache.

    Raises:
        ConfigError: `tokenizer_path` does not exist or is no tokenizer.json, or the GGUF file
            is damaged.
    """
    if tokenizer_path is not None:
        return _from_json(tokenizer_path)
    if model_path is None:
        return ApproximateTokenizer()
    if model_path.is_dir() and (model_path / "tokenizer.json").is_file():
        return _from_json(model_path)
    if model_path.suffix.lower() != ".gguf":
        return ApproximateTokenizer(f"approximate (no vocabulary in {model_path.name})")
    built = cached_vocabulary(model_path, cache)
    if built.tokenizer_json is None:
        return ApproximateTokenizer(f"approximate ({built.reason})")
    return ModelTokenizer(
        built.tokenizer_json, name=model_path.name, added_tokens=built.added_tokens
    )


def _from_json(path: Path) -> ModelTokenizer:
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"model.tokenizer={file}: cannot be read ({error.strerror}); give the model's "
            "tokenizer.json, or leave it empty"
        ) from error
    return ModelTokenizer(content, name=str(file))
