"""What the blocks of the KV cache are to a sequence: found, added, shared, given back."""

from harness.config import EmulateConf
from harness.emulate.model.blocks import BlockPool
from harness.emulate.model.sequence import Sequence


class KvMemory:
    """The KV cache, with or without reuse of equal beginnings."""

    def __init__(self, conf: EmulateConf) -> None:
        self.has_cache = bool(conf.prefix_cache)
        self._block_tokens = conf.block_tokens
        self._pool = BlockPool(conf.kv_blocks)

    @property
    def usage_ratio(self) -> float:
        """Share of the blocks that sequences hold, 0..1."""
        return self._pool.usage_ratio

    def look_up(self, sequence: Sequence) -> None:
        """Give it the known blocks of its beginning; at least one token is left to compute."""
        if not self.has_cache:
            return
        most = (sequence.todo - 1) // self._block_tokens
        sequence.shared = self._pool.find(sequence.block_keys, most)
        sequence.published = len(sequence.shared)
        sequence.computed = sequence.room_tokens = sequence.published * self._block_tokens
        sequence.todo -= sequence.computed

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for so many tokens more; False if there are no blocks for them."""
        missing = sequence.computed + tokens - sequence.room_tokens
        if missing <= 0:
            return True
        blocks = -(-missing // self._block_tokens)
        if not self._pool.allocate(blocks):
            return False
        sequence.private_blocks += blocks
        sequence.room_tokens += blocks * self._block_tokens
        return True

    def publish(self, sequence: Sequence) -> None:
        """Let others find the full blocks of its prompt that are computed by now."""
        if not self.has_cache or sequence.published == len(sequence.block_keys):
            return
        whole = min(sequence.computed // self._block_tokens, len(sequence.block_keys))
        for key in sequence.block_keys[sequence.published : whole]:
            block = self._pool.publish(key)
            if block is not None:
                sequence.shared.append(block)
                sequence.private_blocks -= 1
        sequence.published = max(sequence.published, whole)

    def release(self, sequence: Sequence) -> None:
        """Take all its blocks back; what it had computed is gone."""
        self._pool.release(sequence.shared, sequence.private_blocks)
        sequence.forget()

    def reset(self) -> None:
        """Forget the beginnings of all prompts."""
        self._pool.reset()
