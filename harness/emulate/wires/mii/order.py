"""What a call asks of DeepSpeed-MII, over gRPC or its OpenAI server, by its keywords and defaults.

Source: DeepSpeed-MII 0.3.3, mii/config.py (GenerateParamsConfig), mii/entrypoints/data_models.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from adapters.mii_wire import Query

_OPENAI_TOKENS, _OPENAI_TEMPERATURE, _OPENAI_TOP_P = 128, 0.7, 0.9


class NotTakenError(Exception):
    """A keyword or a body that MII refuses; one sentence."""


def _positive(value: Any) -> bool:
    return bool(value > 0)


_KNOWN: Mapping[str, tuple[tuple[type, ...], Callable[[Any], bool], str]] = {
    "max_length": ((int,), _positive, "an integer > 0"),
    "max_new_tokens": ((int,), _positive, "an integer > 0"),
    "min_new_tokens": ((int,), lambda value: value >= 0, "an integer >= 0"),
    "stream": ((bool,), lambda _value: True, "true or false"),
    "ignore_eos": ((bool,), lambda _value: True, "true or false"),
    "return_full_text": ((bool,), lambda _value: True, "true or false"),
    "do_sample": ((bool,), lambda _value: True, "true or false"),
    "top_p": ((int, float), lambda value: 0 < value <= 1, "in (0, 1]"),
    "top_k": ((int,), _positive, "an integer > 0"),
    "temperature": ((int, float), _positive, "> 0"),
    "stop": ((str,), lambda _value: True, "text"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MiiOrder:
    """One prompt and its keywords. `model`: of the OpenAI server only."""

    prompt: str
    is_stream: bool
    model: str = ""
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """NotTakenError for a keyword that the engine has not, or a value that it refuses."""
        for name, value in self.kwargs.items():
            kinds, is_good, allowed = _KNOWN.get(name, ((), _positive, ""))
            if not kinds:
                raise NotTakenError(f"{name}: Extra inputs are not permitted")
            is_kind = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
            if not is_kind or not is_good(value):
                raise NotTakenError(f"{name}={value!r}: must be {allowed}")

    @property
    def max_length(self) -> int | None:
        """Longest prompt and answer; None: the deployment's."""
        return self.kwargs.get("max_length")

    @property
    def max_new_tokens(self) -> int | None:
        """Longest answer; None: what is left."""
        return self.kwargs.get("max_new_tokens")

    @property
    def min_new_tokens(self) -> int:
        """Before so many, an end of text does not end it."""
        return int(self.kwargs.get("min_new_tokens", 0))

    @property
    def is_forced(self) -> bool:
        """It goes on after an end of text."""
        return bool(self.kwargs.get("ignore_eos", False))

    @property
    def do_sample(self) -> bool:
        """Whether the answer differs each time: it has no seed."""
        return bool(self.kwargs.get("do_sample", True)) and self.kwargs.get("top_k") != 1


def grpc_order(query: Query, *, is_stream_path: bool) -> MiiOrder:
    """What a gRPC call asks for; NotTakenError for what it refuses.

    A stream takes the first prompt only. Without stream=true it has one message, at the end.
    """
    if not query.prompts:
        raise NotTakenError("list index out of range")
    if len(query.prompts) > 1 and not is_stream_path:
        raise NotTakenError("the emulator answers one prompt a call")
    is_stream = is_stream_path and query.kwargs.get("stream") is True
    order = MiiOrder(prompt=query.prompts[0], is_stream=is_stream, kwargs=query.kwargs)
    order.check()
    return order


def chat_order(body: bytes, *, is_chat: bool) -> MiiOrder:
    """What a request to the OpenAI server asks for; its engine's keywords are not checked yet.

    It always samples and always heeds the end of text.
    """
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotTakenError(f"JSON decode error: {error}") from error
    if not isinstance(data, dict):
        raise NotTakenError("the body must be an object")
    if data.get("n") not in {None, 1}:
        raise NotTakenError("n must be 1: this emulator gives one answer a request")
    given = {key: value for key, value in data.items() if value is not None}
    kwargs = {
        "ignore_eos": False,
        "do_sample": True,
        "max_new_tokens": given.get("max_tokens", _OPENAI_TOKENS),
        "temperature": given.get("temperature", _OPENAI_TEMPERATURE),
        "top_p": given.get("top_p", _OPENAI_TOP_P),
    }
    kwargs |= {"top_k": given["top_k"]} if "top_k" in given else {}
    kwargs |= {"min_new_tokens": given["min_tokens"]} if "min_tokens" in given else {}
    return MiiOrder(
        prompt=_chat_text(data.get("messages")) if is_chat else _prompt(data.get("prompt")),
        is_stream=bool(given.get("stream", False)),
        model=str(given.get("model", "")),
        kwargs=kwargs,
    )


def _prompt(value: Any) -> str:
    prompt = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(prompt, str):
        raise NotTakenError("prompt: Input should be a valid string")
    return prompt


def _chat_text(messages: Any) -> str:
    """The messages as one text, so that a longer talk begins with the shorter one."""
    if not isinstance(messages, list) or not messages:
        raise NotTakenError("messages: Input should be a valid list")
    for message in messages:
        is_text = isinstance(message, dict) and all(isinstance(v, str) for v in message.values())
        if not is_text or "content" not in message:
            raise NotTakenError("messages: each needs a role and a content, both text")
    return "".join(f"<|{one.get('role')}|>{one['content']}" for one in messages)
