"""DeepSpeed-MII: its gRPC service, and its OpenAI server on the same port.

Source: DeepSpeed-MII 0.3.3 (mii/grpc_related, mii/config.py GenerateParamsConfig, mii/entrypoints);
never recorded. One thing is not played: MII's load balancer swallows an error of a replica, and
the caller hears nothing for 600 s; here it comes at once, as the replica's own port gives it.
Real ones have two ports for the two. Models are owned by `bakeoff-emulator`, not `deepspeed-mii`.
"""

import time
from collections.abc import Mapping

from adapters.mii_wire import STREAM_PATH, read_query
from adapters.openai_compatible import EMULATOR
from adapters.protobuf import BadMessageError
from harness.calibrate.server.wire import CHAT_PATH, COMPLETIONS_PATH, HttpRequest
from harness.config import EmulateConf
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.mii.answer import (
    OpenAiNamed,
    StreamedEvents,
    StreamedReplies,
    WholeJson,
    WholeReply,
)
from harness.emulate.wires.mii.order import MiiOrder, NotTakenError, chat_order, grpc_order
from harness.emulate.wires.prompt import count_tokens, natural_length
from harness.emulate.wires.wire import Answer, Ask, EngineState, GrpcRefusal, Manners

DEFAULT_NAME = "emulated"
WHOLE_PATH = "/modelresponse.ModelResponse/GeneratorReply"
_PATHS = {CHAT_PATH, COMPLETIONS_PATH, "/health", "/v1/models"}
_UNKNOWN, _RESOURCE_EXHAUSTED, _UNIMPLEMENTED = 2, 8, 12  # gRPC's status codes
_INVALID_MODEL, _INVALID_TYPE = 40301, 40001  # fastchat's error codes
_RAISED = "Exception iterating responses: "  # grpcio's words for whatever a handler raises


class MiiWire:
    """See `harness.emulate.wires.wire.Wire` and `GrpcWire`."""

    defaults: Mapping[str, object] = {"slots": 512, "tokens_per_step": 768}
    manners = Manners()

    def __init__(self, conf: EmulateConf, names: tuple[str, ...]) -> None:
        self._conf = conf
        self._names = names
        self._created = int(time.clock_gettime(time.CLOCK_REALTIME))

    def call(self, path: str, message: bytes, stream: int, number: int) -> GrpcRefusal | Ask:
        """Generation, streamed or whole."""
        if path not in {STREAM_PATH, WHOLE_PATH}:
            return GrpcRefusal(status=_UNIMPLEMENTED, message="Method not found!")
        try:
            query = read_query(message)
            order = grpc_order(query, is_stream_path=path == STREAM_PATH)
            prompt_tokens, tokens, reason = self._length(order, number)
        except (BadMessageError, NotTakenError) as error:
            return GrpcRefusal(status=_UNKNOWN, message=f"{_RAISED}{error}")
        kind = StreamedReplies if order.is_stream else WholeReply
        answer = kind(stream, prompt_tokens=prompt_tokens, tokens=tokens, finish_reason=reason)
        return _ask(prompt_tokens, tokens, reason, answer)

    def grpc_overloaded(self) -> GrpcRefusal:
        """MII has no limit: the status that gRPC's own servers give for one."""
        return GrpcRefusal(status=_RESOURCE_EXHAUSTED, message="Concurrent RPC limit exceeded!")

    def grpc_failed(self) -> GrpcRefusal:
        """An exception in the replica."""
        return GrpcRefusal(status=_UNKNOWN, message=f"{_RAISED}CUDA error: unknown error")

    def respond(self, request: HttpRequest, number: int, state: EngineState) -> bytes | Ask:
        """The OpenAI server: chat, completions, models, health."""
        del state
        path = request.path.partition("?")[0]
        is_post = request.method == "POST"
        match path:
            case _ if path in {CHAT_PATH, COMPLETIONS_PATH} and is_post:
                return self._generate(request.body, number, is_chat=path == CHAT_PATH)
            case "/health" if not is_post:
                return json_response(200, {"status": "ok"})
            case "/v1/models" if not is_post:
                return json_response(200, {"object": "list", "data": self._models()})
            case _ if path in _PATHS:
                return json_response(405, {"detail": "Method Not Allowed"})
            case _:
                return json_response(404, {"detail": "Not Found"})

    def _generate(self, body: bytes, number: int, *, is_chat: bool) -> bytes | Ask:
        try:
            order = chat_order(body, is_chat=is_chat)
        except NotTakenError as error:
            return _error(_INVALID_TYPE, str(error))
        if self._names and order.model not in self._names:
            return _error(_INVALID_MODEL, self._not_found(order.model, is_chat=is_chat))
        named = OpenAiNamed(number=number, model=order.model, is_chat=is_chat)
        try:
            order.check()
            prompt_tokens, tokens, reason = self._length(order, number)
        except NotTakenError:
            # the answer has begun before the engine is asked
            return named.empty_stream() if order.is_stream else self.failed()
        kind = StreamedEvents if order.is_stream else WholeJson
        answer = kind(
            named, prompt_tokens=prompt_tokens, finish_reason=reason, created=self._created
        )
        return _ask(prompt_tokens, tokens, reason, answer)

    def _not_found(self, model: str, *, is_chat: bool) -> str:
        if is_chat:
            return f'Model "{model}" not found. Please use "{self._names[0]}".'
        return f"Model {model} not found."

    def _models(self) -> list[dict[str, object]]:
        names = self._names or (DEFAULT_NAME,)
        more = {"object": "model", "created": self._created, "owned_by": EMULATOR}
        return [
            {"id": name, **more, "root": name, "parent": None, "permission": []} for name in names
        ]

    def _length(self, order: MiiOrder, number: int) -> tuple[int, int, str]:
        """Tokens of prompt and answer, and why it ends."""
        prompt_tokens = count_tokens(order.prompt)
        longest = min(order.max_length or self._conf.longest_tokens, self._conf.longest_tokens)
        left = longest - prompt_tokens
        if left < 1:
            raise NotTakenError(
                f"max_length ({longest}) must be greater than prompt_length ({prompt_tokens})"
            )
        most = left if order.max_new_tokens is None else min(left, order.max_new_tokens)
        if order.is_forced:
            return prompt_tokens, most, "length"
        salt = f"{self._conf.seed} {number}" if order.do_sample else str(self._conf.seed)
        mean = self._conf.natural_output_tokens
        natural = max(natural_length(order.prompt, mean, salt), order.min_new_tokens)
        return prompt_tokens, min(natural, most), "stop" if natural <= most else "length"

    def loading(self) -> bytes:
        """Not asked for: the port is closed while it loads."""
        return self.failed()

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """MII has no limit; what a proxy before it would say."""
        headers = {"retry-after": str(retry_after_s)}
        return json_response(429, {"detail": f"{in_flight} requests are in flight"}, headers)

    def failed(self) -> bytes:
        """What Starlette says of an exception."""
        return response(500, b"Internal Server Error", "text/plain; charset=utf-8")


def _ask(prompt_tokens: int, tokens: int, reason: str, answer: Answer) -> Ask:
    return Ask(
        prompt_tokens=prompt_tokens, output_tokens=tokens, finish_reason=reason, answer=answer
    )


def _error(code: int, message: str) -> bytes:
    """Every error of the OpenAI server has status 400 and fastchat's code."""
    return json_response(400, {"object": "error", "message": message, "code": code})
