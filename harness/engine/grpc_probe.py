"""One blocking gRPC call beside the load: whether a server that speaks nothing else is ready."""

import socket
import time
from urllib.parse import urlsplit

from harness.engine.probe import MAX_BODY_BYTES, Answer, Endpoint, NoAnswer
from harness.grpc.call import grpc_bytes
from harness.grpc.client import Http2Client
from harness.grpc.frames import FramingError
from harness.grpc.kept import read_grpc_answer
from harness.types import HttpCall

_READ_BYTES = 65536


def grpc_call(endpoint: Endpoint, call: HttpCall, timeout_s: float) -> Answer | NoAnswer:
    """One call on a connection of its own, and its whole answer within `timeout_s`."""
    started_s = time.monotonic()
    url = urlsplit(endpoint.base_url)
    address = (url.hostname or "", url.port or 80)
    try:
        with socket.create_connection(address, timeout_s) as sock:
            data = _exchange(sock, call, url.netloc, started_s + timeout_s)
    except ConnectionRefusedError:
        return NoAnswer(reason="connection refused")
    except TimeoutError:
        return NoAnswer(reason="no answer in time")
    except FramingError as error:
        return NoAnswer(reason=f"not gRPC: {error}")
    except OSError as error:
        return NoAnswer(reason=str(error.strerror or error).lower())
    head, messages = read_grpc_answer(data)
    if head is None:
        return NoAnswer(reason="a gRPC call without an answer, or with an error status")
    elapsed_s = time.monotonic() - started_s
    return Answer(head=head, body=b"", elapsed_s=elapsed_s, messages=messages)


def _exchange(sock: socket.socket, call: HttpCall, authority: str, deadline_s: float) -> bytes:
    """What came until the call was over, as read."""
    client = Http2Client()
    client.request(grpc_bytes(call, authority=authority, request_id="probe"))
    taken = bytearray()
    while not client.is_complete:
        while out := client.outflow.pump():
            sock.sendall(out)
            out.clear()
        if client.reset:
            raise FramingError(client.reset)
        sock.settimeout(max(deadline_s - time.monotonic(), 0.001))
        data = sock.recv(_READ_BYTES)
        if not data:
            raise ConnectionResetError(0, "connection closed without an answer")
        taken += data
        client.feed(data)
        if len(taken) > MAX_BODY_BYTES:
            raise FramingError(f"an answer larger than {MAX_BODY_BYTES} bytes")
    return bytes(taken)
