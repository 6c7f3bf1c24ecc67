"""When an engine is ready: after its health says so and one real one-token answer has come.

A port that is open, a health route or a model list that answers do not mean that the first token
can be made; the measured window must not hold the loading time. Probes are never results.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from harness.adapter import Adapter
from harness.engine import ports
from harness.engine.grpc_probe import grpc_call
from harness.engine.probe import Answer, Endpoint, NoAnswer, call
from harness.engine.process import EngineProcess
from harness.errors import BakeoffError, ConfigError, NotReadyError
from harness.types import (
    ChunkKind,
    EngineIdentity,
    ErrorClass,
    LogFacts,
    Request,
    StartTimes,
    Wire,
)

POLL_S = 0.1
PROBE_TIMEOUT_S = 5.0
REFUSED_FOR_GOOD_S = 5.0  # a request refused with the same 4xx for so long will not pass later
LAST_WORDS = 8
_WARMUP = Request(index=-1, prompt="Hello", input_tokens=1, max_output_tokens=1)
_FIRST_4XX, _TOO_MANY, _FIRST_5XX = 400, 429, 500
_NO_KEY = frozenset((401, 403))
_NO_ROUTE = frozenset((404, 405))


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """A ready engine. `time_to_ready_s`: from its start to the end of its first real answer.

    For a server that ran already (`launch=attach`) it and `start` are None. `log`: what its log
    says of its start.
    """

    time_to_ready_s: float | None
    identity: EngineIdentity
    start: StartTimes = field(default_factory=StartTimes)
    log: LogFacts = field(default_factory=LogFacts)


def wait_ready(
    process: EngineProcess | None,
    adapter: Adapter,
    endpoint: Endpoint,
    *,
    timeout_s: float,
    on_wait: Callable[[float, str], None] | None = None,
) -> Readiness:
    """Wait until the engine gives a real answer; `process` is None for a server not ours.

    `on_wait`: told the seconds so far and the last answer, about ten times a second. Raises
    NotReadyError (the engine ended, was too slow, or refuses the request for good) and
    ConfigError (another server answers on our port).
    """
    start_s = process.started_s if process else time.monotonic()
    watch = _Watch(adapter, endpoint, deadline_s=start_s + timeout_s, is_ours=process is not None)
    while True:
        last = watch.ask()
        now_s = time.monotonic()
        if last is None:
            identity = ask_identity(adapter, endpoint)
            if process is None:
                return Readiness(time_to_ready_s=None, identity=identity)
            _check_is_ours(process, endpoint.base_url)
            _check_runs(process, adapter)
            return _ready(process, adapter, identity, watch, now_s)
        if process is not None:
            _check_runs(process, adapter)
        if now_s >= start_s + timeout_s:
            raise _too_slow(process, adapter, timeout_s, last)
        watch.check_refusal(last, now_s)
        if on_wait is not None:
            on_wait(now_s - start_s, str(last))
        time.sleep(POLL_S)


def _ready(
    process: EngineProcess,
    adapter: Adapter,
    identity: EngineIdentity,
    watch: "_Watch",
    now_s: float,
) -> Readiness:
    log = adapter.log_facts(process.log_text())
    if identity.kv_capacity_tokens is None:
        identity = replace(identity, kv_capacity_tokens=log.kv_capacity_tokens)
    up_s, start_s = watch.up_s, process.started_s
    return Readiness(
        time_to_ready_s=now_s - start_s,
        identity=identity,
        start=StartTimes(
            up_s=None if up_s is None else up_s - start_s,
            first_answer_s=None if up_s is None else now_s - up_s,
        ),
        log=log,
    )


class _Watch:
    """One server's way to its first answer. `up_s`: when its health route first said yes."""

    def __init__(
        self, adapter: Adapter, endpoint: Endpoint, *, deadline_s: float, is_ours: bool
    ) -> None:
        self._adapter = adapter
        self._endpoint = endpoint
        self._deadline_s = deadline_s
        self._is_ours = is_ours
        self._is_healthy = "health" not in adapter.probes
        self.up_s: float | None = None
        self._refusal = ""
        self._refused_since_s = 0.0

    def ask(self) -> Answer | NoAnswer | None:
        """None if the server is ready, else its last answer."""
        left_s = self._deadline_s - time.monotonic()
        timeout_s = min(PROBE_TIMEOUT_S, max(left_s, POLL_S))
        if not self._is_healthy:
            health = call(self._endpoint, self._adapter.probes["health"], timeout_s)
            if isinstance(health, NoAnswer) or not health.is_ok:
                return health
            self._is_healthy = True
            self.up_s = time.monotonic()
        # A first answer may compile or capture graphs: it gets all the time that is left.
        first = self._adapter.encode(_WARMUP)
        ask = grpc_call if first.wire is Wire.GRPC else call
        answer = ask(self._endpoint, first, max(left_s, POLL_S))
        if isinstance(answer, NoAnswer):
            self._is_healthy = "health" not in self._adapter.probes
            return answer
        return _first_token_problem(self._adapter, answer)

    def check_refusal(self, last: Answer | NoAnswer, now_s: float) -> None:
        """Raise NotReadyError if the server goes on refusing what it will not take later either."""
        status = last.head.status if isinstance(last, Answer) else 0
        if not self._is_for_good(status):
            self._refusal = ""
        elif str(last) != self._refusal:
            self._refusal, self._refused_since_s = str(last), now_s
        elif now_s - self._refused_since_s >= REFUSED_FOR_GOOD_S:
            what = "is up but refuses a one-token request"
            if not self._is_healthy:
                what = f"refuses GET {self._adapter.probes['health'].path}"
            raise NotReadyError(
                f"engine={self._adapter.name}: the server {what}: {last}; {self._advice(status)}"
            )

    def _is_for_good(self, status: int) -> bool:
        if self._is_healthy:
            return _FIRST_4XX <= status < _FIRST_5XX and status != _TOO_MANY
        # one that we have started may open its port before it has its routes
        return status in _NO_KEY or (status in _NO_ROUTE and not self._is_ours)

    def _advice(self, status: int) -> str:
        if status in _NO_KEY:
            if self._endpoint.api_key:
                return "it does not take the key in the variable that launch.api_key_env names"
            return "give its key: launch.api_key_env=NAME, the variable that holds it"
        if self._is_healthy:
            return "check engine.route, engine.args, model.served_name and the model"
        return f"check launch.base_url, and that the server there is engine={self._adapter.name}"


