"""Does the engine answer the same request with the same text, alone and in a crowd?

Asked before the load, by a client of its own: nothing of it is timed. Batches of another size can
take other kernels, whose sums round otherwise: then the text depends on who else is served.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from harness.adapter import Adapter
from harness.answer import Answer as Answered
from harness.engine.grpc_probe import grpc_call
from harness.engine.probe import Answer, Endpoint, call
from harness.types import Determinism, Request, Wire

_TIMEOUT_S = 120.0


def ask_again_and_again(
    adapter: Adapter, endpoint: Endpoint, request: Request, count: int
) -> Determinism:
    """Send one request `count` times one after another, then `count` times at once.

    An answer that fails is no text: it is counted apart.
    """
    alone = [_text(adapter, endpoint, request) for _ in range(count)]
    with ThreadPoolExecutor(max_workers=count) as pool:
        crowd = list(pool.map(lambda _: _text(adapter, endpoint, request), range(count)))
    return Determinism(
        requests=count,
        output_tokens=request.max_output_tokens,
        alone=_distinct(alone),
        crowd=_distinct(crowd),
        together=_distinct([*alone, *crowd]),
        failed=[*alone, *crowd].count(None),
    )


def _distinct(texts: Sequence[str | None]) -> int:
    return len({text for text in texts if text is not None})


def _text(adapter: Adapter, endpoint: Endpoint, request: Request) -> str | None:
    asked = adapter.encode(request)
    ask = grpc_call if asked.wire is Wire.GRPC else call
    came = ask(endpoint, asked, _TIMEOUT_S)
    if not isinstance(came, Answer) or not came.is_ok:
        return None
    answered = Answered(adapter.decoder(came.head))
    for piece in came.pieces:
        answered.feed(0.0, piece)
    answered.end(0.0)
    return None if answered.error else answered.text
