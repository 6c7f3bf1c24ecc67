"""The part of every answer that is not streamed: nothing is sent until all of it is."""


class Whole:
    """An answer that is sent when it is complete; a subclass says its bytes in `last`."""

    __slots__ = ()

    @property
    def head(self) -> bytes:
        """Nothing comes before."""
        return b""

    @property
    def started(self) -> bytes:
        """Nothing comes when the engine begins."""
        return b""

    def token(self, k: int) -> bytes:
        """Nothing yet."""
        del k
        return b""

    def last(self, k: int, cached_tokens: int) -> bytes:
        """All of it, as of `harness.emulate.wires.wire.Answer`."""
        raise NotImplementedError
