"""How long request *i* is: input and output tokens, uniform between the scenario's bounds."""

from dataclasses import dataclass

from harness.config import ScenarioConf
from scenarios.streams import draw_int, stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """What is asked of one request, in tokens of the model's tokenizer, special tokens left out."""

    input_tokens: int
    output_tokens: int


def lengths(conf: ScenarioConf, seed: str, index: int) -> Lengths:
    """The lengths of request `index`, a pure function of (conf, seed, index).

    Uniform on [`input_tokens_min`, `input_tokens`] and [`output_tokens_min`, `output_tokens`],
    independent of each other: in public traces they hardly correlate (method.md 2.2, |r| < .1).
    A minimum of None makes the length fixed.
    """
    return Lengths(
        input_tokens=_one(conf.input_tokens_min, conf.input_tokens, seed, "input_tokens", index),
        output_tokens=_one(
            conf.output_tokens_min, conf.output_tokens, seed, "output_tokens", index
        ),
    )


def _one(low: int | None, high: int, seed: str, purpose: str, index: int) -> int:
    if low is None or low == high:
        return high
    return draw_int(stream(seed, purpose, index), low, high)
