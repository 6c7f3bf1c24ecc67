"""A small blocking HTTP client for probes beside the load: never for what is measured.

No proxy, no redirect is followed, and an answer is never larger than a limit. Nothing is raised
for a server that does not answer: that is a `NoAnswer` with its reason.
"""

import http.client
import socket
import ssl
import time
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import urlsplit

from adapters.failures import said
from harness.errors import ConfigError
from harness.packed import is_packed, unpacked
from harness.types import HttpCall, ResponseHead

MAX_BODY_BYTES = 16 * 1024 * 1024
_HTTP_OK = 200
_WORDS = 200


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is and what it asks for.

    `api_key`: sent as a bearer token, never shown. `tls_verify`: false takes any certificate.
    """

    base_url: str
    api_key: str = field(default="", repr=False, kw_only=True)
    tls_verify: bool = field(default=True, kw_only=True)

    @property
    def headers(self) -> dict[str, str]:
        """What every request to it carries."""
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete answer, whatever its status. `elapsed_s`: from the call to its end.

    `messages`: of a gRPC call, in place of the body.
    """

    head: ResponseHead
    body: bytes
    elapsed_s: float
    messages: tuple[bytes, ...] = ()

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """What a decoder is fed, one after another."""
        return self.messages or (self.body,)

    @property
    def is_ok(self) -> bool:
        """Status 200."""
        return self.head.status == _HTTP_OK

    def __str__(self) -> str:
        """Status and message, such as `503 Loading model`."""
        return f"{self.head.status} {said(self.body)[:_WORDS]}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """Nothing came, or not all of it; `reason` in a few words, such as `connection refused`."""

    reason: str

    def __str__(self) -> str:
        return self.reason


class ProbeConnection:
    """A keep-alive connection to one server, opened when needed; not for several threads."""

    def __init__(self, endpoint: Endpoint) -> None:
        base_url = endpoint.base_url
        url = urlsplit(base_url)
        try:
            port = url.port
        except ValueError as error:
            raise ConfigError(f"{base_url}: not a URL: {error}") from error
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ConfigError(f"{base_url}: must be http://HOST:PORT or https://HOST:PORT")
        self._endpoint = endpoint
        self._beside: dict[int, ProbeConnection] = {}  # by the offset of their port
        self._prefix = url.path.rstrip("/")
        self._headers = endpoint.headers
        if url.scheme == "https":
            context = ssl.create_default_context()
            if not endpoint.tls_verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._http: http.client.HTTPConnection = http.client.HTTPSConnection(
                url.hostname, port, context=context
            )
        else:
            self._http = http.client.HTTPConnection(url.hostname, port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        self._http.close()
        for other in self._beside.values():
            other.close()

    def call(self, call: HttpCall, timeout_s: float) -> Answer | NoAnswer:
        """One request and its whole answer within about `timeout_s` and the call's `hold_s`."""
        if call.port_offset:
            return self._at_port(call.port_offset).call(replace(call, port_offset=0), timeout_s)
        return self._call(call, timeout_s + call.hold_s)

    def _at_port(self, offset: int) -> "ProbeConnection":
        if offset not in self._beside:
            url, port = urlsplit(self._endpoint.base_url), self._http.port + offset
            host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
            base_url = url._replace(netloc=f"{host}:{port}", path="").geturl()
            self._beside[offset] = ProbeConnection(replace(self._endpoint, base_url=base_url))
        return self._beside[offset]

    def _call(self, call: HttpCall, timeout_s: float) -> Answer | NoAnswer:
        is_reused = self._http.sock is not None
        started_s = time.monotonic()
        try:
            return self._exchange(call, timeout_s, started_s)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            self.close()
            if not is_reused:
                return NoAnswer(reason=_reason(error))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return NoAnswer(reason=_reason(error))
        # A kept connection that the server closed while idle says nothing about the server.
        return self._call(call, timeout_s)

    def _exchange(self, call: HttpCall, timeout_s: float, started_s: float) -> Answer:
        deadline_s = started_s + timeout_s
        self._http.timeout = timeout_s
        if self._http.sock is None:
            self._http.connect()
        sock: socket.socket = self._http.sock
        _refuse_own_echo(sock)
        sock.settimeout(timeout_s)
        self._http.request(
            call.method,
            self._prefix + call.path,
            body=call.body or None,
            headers={**self._headers, **call.headers},
        )
        response = self._http.getresponse()
        body = bytearray()
        while piece := response.read1(65536):
            body += piece
            if len(body) > MAX_BODY_BYTES:
                raise http.client.HTTPException(f"answer larger than {MAX_BODY_BYTES} bytes")
            if time.monotonic() > deadline_s:
                raise TimeoutError
        if response.length:  # what the server announced and did not send
            raise http.client.IncompleteRead(bytes(body), response.length)
        response.read()  # nothing is left, but only this frees the connection for the next call
        headers = {name.lower(): value for name, value in response.getheaders()}
        if response.will_close:
            self.close()
        head = ResponseHead(status=response.status, headers=headers)
        whole = unpacked(bytes(body), MAX_BODY_BYTES) if is_packed(headers) else bytes(body)
        return Answer(head=head, body=whole, elapsed_s=time.monotonic() - started_s)


def _refuse_own_echo(sock: socket.socket) -> None:
    """Refuse TCP's simultaneous open: a closed loopback port may connect a socket to itself."""
    if sock.getsockname() == sock.getpeername():
        raise ConnectionRefusedError


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, http.client.RemoteDisconnected):
        return "connection closed without an answer"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return f"not HTTP: {error!r}"


def call(endpoint: Endpoint, http_call: HttpCall, timeout_s: float) -> Answer | NoAnswer:
    """One request on a connection of its own."""
    with ProbeConnection(endpoint) as connection:
        return connection.call(http_call, timeout_s)
