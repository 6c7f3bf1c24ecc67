"""Text Generation Inference as its sources say it answers: native routes, chat and completions.

Its model is owned by `bakeoff-emulator`, which marks a run as emulated; TGI names the model there.
Not played: several prompts or `best_of` in a request, tools, grammars, and the pieces of 1024
tokens that an answer without a length is made in.
"""

import time
from collections.abc import Mapping

from adapters.openai_compatible import EMULATOR
from harness.calibrate.server.wire import CHAT_PATH, COMPLETIONS_PATH, HttpRequest
from harness.config import EmulateConf
from harness.emulate.wires.http import json_response, response
from harness.emulate.wires.prompt import block_keys, count_tokens, natural_end
from harness.emulate.wires.tgi.answer import StreamedAnswer, WholeAnswer
from harness.emulate.wires.tgi.body import NotReadError, read_body
from harness.emulate.wires.tgi.metrics import Figures, Watch
from harness.emulate.wires.tgi.named import EOS, Named, prompt_tokens_of
from harness.emulate.wires.tgi.order import (
    MAX_CLIENT_BATCH_SIZE,
    MAX_STOP_SEQUENCES,
    Form,
    InvalidError,
    Order,
    chat_prompt,
    native_prompt,
    read_order,
)
from harness.emulate.wires.tgi.refusal import error_response, plain_response, refusal
from harness.emulate.wires.wire import Ask, EngineState, Manners

VERSION = "3.3.7"
DEFAULT_NAME = "emulated"
MAX_CONCURRENT_REQUESTS = 128
_FORMS = {
    "/": Form.COMPAT,
    "/generate": Form.NATIVE,
    "/generate_stream": Form.NATIVE,
    CHAT_PATH: Form.CHAT,
    COMPLETIONS_PATH: Form.COMPLETIONS,
}
_TOKENIZERS = ("/tokenize", "/chat_tokenize")
_INFO = ("/", "/health", "/ping", "/info", "/metrics", "/v1/models")
_OVERLOADED = (429, "Model is overloaded", "overloaded")
_FAILED = (424, "Request failed during generation: emulated failure", "generation")


