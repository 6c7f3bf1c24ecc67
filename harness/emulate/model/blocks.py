"""The KV cache as blocks: counted, shared between equal beginnings, given out and taken back."""

from collections import OrderedDict
from collections.abc import Hashable


class SharedBlock:
    """A full block of a prompt that others with the same beginning may use.

    `refs`: sequences that hold it now. `is_known`: it can still be found under its key.
    """

    __slots__ = ("is_known", "key", "refs")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.refs = 1
        self.is_known = True


class BlockPool:
    """`count` blocks. A block that nobody holds stays findable until its room is needed.

    Which block is given up first follows vLLM's cache: the one that was let go longest ago, and
    of one sequence the end before the beginning.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._empty = count
        self._known: dict[Hashable, SharedBlock] = {}
        self._idle: OrderedDict[Hashable, SharedBlock] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that could be given out now."""
        return self._empty + len(self._idle)

    @property
    def usage_ratio(self) -> float:
        """Share of the blocks that sequences hold, 0..1."""
        return 1.0 - self.available / self.count

    def allocate(self, blocks: int) -> bool:
        """Give out so many blocks, or none of them and False."""
        if blocks > self.available:
            return False
        while self._empty < blocks:
            _, oldest = self._idle.popitem(last=False)
            self._forget(oldest)
        self._empty -= blocks
        return True

    def find(self, keys: tuple[Hashable, ...], most: int) -> list[SharedBlock]:
        """The known blocks of the longest beginning of `keys`, at most `most`, each now held."""
        found: list[SharedBlock] = []
        for key in keys[:most]:
            block = self._known.get(key)
            if block is None:
                break
            if block.refs == 0:
                del self._idle[key]
            block.refs += 1
            found.append(block)
        return found

    def publish(self, key: Hashable) -> SharedBlock | None:
        """Let a block that is held be found under `key`; None if another one is already."""
        if key in self._known:
            return None
        block = self._known[key] = SharedBlock(key)
        return block

    def release(self, shared: list[SharedBlock], private: int) -> None:
        """Take back what a sequence held."""
        self._empty += private
        for block in reversed(shared):
            block.refs -= 1
            if block.refs:
                continue
            if block.is_known:
                self._idle[block.key] = block
            else:
                self._empty += 1

    def reset(self) -> None:
        """Forget all beginnings; blocks that are held stay with who holds them."""
        self._empty += len(self._idle)
        self._idle.clear()
        for block in self._known.values():
            block.is_known = False
        self._known.clear()

    def _forget(self, block: SharedBlock) -> None:
        del self._known[block.key]
        block.is_known = False
        self._empty += 1
