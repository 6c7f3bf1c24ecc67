"""Triton with TensorRT-LLM's ensemble, as its sources write it (no answer was recorded).

Its ports open when the models are loaded. The second one is for the metrics; here both answer
everything. Its version is the emulator's, so that a run is known as emulated.
"""

import re
from typing import Any

import msgspec

from adapters.openai_compatible import EMULATOR
from harness.calibrate.server.wire import HttpRequest
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.openai.answer import Named
from harness.emulate.wires.openai.order import Order, RefusedError
from harness.emulate.wires.openai.wire import OpenAiWire
from harness.emulate.wires.triton.answer import StreamedAnswer, WholeAnswer
from harness.emulate.wires.triton.metrics import CONTENT_TYPE, metrics_text
from harness.emulate.wires.wire import Answer, Ask, EngineState, Manners

MODEL = "ensemble"
_MODEL_PATH = re.compile(r"/v2/models/([^/]+)/(generate|generate_stream|ready)")


class TritonWire(OpenAiWire):
    """See `harness.emulate.wires.wire.Wire`."""

    manners = Manners(port_offset=2)

    def respond(self, request: HttpRequest, number: int, state: EngineState) -> bytes | Ask:
        """Generation, readiness, the server's name, metrics."""
        path = request.path.partition("?")[0]
        found = _MODEL_PATH.fullmatch(path)
        if found is None:
            return self._tell(path, request, state)
        model, what = found.groups()
        if model != MODEL:
            message = f"Request for unknown model: '{model}' is not found"
            return self._refuse(RefusedError(message, "model"), request.body)
        if what == "ready":
            return response(200, b"")
        if request.method != "POST":
            return response(405, b"Method Not Allowed", "text/plain")
        try:
            return self._ask(request.body, number, is_chat=False)
        except RefusedError as refused:
            return self._refuse(refused, request.body)

    def _tell(self, path: str, request: HttpRequest, state: EngineState) -> bytes:
        del request
        match path:
            case "/v2/health/live" | "/v2/health/ready":
                return response(200, b"")
            case "/v2":
                server = {"name": EMULATOR, "version": "emulated", "extensions": ["generate"]}
                return json_response(200, server)
            case "/metrics":
                return response(200, metrics_text(self._conf, state), CONTENT_TYPE)
            case _:
                return response(404, b"Not Found", "text/plain")

    def _order(self, body: bytes, *, is_chat: bool) -> Order:
        del is_chat
        return read_inputs(body)

    def _answer(self, order: Order, named: Named, tokens: int) -> Answer:
        del tokens
        answer = StreamedAnswer if order.is_stream else WholeAnswer
        return answer(named, has_counts=order.has_usage)

    def _refuse(self, refused: RefusedError, body: bytes) -> bytes:
        del body
        return json_response(400, {"error": str(refused)})

    def _failure(self, order: Order) -> bytes | None:
        """Its connection breaks off: what a stream that fails in the middle says is not known."""
        del order
        return None

    def loading(self) -> bytes:
        """Never asked: the ports are closed as long."""
        return json_response(400, {"error": "the server is not ready"})

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """A full queue, as Triton says it where a queue's size is limited."""
        message = f"Exceeds maximum queue size: {in_flight} requests are in flight"
        headers = {"retry-after": str(retry_after_s)}
        return json_response(429, {"error": message}, headers)

    def failed(self) -> bytes:
        """500 with the backend's words."""
        return json_response(500, {"error": "Executor failed process requestId"})


def read_inputs(body: bytes) -> Order:
    """The inputs of the ensemble; RefusedError for one that is missing or of another type."""
    try:
        data: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RefusedError(f"failed to parse the request JSON buffer: {error}", "body") from error
    if not isinstance(data, dict):
        raise RefusedError("the request JSON must be an object", "body")
    text, most = data.get("text_input"), data.get("max_tokens")
    if not isinstance(text, str) or not text:
        raise RefusedError("expected a text in input 'text_input'", "text_input")
    if type(most) is not int or most < 1:
        raise RefusedError("expected an integer of at least 1 in input 'max_tokens'", "max_tokens")
    least, seed = data.get("min_tokens"), data.get("seed")
    least = least if type(least) is int else 0
    return Order(
        prompt=text,
        model="",
        max_tokens=most,
        min_tokens=least,
        is_forced=least >= most,
        is_stream=data.get("stream") is True,
        has_usage=data.get("return_num_output_tokens") is True,
        temperature=0.0 if data.get("top_k") == 1 else 1.0,
        seed=seed if type(seed) is int else None,
        has_running_usage=False,
        has_ids=False,
    )