def _first_token_problem(adapter: Adapter, answer: Answer) -> Answer | NoAnswer | None:
    """None if the answer holds what a result needs: no error, and a count of its tokens."""
    decoder = adapter.decoder(answer.head)
    chunks = [chunk for piece in answer.pieces for chunk in decoder.feed(piece)]
    chunks += decoder.end()
    if not answer.is_ok:
        return answer
    for chunk in chunks:
        if chunk.kind is ChunkKind.ERROR:
            what = chunk.message or (chunk.error or ErrorClass.STREAM_ERROR).value
            return NoAnswer(reason=f"200 with an error in it: {what}")
    if adapter.capabilities.usage_in_stream:
        if any(chunk.total_tokens is not None for chunk in chunks):
            return None
        return NoAnswer(reason="200 without a count of its tokens")
    if any(chunk.text or chunk.finish_reason for chunk in chunks):
        return None
    return NoAnswer(reason="200 without a token")


def _check_runs(process: EngineProcess, adapter: Adapter) -> None:
    status = process.poll()
    if status is None:
        return
    after_s = status.at_s - process.started_s
    raise NotReadyError(
        f"engine={process.name}: the server ended with {status} after {after_s:.1f} s, before it "
        f"was ready: {_why(process, adapter)}; its log: {process.log_path}"
    )


def _why(process: EngineProcess, adapter: Adapter) -> str:
    """The engine's own reason with advice where it is known, else its last words."""
    diagnosis = adapter.diagnose(process.log_tail(400))
    if diagnosis is not None:
        return f"{diagnosis.reason}; {diagnosis.advice}"
    lines = [line.strip() for line in process.log_tail(LAST_WORDS).splitlines()]
    return " | ".join(line for line in lines if line) or "it said nothing"


def _too_slow(
    process: EngineProcess | None, adapter: Adapter, timeout_s: float, last: Answer | NoAnswer
) -> BakeoffError:
    advice = "give it more with engine.ready_timeout_s="
    if process is None:
        return NotReadyError(
            f"engine={adapter.name}: not ready within {timeout_s:g} s; last answer: {last}; "
            f"check that the server runs at launch.base_url, or {advice}"
        )
    diagnosis = adapter.diagnose(process.log_tail(400))
    reason = f"; its log says: {diagnosis.reason}; {diagnosis.advice}" if diagnosis else ""
    return NotReadyError(
        f"engine={process.name}: not ready within {timeout_s:g} s; last answer: {last}{reason}; "
        f"its log: {process.log_path}; {advice}"
    )


def _check_is_ours(process: EngineProcess, base_url: str) -> None:
    """ConfigError if the port is served by a process that is none of the engine's."""
    port = int(base_url.rstrip("/").rpartition(":")[2].partition("/")[0])
    found = ports.listeners(port)
    if not found or set(found) & set(process.tree_pids()):
        return
    raise ConfigError(
        f"launch.port={port}: answered by {ports.describe(found)}, which is not "
        f"engine={process.name}; choose another port, or leave launch.port out for a free one"
    )


def ask_identity(adapter: Adapter, endpoint: Endpoint) -> EngineIdentity:
    """What the running engine says it is; probes that fail are left out."""
    bodies = {}
    for name in adapter.identity_probes:
        answer = call(endpoint, adapter.probes[name], PROBE_TIMEOUT_S)
        if isinstance(answer, Answer) and answer.is_ok:
            bodies[name] = answer.body
    return adapter.identity(bodies)
