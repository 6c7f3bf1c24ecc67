"""What a request to one of TGI's routes asks for, and why TGI refuses it.

Sources: text-generation-inference 3.3.7, docs/openapi.json for the fields, router/src/validation.rs
and router/src/server.rs for the refusals and their words.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from harness.calibrate.server.wire import HttpRequest
from harness.emulate.wires.openai.order import RefusedError, chat_text
from harness.emulate.wires.tgi.body import UNFIT, NotReadError, number, read_body, typed

MAX_CLIENT_BATCH_SIZE = 4
MAX_STOP_SEQUENCES = 4
_MODEL_NAME = "tgi"  # any other is taken for a LoRA adapter
_PENALTY_LIMIT = 2.0


class Form(Enum):
    """Which of TGI's answers a route gives. COMPAT: the native one, in a list."""

    NATIVE = "native"
    COMPAT = "compat"
    CHAT = "chat"
    COMPLETIONS = "completions"

    @property
    def is_openai(self) -> bool:
        """Whether its streams are OpenAI's, with [DONE]."""
        return self in {Form.CHAT, Form.COMPLETIONS}


class InvalidError(Exception):
    """A request that TGI does not take. `is_early`: found before a stream begins."""

    def __init__(self, message: str, kind: str = "validation", *, is_early: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_early = is_early


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A request as it is written. `max_new_tokens`: None takes what is left of the context.

    `problem`: why TGI refuses it, apart from its length; None if it does not. `has_prompt_text`:
    the answer's text begins with the prompt. `has_prefill`: it lists the prompt's tokens.
    """

    form: Form
    prompt: str
    is_stream: bool
    max_new_tokens: int | None
    is_sampled: bool
    seed: int | None
    adapter: str | None = None
    truncate: int | None = None
    has_details: bool = True
    has_prefill: bool = False
    has_prompt_text: bool = False
    has_usage: bool = False
    problem: InvalidError | None = None


def read_order(request: HttpRequest, form: Form, *, is_stream: bool) -> Order:
    """Read a request; `is_stream`: where its route says so, not its body.

    NotReadError for a body of the wrong shape, InvalidError for what is refused before a stream
    begins; what is refused within it is the order's `problem`.
    """
    data = read_body(request)
    if form in {Form.NATIVE, Form.COMPAT}:
        return _native(
            data, form, is_stream=is_stream or typed(data, "stream", bool, default=False)
        )
    return _openai(data, form)


def native_prompt(data: dict[str, Any]) -> str:
    """The text of a native request."""
    prompt = typed(data, "inputs", str, default=None)
    if prompt is None:
        raise NotReadError(f"{UNFIT}: missing field `inputs`")
    return str(prompt)


def chat_prompt(data: dict[str, Any]) -> str:
    """A chat's messages as one text."""
    try:
        return chat_text(data.get("messages"))
    except RefusedError as refused:
        raise NotReadError(f"{UNFIT}: {refused}") from refused


def _native(data: dict[str, Any], form: Form, *, is_stream: bool) -> Order:
    prompt = native_prompt(data)
    parameters = typed(data, "parameters", dict, default=None)
    # without parameters TGI samples, with them it is greedy unless they say otherwise
    given = {"do_sample": True} if parameters is None else parameters
    filters = [given.get(key) for key in ("top_k", "top_p", "typical_p")]
    is_sampled = (
        typed(given, "do_sample", bool, default=False)
        or number(given, "temperature") not in {None, 1.0}
        or any(one is not None for one in filters)
    )
    has_prefill = typed(given, "decoder_input_details", bool, default=False)
    return Order(
        form=form,
        prompt=prompt,
        is_stream=is_stream,
        max_new_tokens=typed(given, "max_new_tokens", int, default=None),
        is_sampled=is_sampled,
        seed=typed(given, "seed", int, default=None),
        adapter=typed(given, "adapter_id", str, default=None),
        truncate=typed(given, "truncate", int, default=None),
        has_details=typed(given, "details", bool, default=False) or (has_prefill and not is_stream),
        has_prefill=has_prefill,
        has_prompt_text=typed(given, "return_full_text", bool, default=form is Form.COMPAT),
        problem=_problem(given, prompt, is_stream=is_stream),
    )


def _openai(data: dict[str, Any], form: Form) -> Order:
    is_chat = form is Form.CHAT
    prompt = chat_prompt(data) if is_chat else _one_prompt(data)
    is_stream = typed(data, "stream", bool, default=False)
    temperature = number(data, "temperature")
    # TGI's own route takes no temperature of 0: it is turned into greedy before
    given = {**data, "temperature": temperature or None}
    model = typed(data, "model", str, default=None)
    options = typed(data, "stream_options", dict, default={})
    max_tokens = typed(data, "max_tokens", int, default=None)
    if is_chat and max_tokens is None:
        max_tokens = typed(data, "max_completion_tokens", int, default=None)
    return Order(
        form=form,
        prompt=prompt,
        is_stream=is_stream,
        max_new_tokens=max_tokens,
        is_sampled=temperature != 0,
        seed=typed(data, "seed", int, default=None),
        adapter=None if model == _MODEL_NAME else model,
        has_usage=not is_chat or typed(options, "include_usage", bool, default=False),
        has_prefill=not is_chat and not is_stream,
        problem=_problem(given, prompt, is_stream=is_stream),
    )


def _one_prompt(data: dict[str, Any]) -> str:
    """The text of a completion; more than one is more than an emulated answer can be."""
    prompts = data.get("prompt")
    prompts = [prompts] if isinstance(prompts, str) else prompts
    if not isinstance(prompts, list) or not all(isinstance(one, str) for one in prompts):
        raise NotReadError(f"{UNFIT}: prompt: expected a string or a list of strings")
    if data.get("suffix") is not None:
        message = "Suffix is not supported and can be achieved by preprocessing the prompt."
        raise InvalidError(message, "suffix not supported", is_early=True)
    if len(prompts) > MAX_CLIENT_BATCH_SIZE:
        most = MAX_CLIENT_BATCH_SIZE
        message = f"Number of prompts exceeds the maximum allowed batch size of {most}"
        raise InvalidError(message, "batch size exceeded", is_early=True)
    if len(prompts) != 1:
        raise InvalidError("this emulator takes one prompt a request", is_early=True)
    return str(prompts[0])


def _problem(given: dict[str, Any], prompt: str, *, is_stream: bool) -> InvalidError | None:
    """The first of TGI's own objections, in the order of its validation."""
    if typed(given, "best_of", int, default=1) != 1:
        where = "supported when streaming tokens" if is_stream else "allowed for this endpoint"
        return InvalidError(f"`best_of` != 1 is not {where}")
    if is_stream and typed(given, "decoder_input_details", bool, default=False):
        return InvalidError(
            "`decoder_input_details` == true is not supported when streaming tokens"
        )
    for key, is_wrong in (
        ("temperature", lambda x: x <= 0),
        ("repetition_penalty", lambda x: x <= 0),
        ("frequency_penalty", lambda x: abs(x) > _PENALTY_LIMIT),
        ("top_p", lambda x: not 0 < x < 1),
        ("typical_p", lambda x: not 0 < x < 1),
        ("top_k", lambda x: x <= 0),
    ):
        value = number(given, key)
        if value is not None and is_wrong(value):
            return InvalidError(f"`{key}` {_ALLOWED[key]}")
    if typed(given, "max_new_tokens", int, default=1) < 1:
        return InvalidError("`max_new_tokens` must be strictly positive")
    stop = typed(given, "stop", list, default=[])
    if len(stop) > MAX_STOP_SEQUENCES:
        most = MAX_STOP_SEQUENCES
        return InvalidError(f"`stop` supports up to {most} stop sequences. Given: {len(stop)}")
    return None if prompt else InvalidError("`inputs` cannot be empty")


_POSITIVE, _RATIO = "must be strictly positive", "must be > 0.0 and < 1.0"
_ALLOWED = {
    "temperature": _POSITIVE,
    "repetition_penalty": _POSITIVE,
    "frequency_penalty": "must be >= -2.0 and <= 2.0",
    "top_p": _RATIO,
    "typical_p": _RATIO,
    "top_k": _POSITIVE,
}
