"""How many tokens one hash id of a trace stands for."""

from collections.abc import Sequence
from itertools import compress

from harness.errors import ConfigError

MOONCAKE_BLOCK_TOKENS = 512  # kvcache-ai/Mooncake, FAST'25 traces
_OTHERS = (16, 32, 64, 128, 256, 1024, 2048)  # Qwen's Bailian traces, under the same names, have 16


def find_block_tokens(
    input_tokens: Sequence[int], hash_ids: Sequence[Sequence[int]] | None, name: str
) -> int:
    """The block size with which most prompts have as many ids as blocks, the last one begun.

    512, as Mooncake has it, wherever that fits, and for a trace without ids.

    Raises:
        ConfigError: no size fits; shared beginnings could not be replayed truthfully.
    """
    if hash_ids is None:
        return MOONCAKE_BLOCK_TOKENS
    lengths = list(compress(input_tokens, hash_ids))
    counts = [len(ids) for ids in hash_ids if ids]
    for size in (MOONCAKE_BLOCK_TOKENS, *_OTHERS):
        fits = sum(
            count == -(-tokens // size) for tokens, count in zip(lengths, counts, strict=True)
        )
        if 2 * fits > len(counts):
            return size
    raise ConfigError(
        f"trace {name}: hash_ids do not fit the lengths ({counts[0]} ids for {lengths[0]} tokens): "
        f"must be one id for every {MOONCAKE_BLOCK_TOKENS} tokens begun; remove the column to "
        "replay lengths only"
    )
