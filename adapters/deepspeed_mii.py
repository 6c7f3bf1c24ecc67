"""DeepSpeed-MII over gRPC, the one route of it that streams: a message for each token.

It has no metrics, no tokenise route and no health route on this port. Source: facts of MII 0.3.3
(mii/grpc_related, modelresponse.proto); greedy is do_sample=false, a length is forced by
ignore_eos with max_new_tokens.
"""

from collections.abc import Mapping

from adapters.failures import error_chunk
from adapters.mii_wire import STREAM_PATH, Reply, read_reply, request_message
from adapters.protobuf import BadMessageError
from adapters.session import plain_text
from harness.adapter import Decoder, ServeContext, ServeSpec
from harness.config import EngineConf, ModelConf, ModelFormat, Route
from harness.errors import ConfigError
from harness.types import (
    Capabilities,
    Chunk,
    ChunkKind,
    Diagnosis,
    EngineIdentity,
    EngineSample,
    ErrorClass,
    HttpCall,
    LogFacts,
    Provenance,
    Request,
    ResponseHead,
    Wire,
)

_RUNNING = "none"  # the finish_reason of every message but the last


class MiiDecoder:
    """One stream of MultiGenerationReply; `feed` takes one whole message, as gRPC frames it."""

    def __init__(self) -> None:
        self._is_complete = False
        self._is_over = False

    def feed(self, data: bytes) -> list[Chunk]:
        """See `harness.adapter.Decoder`."""
        if self._is_over:
            return []
        try:
            reply = read_reply(data)
        except BadMessageError as error:
            self._is_over = True
            return [error_chunk(ErrorClass.STREAM_ERROR, str(error))]
        self._is_complete = reply.finish_reason != _RUNNING
        return [self._chunk(reply)]

    def _chunk(self, reply: Reply) -> Chunk:
        return Chunk(
            kind=ChunkKind.USAGE if self._is_complete and not reply.text else ChunkKind.TEXT,
            text=reply.text,
            total_tokens=reply.generated_tokens,
            prompt_tokens=reply.prompt_tokens,
            finish_reason=reply.finish_reason if self._is_complete else None,
        )

    def end(self) -> list[Chunk]:
        """See `harness.adapter.Decoder`."""
        if self._is_over or self._is_complete:
            return []
        self._is_over = True
        message = "the stream ended without a finish_reason"
        return [error_chunk(ErrorClass.INCOMPLETE_STREAM, message)]


class DeepSpeedMiiAdapter:
    """A deployment's gRPC port (50050 unless set otherwise); attach only."""

    name = "deepspeed_mii"
    model_format: ModelFormat | None = ModelFormat.HF
    capabilities = Capabilities(
        forced_length=True,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.NOT_EXPOSED,
        prefix_cache_off=True,
        tokenize_route=False,
        metrics=False,
        wire=Wire.GRPC,
    )
    probes: Mapping[str, HttpCall] = {}
    sample_probes: tuple[str, ...] = ()
    identity_probes: tuple[str, ...] = ()

    def __init__(self, engine: EngineConf, model: ModelConf) -> None:
        del model
        if engine.route is Route.CHAT:
            raise ConfigError(
                "engine.route=chat: engine=deepspeed_mii streams over gRPC, which has one route; "
                "engine.route=completions, or engine=openai for its OpenAI server"
            )

    def serve(self, conf: EngineConf, model: ModelConf, ctx: ServeContext) -> ServeSpec:
        """Not possible for a server that we only attach to."""
        del model, ctx
        raise ConfigError(
            f"launch.mode=process: engine={conf.name} is not started by bakeoff; start it yourself "
            "and give launch=attach launch.base_url=http://127.0.0.1:50050"
        )

    def encode(self, request: Request) -> HttpCall:
        """See `harness.adapter.Adapter`; MII samples without a seed, so only greedy is taken."""
        message = request_message(plain_text(request), max_new_tokens=request.max_output_tokens)
        return HttpCall(path=STREAM_PATH, body=message, wire=Wire.GRPC)

    def decoder(self, head: ResponseHead) -> Decoder:
        """See `harness.adapter.Adapter`."""
        del head
        return MiiDecoder()

    def engine_sample(self, bodies: Mapping[str, bytes]) -> EngineSample:
        """Nothing: MII has no metrics."""
        del bodies
        return EngineSample()

    def identity(self, bodies: Mapping[str, bytes]) -> EngineIdentity:
        """Nothing: the gRPC service does not say what it is."""
        del bodies
        return EngineIdentity()

    def log_facts(self, log: str) -> LogFacts:
        """Nothing: the log of a server that we attach to is not ours."""
        del log
        return LogFacts()

    def diagnose(self, log_tail: str) -> Diagnosis | None:
        """Nothing: the log of a server that we attach to is not ours."""
        del log_tail
        return None
