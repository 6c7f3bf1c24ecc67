"""Real prompts out of a file: JSONL of `prompt` and `output_tokens`, or ShareGPT's JSON.

Rows that cannot be used are skipped and counted by reason. A file may begin with a byte order
mark, end its lines with CRLF, hold blank lines, and be compressed with gzip; a line ends only
with a line feed, as a prompt may hold U+2028.
"""

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import ConfigError

_GZIP = b"\x1f\x8b"
_ASKER = ("human", "user")
_ANSWERER = ("gpt", "assistant", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """One prompt. `output_tokens`: as the file says, None if it does not; `answer`: its text."""

    prompt: str
    output_tokens: int | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRows:
    """The usable rows of a file, none of them twice; `skipped`: rows by the reason why not."""

    source: str
    sha256: str
    rows: Sequence[PromptRow]
    skipped: Mapping[str, int]


class _Unusable(ValueError):  # noqa: N818  # never leaves this module
    """Why a row is skipped."""


def read_prompts(source: str) -> PromptRows:
    """The prompts of a file, or of a set that ships with bakeoff (`connected`).

    Raises:
        ConfigError: no such file, not JSON, or no row of it can be used.
    """
    return _read(source, _version(source))


def _version(source: str) -> tuple[int, int] | None:
    try:
        found = Path(source).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=2)  # the plan asks for its hash, its facts and its prompts
def _read(source: str, version: tuple[int, int] | None) -> PromptRows:
    del version  # only tells one state of the file from another
    content = _content(source)
    rows: dict[str, PromptRow] = {}
    skipped: Counter[str] = Counter()
    for value, absent in _values(content, source):
        try:
            row = _row(value, absent)
        except _Unusable as error:
            skipped[str(error)] += 1
            continue
        if row.prompt in rows:
            skipped["repeated"] += 1
        rows.setdefault(row.prompt, row)
    if not rows:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(skipped.items()))
        raise ConfigError(
            f"scenario.prompts_file={source}: no row can be used ({reasons or 'it is empty'}); "
            'give lines such as {"prompt": "...", "output_tokens": 64}, or ShareGPT\'s JSON'
        )
    return PromptRows(
        source=Path(source).name,
        sha256=hashlib.sha256(content.encode()).hexdigest(),
        rows=tuple(rows.values()),
        skipped=dict(sorted(skipped.items())),
    )


def _content(source: str) -> str:
    shipped = files("scenarios").joinpath("data", "prompts", f"{source}.jsonl")
    is_shipped = "/" not in source and shipped.is_file()
    try:
        data = shipped.read_bytes() if is_shipped else Path(source).read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"scenario.prompts_file={source}: cannot be read ({why}); give a JSONL or JSON file "
            "in UTF-8, or `connected`"
        ) from error


def _values(content: str, source: str) -> Iterator[tuple[Any, str]]:
    """The decoded rows, each with the reason for one that is neither of the two kinds."""
    if content.lstrip()[:1] == "[":
        try:
            values = msgspec.json.decode(content)
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"scenario.prompts_file={source}: is not valid JSON ({error}); mend it or give "
                "one row a line"
            ) from error
        yield from ((value, "no_conversations") for value in values)
        return
    for line in content.split("\n"):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line), "no_prompt"
        except msgspec.MsgspecError:
            yield None, "not_json"


def _row(value: Any, absent: str) -> PromptRow:
    """One row; raises _Unusable with the reason."""
    if not isinstance(value, dict):
        raise _Unusable("not_json" if absent == "not_json" else "not_an_object")
    if "prompt" in value:
        return _checked(PromptRow(prompt=value["prompt"], output_tokens=value.get("output_tokens")))
    turns = value.get("conversations", value.get("conversation"))
    if not isinstance(turns, list):
        raise _Unusable(absent)
    said = [_said(turn) for turn in turns]
    for (asker, prompt), (answerer, answer) in pairwise(said):
        if asker in _ASKER and answerer in _ANSWERER:
            return _checked(PromptRow(prompt=prompt, answer=answer))
    raise _Unusable("no_pair")


def _said(turn: Any) -> tuple[Any, Any]:
    return (turn.get("from"), turn.get("value")) if isinstance(turn, dict) else (None, None)


def _checked(row: PromptRow) -> PromptRow:
    if not isinstance(row.prompt, str) or not row.prompt.strip():
        raise _Unusable("empty_prompt")
    tokens = row.output_tokens
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int)):
        raise _Unusable("bad_output_tokens")
    if tokens is not None and tokens < 1:
        raise _Unusable("bad_output_tokens")
    if row.answer is not None and not isinstance(row.answer, str):
        return PromptRow(prompt=row.prompt)
    return row
