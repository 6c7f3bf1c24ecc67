"""Plays timed pieces of an answer through a decoder and gives the figures. No clock, no socket."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from harness.adapter import Decoder
from harness.answer import Answer

_S_PER_MS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one answer, in milliseconds after the request was sent; None: none.

    `gaps_ms`: between token chunks. `tpot_ms`: (last token chunk - first) / (N - k), k tokens in
    the first chunk if the server says, else 1. `stream_end_ms`: [DONE], or what completed it.
    """

    ttft_ms: float | None
    first_content_ms: float | None
    gaps_ms: tuple[float, ...]
    tpot_ms: float | None
    stream_end_ms: float | None


def played_answer(
    decoder: Decoder,
    pieces: Iterable[tuple[float, str]],
    *,
    count_tokens: Callable[[str], int] | None = None,
) -> Answer:
    """Feed (delay_ms after the one before, latin-1 text) pieces, then the clean end of the body.

    Stamps are milliseconds times 1e-3. An empty text is only a wait.
    """
    answer = Answer(decoder, count_tokens=count_tokens)
    now_ms = 0.0
    for delay_ms, text in pieces:
        now_ms += delay_ms
        if text:
            answer.feed(now_ms * _S_PER_MS, text.encode("latin-1"))
    answer.end(now_ms * _S_PER_MS)
    return answer


def figures(answer: Answer) -> Figures:
    """The figures of a played answer."""
    times_ms = [_ms(t_s) for t_s in answer.chunk_s]
    return Figures(
        ttft_ms=times_ms[0] if times_ms else None,
        first_content_ms=None if answer.first_content_s is None else _ms(answer.first_content_s),
        gaps_ms=tuple(round(b - a, 6) for a, b in pairwise(times_ms)),
        tpot_ms=_tpot_ms(answer, times_ms),
        stream_end_ms=None if answer.stream_end_s is None else _ms(answer.stream_end_s),
    )


def _ms(t_s: float) -> float:
    return round(t_s / _S_PER_MS, 6)


def _tpot_ms(answer: Answer, times_ms: list[float]) -> float | None:
    tokens = answer.output_tokens
    if tokens is None or len(times_ms) < 2:  # noqa: PLR2004  # one chunk has no gap
        return None
    rest = tokens - (answer.chunk_tokens[0] or 1)
    return (times_ms[-1] - times_ms[0]) / rest if rest >= 1 else None
