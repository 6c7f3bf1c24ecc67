"""What happens when bytes of a gRPC answer come: stamped, journalled, looked at for the end."""

from collections.abc import Callable
from time import monotonic
from typing import Any

from harness.grpc.client import Http2Client
from harness.load.journal import HEADER, Kind
from harness.load.wire.exchange import Exchange
from harness.load.wire.stamps import ANCILLARY_BYTES, arrival

READ_BYTES = 64 * 1024  # more, and malloc maps and unmaps memory for every read
_READ, _READ_USER = int(Kind.READ), int(Kind.READ_USER)


def reader(
    exchange: Exchange,
    http2: Http2Client,
    *,
    recv: Callable[[int, int], Any],
    put: Callable[[bytes], None],
    mask: Callable[[bytes], bytes] | None,
    finish: Callable[[str, float], None],
    flush: Callable[[], None],
) -> Callable[[], None]:
    """The io callback of an exchange: it runs once a message, so all it needs are its locals.

    Args:
        exchange: whose answer comes.
        http2: the state of its connection.
        recv: `recvmsg` of the socket.
        put: of the journal.
        mask: applied to what is journalled; None: nothing is secret.
        finish: is told, once, why and when the exchange ended.
        flush: sends what waits.
    """
    pack, feed, outflow = HEADER.pack, http2.feed, http2.outflow
    index, kept = exchange.index, exchange.kept

    def on_readable() -> None:
        t_s, reason = 0.0, "eof"
        try:
            data, ancillary, _, _ = recv(READ_BYTES, ANCILLARY_BYTES)
            t_s, late_s, is_kernel = arrival(ancillary)
            if data:
                exchange.last, exchange.last_s, reason = data, t_s, ""
                if not is_kernel:
                    exchange.unstamped_reads += 1
                if kept is not None:
                    kept.append(data)
                payload = data if mask is None else mask(data)
                put(pack(_READ if is_kernel else _READ_USER, index, t_s, late_s, len(payload)))
                put(payload)
                feed(data)
        except BlockingIOError:
            return
        except Exception as error:  # noqa: BLE001 - whatever comes must not stop the loop
            http2.is_leaving = True
            reason = broken_by(error)
        exchange.got_bytes = http2.is_begun
        # bytes behind a whole answer only cost the connection
        if reason := "complete" if http2.is_complete else reason or http2.reset:
            finish(reason, t_s or monotonic())
        if outflow.out or outflow.unsent:
            flush()

    return on_readable


def broken_by(error: Exception) -> str:
    """Why an exchange ends that met this error."""
    if isinstance(error, OSError):
        return f"reset: {error.strerror or error}"
    return f"garbage: {error}"
