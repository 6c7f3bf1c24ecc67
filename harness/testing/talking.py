"""A chat server that keeps what it was told: truth for loads that send real histories."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, sleep
from types import TracebackType
from typing import Any, NamedTuple, Self

FAIL, REFUSE = "(fail please)", "(refuse please)"


class Told(NamedTuple):
    """One chat request: when it came, when its answer had been sent, and its messages."""

    t_s: float
    end_s: float
    messages: list[dict[str, str]]
    worker_address: str


class TalkingServer:
    """Answers `/v1/chat/completions` as an OpenAI server does, in `answer_s` seconds.

    The answer to `x` is `re: x`, with a reasoning before it. A prompt with FAIL in it is
    answered with an error inside the stream, one with REFUSE with status 500.
    """

    def __init__(self, *, answer_s: float = 0.02, host: str = "127.0.0.1", port: int = 0) -> None:
        self.told: list[Told] = []
        self._server = ThreadingHTTPServer((host, port), _handler(self, answer_s))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5.0)


def _handler(talking: TalkingServer, answer_s: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            begin_s = monotonic()
            messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
            prompt = messages[-1]["content"]
            if REFUSE in prompt:
                self.send_error(500)
            else:
                self._stream(prompt)
            told = Told(begin_s, monotonic(), messages, self.client_address[0])
            talking.told.append(told)

        def _stream(self, prompt: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._event({"choices": [{"delta": {"reasoning_content": "hm"}}]})
            sleep(answer_s)
            if FAIL in prompt:
                self._event({"error": {"message": "broke", "code": 500}})
            else:
                for piece in ("re: ", prompt):
                    self._event({"choices": [{"delta": {"content": piece}}]})
                self._event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
                usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 3}
                self._event({"choices": [], "usage": usage})
                self._chunk(b"data: [DONE]\n\n")
            self._chunk(b"")

        def _event(self, content: Any) -> None:
            self._chunk(b"data: " + json.dumps(content).encode() + b"\n\n")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
