"""One readable sentence out of what Hydra and OmegaConf raise, with the hint that helps."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from types import UnionType
from typing import get_args, get_origin, get_type_hints

from hydra.errors import OverrideParseException

from harness.config import RunConf
from harness.errors import BakeoffError

_KINDS = {
    "Integer": "must be an integer",
    "Float": "must be a number, without a unit",
    "bool": "must be true or false",
}
_NOISE = ("full_key:", "object_type=", "reference_type=", "Config search path:", "provider=")


def clean_message(error: BaseException) -> str:
    """The message for the user; our own error inside wins over what is wrapped around it."""
    chain = list(_chain(error))
    for link in chain:
        if isinstance(link, BakeoffError):
            return str(link)
        if isinstance(link, OverrideParseException):
            return _grammar_message(link)
    text = "; ".join(dict.fromkeys(line for link in chain for line in _lines(link)))
    if match := re.search(r"Could not override '([\w.@/]+)'", text):
        return _unknown_key_message(match.group(1))
    if match := re.search(r"Could not find '([^']+)'(.*)", text):
        return _unknown_option_message(match.group(1), match.group(2))
    if match := re.match(r"Error merging override ([^;]+); (.*)", text):
        return f"{match.group(1)}: {_type_message(match.group(2))}"
    return text


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def _lines(error: BaseException) -> list[str]:
    stripped = (line.strip() for line in str(error).splitlines())
    return [line for line in stripped if line and not line.startswith(_NOISE)]


def _grammar_message(error: OverrideParseException) -> str:
    key, _, value = error.override.partition("=")
    return (
        f"{error.override}: Hydra cannot read this value ({_lines(error)[0]}); a value with "
        f"special characters needs quotes inside the shell's: '{key}=\"{value}\"'"
    )


def _type_message(text: str) -> str:
    reason = text.split("; ", maxsplit=1)[0]
    if match := re.search(r"expected one of \[([A-Z_, ]+)\]", reason):
        return f"must be one of: {match.group(1).lower()}"
    if match := re.search(r"could not be converted to (Integer|Float)|not a valid (bool)", reason):
        return _KINDS[match.group(1) or match.group(2)]
    return reason[0].lower() + reason[1:]


def _unknown_option_message(option: str, listing: str) -> str:
    group, _, name = option.rpartition("/")
    words = listing.rsplit("Available options in", maxsplit=1)[-1].split(";")[1:]
    choices = ", ".join(word.strip() for word in words if word.strip())
    return f"{group}={name}: not known; choose one of: {choices}"


def _unknown_key_message(key: str) -> str:
    parent, _, name = key.rpartition(".")
    allowed = _keys_at(parent)
    near = get_close_matches(name, allowed, n=1)
    hint = f"did you mean {parent + '.' if parent else ''}{near[0]}? " if near else ""
    where = parent or "the top level"
    return f"{key}: not known; {hint}{where} has: {', '.join(allowed) or 'no keys'}"


def _keys_at(path: str) -> list[str]:
    node: type = RunConf
    for part in path.split(".") if path else []:
        hint = get_type_hints(node).get(part) if is_dataclass(node) else None
        if isinstance(hint, UnionType):  # `Conf | None`
            hint = get_args(hint)[0]
        if hint is None or get_origin(hint) or get_args(hint):
            return []
        node = hint
    return [field.name for field in fields(node)] if is_dataclass(node) else []