class TgiWire:
    """See `harness.emulate.wires.wire.Wire`."""

    defaults: Mapping[str, object] = {"max_in_flight": MAX_CONCURRENT_REQUESTS}
    manners = Manners()

    def __init__(self, conf: EmulateConf, names: tuple[str, ...]) -> None:
        self._conf = conf
        self._model = names[0] if names else DEFAULT_NAME
        self._figures = Figures(conf.longest_tokens)

    def respond(self, request: HttpRequest, number: int, state: EngineState) -> bytes | Ask:
        """Generation, tokens, health, metrics and what it says of itself."""
        path = request.path.partition("?")[0]
        if request.method == "GET" and path in _INFO:
            return self._tell(path, state)
        if path not in _FORMS and path not in _TOKENIZERS:
            return response(405 if path in _INFO else 404, b"", "text/plain")
        if request.method != "POST":
            return response(405, b"", "text/plain")
        try:
            if path in _TOKENIZERS:
                return self._tokens(request, is_chat=path == "/chat_tokenize")
            is_stream = path == "/generate_stream"
            return self._generate(request, number, _FORMS[path], is_stream=is_stream)
        except NotReadError as error:
            return plain_response(error.status, str(error))

    def loading(self) -> bytes:
        """Nobody hears it: the port is closed until all shards are ready."""
        return error_response(503, "unhealthy", "healthcheck")

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """TGI names no wait; a stream is refused by `Ask.overloaded`."""
        del in_flight, retry_after_s
        return error_response(*_OVERLOADED)

    def failed(self) -> bytes:
        """A batch that could not be computed; a stream fails by `Ask.failed`."""
        return error_response(*_FAILED)

    def _tell(self, path: str, state: EngineState) -> bytes:
        match path:
            case "/info":
                return json_response(200, self._info())
            case "/metrics":
                return response(200, self._figures.text(state), "text/plain; charset=utf-8")
            case "/v1/models":
                model = {"id": self._model, "object": "model", "created": 0, "owned_by": EMULATOR}
                return json_response(200, {"object": "list", "data": [model]})
            case _:
                return response(200, b"", "text/plain")

    def _info(self) -> dict[str, object]:
        longest = self._conf.longest_tokens
        return {
            "model_id": self._model,
            "model_sha": None,
            "model_pipeline_tag": "text-generation",
            "max_concurrent_requests": self._conf.max_in_flight or MAX_CONCURRENT_REQUESTS,
            "max_best_of": 1,
            "max_stop_sequences": MAX_STOP_SEQUENCES,
            "max_input_tokens": longest - 1,
            "max_total_tokens": longest,
            "validation_workers": 2,
            "max_client_batch_size": MAX_CLIENT_BATCH_SIZE,
            "router": "text-generation-router",
            "version": VERSION,
            "sha": None,
            "docker_label": None,
        }

    def _tokens(self, request: HttpRequest, *, is_chat: bool) -> bytes:
        data = read_body(request)
        if not is_chat:
            return json_response(200, prompt_tokens_of(native_prompt(data)))
        self._figures.requests += 1
        text = chat_prompt(data)
        tokens = {"tokenize_response": prompt_tokens_of(text), "templated_text": text}
        return json_response(200, tokens)

    def _generate(
        self, request: HttpRequest, number: int, form: Form, *, is_stream: bool
    ) -> bytes | Ask:
        try:
            order = read_order(request, form, is_stream=is_stream)
        except InvalidError as early:
            self._figures.requests += 1
            self._figures.failed("validation")
            return error_response(422, str(early), early.kind)
        self._figures.requests += 2 if form.is_openai else 1  # there it is counted at each door
        try:
            return self._ask(order, number)
        except InvalidError as invalid:
            self._figures.failed("validation")
            return refusal(order, 422, f"Input validation error: {invalid}", invalid.kind)

    def _ask(self, order: Order, number: int) -> Ask:
        prompt_tokens = count_tokens(order.prompt)
        if order.truncate is not None:
            prompt_tokens = min(prompt_tokens, order.truncate)
        most = self._most_tokens(order, prompt_tokens)
        natural = self._natural_tokens(order, number)
        reason = EOS if natural <= most else "length"
        named = Named(
            order=order,
            model=self._model,
            fingerprint=f"{VERSION}-native",
            created=int(time.clock_gettime(time.CLOCK_REALTIME)),
            prompt_tokens=prompt_tokens,
            finish_reason=reason,
            seed=(number if order.seed is None else order.seed) if order.is_sampled else None,
        )
        watch = Watch(self._figures, prompt_tokens, most)
        has_cache = self._conf.prefix_cache and not order.has_prefill  # which needs all of it read
        return Ask(
            prompt_tokens=prompt_tokens,
            output_tokens=min(natural, most),
            finish_reason=reason,
            answer=(StreamedAnswer if order.is_stream else WholeAnswer)(named, watch),
            block_keys=block_keys(order.prompt, self._conf.block_tokens, order.adapter)
            if has_cache
            else (),
            overloaded=lambda: self._refuse(order, _OVERLOADED),
            failed=lambda: self._refuse(order, _FAILED),
        )

    def _refuse(self, order: Order, said: tuple[int, str, str]) -> bytes:
        self._figures.failed(said[2])
        return refusal(order, *said)

    def _most_tokens(self, order: Order, prompt_tokens: int) -> int:
        """Most tokens that the answer may have; InvalidError as TGI words it."""
        if order.problem is not None:
            raise order.problem
        longest = self._conf.longest_tokens
        most = order.max_new_tokens
        if most is None:
            most = max(0, longest - prompt_tokens)
        if prompt_tokens + most > longest:
            raise InvalidError(
                f"`inputs` tokens + `max_new_tokens` must be <= {longest}. Given: {prompt_tokens} "
                f"`inputs` tokens and {most} `max_new_tokens`"
            )
        if prompt_tokens > longest - 1:
            raise InvalidError(
                f"`inputs` must have less than {longest - 1} tokens. Given: {prompt_tokens}"
            )
        return most

    def _natural_tokens(self, order: Order, number: int) -> int:
        """Where it ends by itself, with the end token: no request can forbid that."""
        return natural_end(
            self._conf,
            order.prompt,
            number=number,
            is_sampled=order.is_sampled,
            seed=order.seed,
        )
