"""vLLM's server, on GPUs and CPUs: OpenAI's routes with its own fields, errors and routes beside.

As vLLM 0.32 answers (captured), started as our adapter starts it. It has no `/detokenize`: there
is no vocabulary. Its models stay owned by `bakeoff-emulator`, which marks a run as emulated.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec

from adapters.openai_compatible import EMULATOR
from harness.calibrate.server.wire import HttpRequest
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.openai.answer import Named
from harness.emulate.wires.openai.order import Order, RefusedError, chat_text
from harness.emulate.wires.openai.wire import DEFAULT_NAME, OpenAiWire, error_response
from harness.emulate.wires.prompt import token_ids
from harness.emulate.wires.vllm.answer import VERSION, VllmNamed, vllm_answer
from harness.emulate.wires.wire import Answer, EngineState, Manners

_NOT_FOUND = 404
_FAILED = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_PERMISSIONS = {
    "allow_create_engine": False,
    "allow_sampling": True,
    "allow_logprobs": True,
    "allow_search_indices": False,
    "allow_view": True,
    "allow_fine_tuning": False,
    "organization": "*",
    "group": None,
    "is_blocking": False,
}


class VllmWire(OpenAiWire):
    """See `harness.emulate.wires.wire.Wire`. `defaults`: of vLLM on most GPUs."""

    defaults: Mapping[str, object] = {"slots": 256, "prefix_cache": True}
    manners = Manners()
    posts = OpenAiWire.posts | {"/tokenize"}
    has_prompt_details = True  # the server's --enable-prompt-tokens-details

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """503: what vLLM says above its admission limits; it names no wait."""
        del retry_after_s
        message = f"{in_flight} requests are in flight: the server takes no more"
        return error_response(503, message, "ServiceUnavailableError", None)

    def failed(self) -> bytes:
        """500, as after the death of the engine's own process."""
        return error_response(500, _FAILED, "InternalServerError", None)

    def _tell(self, path: str, request: HttpRequest, state: EngineState) -> bytes:
        match path:
            case "/ping":
                return response(200, b"")
            case "/version":
                return json_response(200, {"version": VERSION})
            case "/load":
                gauges = state.gauges()
                return json_response(200, {"server_load": gauges.running + gauges.waiting})
            case "/tokenize":
                return self._tokenize(request.body)
            case _:
                return super()._tell(path, request, state)

    def _models(self) -> list[dict[str, object]]:
        """The model, then its LoRA adapters, which name it as their parent."""
        base, *adapters = self._names or (DEFAULT_NAME,)
        parents = {base: None} | dict.fromkeys(adapters, base)
        return [self._card(name, parent) for name, parent in parents.items()]

    def _card(self, name: str, parent: str | None) -> dict[str, object]:
        created = {"created": self._created}
        permission = {"id": f"modelperm-{self._created:016x}", "object": "model_permission"}
        return {
            "id": name,
            "object": "model",
            **created,
            "owned_by": EMULATOR,
            "root": name,
            "parent": parent,
            "max_model_len": None if parent else self._conf.longest_tokens,
            "permission": [{**permission, **created, **_PERMISSIONS}],
        }

    def _tokenize(self, body: bytes) -> bytes:
        try:
            data = msgspec.json.decode(body)
            has_text = isinstance(data, dict) and isinstance(data.get("prompt"), str)
            text = data["prompt"] if has_text else chat_text(_messages(data))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._refuse(RefusedError("not JSON", "body", is_schema=True), body)
        except RefusedError as refused:
            return self._refuse(refused, body)
        ids = token_ids(text)
        limit = self._conf.longest_tokens
        counted = {"count": len(ids), "max_model_len": limit}
        return json_response(200, {**counted, "tokens": ids, "token_strs": None})

    def _refuse(self, refused: RefusedError, body: bytes) -> bytes:
        """One form where the body does not fit the schema, another for what the server refuses."""
        if refused.is_schema:
            where, message = _schema_error(refused, body)
            return error_response(400, message, "Bad Request", where)
        kind = "NotFoundError" if refused.status == _NOT_FOUND else "BadRequestError"
        return error_response(refused.status, str(refused), kind, refused.param)

    def _length(self, order: Order, prompt_tokens: int, number: int) -> tuple[int, str]:
        limit = self._conf.longest_tokens
        if prompt_tokens > limit:
            raise RefusedError(
                f"This model's maximum context length is {limit} tokens. However, your prompt "
                f"contains {prompt_tokens} input tokens, which exceeds this limit even without "
                "any output tokens. Please reduce the length of the input prompt. "
                f"(parameter=input_tokens, value={prompt_tokens})",
                "input_tokens",
            )
        return super()._length(order, prompt_tokens, number)

    def _answer(self, order: Order, named: Named, tokens: int) -> Answer:
        ids = token_ids(order.prompt) if order.has_ids else None
        same = {one.name: getattr(named, one.name) for one in fields(named)}
        same["has_cache"] = self.has_prompt_details
        return vllm_answer(VllmNamed(**same, prompt_ids=ids), tokens, order)


def _messages(data: Any) -> Any:
    return data.get("messages") if isinstance(data, dict) else None


def _schema_error(refused: RefusedError, body: bytes) -> tuple[str, str]:
    """Where, and what: pydantic's words; of a body that is no JSON, the parser's."""
    where = "body" if refused.param == "body" else f"body.{refused.param}"
    said: dict[str, object] = {"type": "value_error", "loc": where, "msg": str(refused)}
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        where = f"body.{error.pos}"
        said = {"type": "json_invalid", "loc": where, "msg": "JSON decode error"}
        said |= {"input": "<dict of 0 items>", "ctx": {"error": error.msg}}
    except ValueError:  # not even text
        pass
    return where, f"1 validation error:\n  {said}"
