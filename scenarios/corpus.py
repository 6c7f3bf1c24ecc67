"""The text that prompts are made of: our own sentences, questions and code, under Apache-2.0.

`data/en.txt` and `data/zh.txt` hold one piece a line, `data/code.txt` snippets between lines of
`%%`; `data/words_*.txt` hold the nouns that open a prompt, `data/fillers.txt` the words that
fill its last tokens.
"""

import hashlib
import re
from functools import cache
from importlib.resources import files

LANGUAGES = ("en", "zh", "code")
# A Chinese character or mark, or the blanks before a word and the word: where a piece may end.
_ATOM = re.compile(
    r"\s*(?:[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]|[^\s\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]+)"
)


def _read(name: str) -> str:
    return files("scenarios").joinpath("data", name).read_text(encoding="utf-8")


@cache
def pieces(language: str) -> tuple[str, ...]:
    """The sentences or snippets of one of `LANGUAGES`, without a blank at either end."""
    text = _read(f"{language}.txt")
    parts = text.split("\n%%\n") if language == "code" else text.splitlines()
    return tuple(part.strip() for part in parts if part.strip())


@cache
def opening_words(language: str) -> tuple[str, ...]:
    """Distinct nouns that open prompts: Chinese for zh, English for en and code."""
    return tuple(_read("words_zh.txt" if language == "zh" else "words_en.txt").split())


@cache
def fillers() -> tuple[str, ...]:
    """Plain words that most vocabularies hold as one token after a blank."""
    return tuple(_read("fillers.txt").split())


def atoms(text: str) -> list[str]:
    """Cut a text where it may end early: after a word, or after any Chinese character.

    The atoms joined give the text back, but for blanks at its end.
    """
    return _ATOM.findall(text)


@cache
def corpus_sha256() -> str:
    """SHA-256 over all files of the corpus; part of a plan's hash."""
    digest = hashlib.sha256("\0".join(fillers()).encode())
    for language in LANGUAGES:
        digest.update("\0".join(pieces(language)).encode())
        digest.update("\0".join(opening_words(language)).encode())
    return digest.hexdigest()
