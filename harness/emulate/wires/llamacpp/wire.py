"""llama.cpp's server, started as we start it: slots with a context of their own, metrics on.

Source: llama-server b11434 and the wheel 2026.10.11549, both as seen. Its models are owned by
`bakeoff-emulator`, which marks a run as emulated.
"""

import time
from collections.abc import Mapping

from harness.calibrate.server.wire import HttpRequest
from harness.config import EmulateConf
from harness.emulate.model.sequence import Sequence
from harness.emulate.wires.http import response
from harness.emulate.wires.llamacpp.answer import LlamaStream, LlamaWhole
from harness.emulate.wires.llamacpp.http import http_headers, told_error, told_json
from harness.emulate.wires.llamacpp.metrics import CONTENT_TYPE, LlamaMetrics
from harness.emulate.wires.llamacpp.order import Form, LlamaOrder, read_llama_order, tokenized
from harness.emulate.wires.llamacpp.state import models, props, settings_of, slot_rows
from harness.emulate.wires.llamacpp.told import Told
from harness.emulate.wires.openai.order import RefusedError
from harness.emulate.wires.prompt import block_keys, count_tokens, natural_end
from harness.emulate.wires.wire import Ask, EngineState, Manners
from harness.errors import ConfigError

DEFAULT_NAME = "emulated"
_GENERATE = {
    "/v1/completions": Form.COMPLETIONS,
    "/v1/chat/completions": Form.CHAT,
    "/chat/completions": Form.CHAT,
    "/completion": Form.NATIVE,
    "/completions": Form.NATIVE,
}


class LlamaCppWire:
    """See `harness.emulate.wires.wire.Wire`.

    The context is divided, as with `-no-kvu`: the KV blocks are there for every slot's longest
    sequence, so nothing is ever preempted. ConfigError for knobs with which they are not.
    """

    defaults: Mapping[str, object] = {"slots": 4}
    manners = Manners(listens_while_loading=True, requests_a_connection=100)

    def __init__(self, conf: EmulateConf, names: tuple[str, ...]) -> None:
        self._conf = conf
        self._alias = names[0] if names else DEFAULT_NAME
        self._n_ctx = _context(conf)
        self._metrics = LlamaMetrics(conf)
        self._created = _now_s()

    def respond(self, request: HttpRequest, number: int, state: EngineState) -> bytes | Ask:
        """Generation, tokenising, and what the server says of itself."""
        path, _, query = request.path.partition("?")
        closes = request.headers.get("connection", "").lower() == "close"
        try:
            if request.method == "POST" and path in _GENERATE:
                order = read_llama_order(request.body, _GENERATE[path])
                return self._ask(order, number, closes=closes)
            if request.method == "GET" and path == "/metrics":
                headers = {**http_headers(closes=closes), "Process-Start-Time-Unix": "0"}
                return response(200, self._metrics.text(state), CONTENT_TYPE, headers)
            if request.method == "POST":
                return told_json(_posted(path, request.body), closes=closes)
            return told_json(self._got(path, query, state), closes=closes)
        except RefusedError as refused:
            return told_error(refused.status, str(refused))

    def _got(self, path: str, query: str, state: EngineState) -> object:
        match path:
            case "/health" | "/v1/health":
                return {"status": "ok"}
            case "/v1/models" | "/models":
                return models(self._alias, self._n_ctx, self._created)
            case "/props":
                return props(self._alias, self._conf.slots_played, self._n_ctx)
            case "/slots":
                is_full = all(slot.sequence is not None for slot in state.slots)
                if is_full and "fail_on_no_slot=1" in query:
                    raise RefusedError("no slot available", path, status=503)
                return slot_rows(state.slots, self._n_ctx)
        raise RefusedError("File Not Found", path, status=404)

    def loading(self) -> bytes:
        """503 on every route."""
        return told_error(503, "Loading model")

    def overloaded(self, in_flight: int, retry_after_s: int) -> bytes:
        """429 in the server's form; a real one queues without limit."""
        message = f"{in_flight} requests are in flight: try again later"
        more = {"Retry-After": str(retry_after_s)}
        return told_error(429, message, headers=more)

    def failed(self) -> bytes:
        """500, as when the computation fails."""
        return told_error(500, "Compute error.")

    def _ask(self, order: LlamaOrder, number: int, *, closes: bool) -> bytes | Ask:
        prompt_tokens = count_tokens(order.prompt)
        if prompt_tokens >= self._n_ctx:
            return self._too_long(prompt_tokens)
        told = self._told(order, prompt_tokens, number, closes=closes)
        has_keys = bool(self._conf.prefix_cache) and order.has_cache

        def watch(sequence: Sequence) -> None:
            told.sequence = sequence

        return Ask(
            prompt_tokens=prompt_tokens,
            output_tokens=told.length,
            finish_reason=told.finish_reason,
            answer=LlamaStream(told) if order.is_stream else LlamaWhole(told),
            block_keys=(
                block_keys(order.prompt, self._conf.block_tokens, order.lora) if has_keys else ()
            ),
            watch=watch,
        )

    def _told(self, order: LlamaOrder, prompt_tokens: int, number: int, *, closes: bool) -> Told:
        left = self._n_ctx - prompt_tokens
        most = left if order.max_tokens < 0 else min(order.max_tokens, left)
        natural = natural_end(
            self._conf,
            order.prompt,
            number=number,
            is_sampled=order.temperature > 0,
            seed=order.seed,
        )
        ends = not order.is_forced and natural <= most
        return Told(
            order=order,
            task=number,
            id=f"chatcmpl-{number:032x}",
            created=_now_s(),
            model=self._alias,
            prompt_tokens=prompt_tokens,
            length=natural if ends else most,
            stop_type="eos" if ends else "limit",
            is_truncated=not ends and most == left,
            settings=settings_of(order),
            speed=self._conf.speed,
            closes=closes,
        )

    def _too_long(self, prompt_tokens: int) -> bytes:
        message = (
            f"request ({prompt_tokens} tokens) exceeds the available context size "
            f"({self._n_ctx} tokens), try increasing it"
        )
        sizes = {"n_prompt_tokens": prompt_tokens, "n_ctx": self._n_ctx}
        return told_error(400, message, kind="exceed_context_size_error", sizes=sizes)


def _context(conf: EmulateConf) -> int:
    """Tokens of one slot."""
    slots, given = conf.slots_played, conf.max_model_len_tokens
    share = conf.kv_blocks // slots * conf.block_tokens
    if (given or 1) > share:
        raise ConfigError(
            f"launch.emulate.kv_blocks={conf.kv_blocks}: with launch.emulate.block_tokens="
            f"{conf.block_tokens} they give each of {slots} slots {share} tokens, below "
            f"launch.emulate.max_model_len_tokens={given or 1}; llama.cpp divides its context, so "
            "give more blocks, fewer slots or shorter sequences"
        )
    return given or min(conf.longest_tokens, share)


def _posted(path: str, body: bytes) -> object:
    if path == "/tokenize":
        return tokenized(body)
    if path.startswith("/slots/"):
        raise RefusedError("This server does not support slots action.", path, status=501)
    raise RefusedError("File Not Found", path, status=404)


def _now_s() -> int:
    return int(time.clock_gettime(time.CLOCK_REALTIME))
