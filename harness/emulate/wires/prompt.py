"""Tokens of a prompt without a tokenizer, and how long an answer comes out by itself."""

import math
from collections.abc import Hashable, Sequence
from random import Random
from zlib import crc32

from harness.config import EmulateConf

VOCABULARY = 32_000
CHARACTERS_A_TOKEN = 4  # of English text, about what tokenizers with 32k to 128k words reach


def count_tokens(prompt: str | Sequence[int]) -> int:
    """One token for each 4 characters begun, at least 1; ids count as they are."""
    if isinstance(prompt, str):
        return max(1, -(-len(prompt) // CHARACTERS_A_TOKEN))
    return max(1, len(prompt))


def token_ids(prompt: str | Sequence[int]) -> list[int]:
    """Ids for the tokens that `count_tokens` counts: the same piece has the same id."""
    if not isinstance(prompt, str):
        return list(prompt)
    size = CHARACTERS_A_TOKEN
    pieces = (prompt[at : at + size] for at in range(0, max(1, len(prompt)), size))
    return [crc32(piece.encode("utf-8", "surrogatepass")) % VOCABULARY for piece in pieces]


def block_keys(
    prompt: str | Sequence[int], block_tokens: int, salt: Hashable
) -> tuple[Hashable, ...]:
    """A key for each full block of the prompt, equal where all before it is equal too.

    `salt`: what must not share, such as the name of a LoRA adapter.
    """
    size = block_tokens * (CHARACTERS_A_TOKEN if isinstance(prompt, str) else 1)
    keys: list[Hashable] = []
    key: Hashable = salt
    for begin in range(0, len(prompt) - size + 1, size):
        piece = prompt[begin : begin + size]
        key = hash((key, piece if isinstance(piece, str) else tuple(piece)))
        keys.append(key)
    return tuple(keys)


def natural_length(prompt: str | Sequence[int], mean_tokens: int, salt: str) -> int:
    """Tokens of an answer that ends by itself: geometric, the same for the same prompt and salt.

    A constant chance to end at each token is the plainest choice with a known mean.
    """
    if mean_tokens <= 1:
        return 1
    text = prompt if isinstance(prompt, str) else ",".join(map(str, prompt))
    random = Random(f"{salt} {crc32(text.encode('utf-8', 'surrogatepass'))}")
    chance = 1.0 - random.random()  # in (0, 1]
    return max(1, math.ceil(math.log(chance) / math.log1p(-1.0 / mean_tokens)))


def natural_end(
    conf: EmulateConf,
    prompt: str | Sequence[int],
    *,
    number: int,
    is_sampled: bool,
    seed: int | None,
) -> int:
    """Tokens of an answer that ends by itself.

    Greedy, or with a seed, it is the same for the same prompt; else another for each `number`.
    """
    salt = str(conf.seed)
    if is_sampled:
        salt += f" {number if seed is None else seed}"
    return natural_length(prompt, conf.natural_output_tokens, salt)
