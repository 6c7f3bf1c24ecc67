"""A Locust file as a user of streams would write it, with Locust's fast client and its lines.

    locust -f benchmarks/peers_locustfile.py --headless --host http://127.0.0.1:8000 -u 8 -r 4

The first request of each user opens its connection and is not reported. Locust's `iter_lines`
reads 1,024 bytes at a time, so that a line is only seen when those behind it have come too.
"""

import json
import time

from locust import FastHttpUser, constant, task

_BODY = {"model": "stub", "prompt": "1 2 3 4 5 6 7 8", "max_tokens": 100, "stream": True}


class Streamer(FastHttpUser):  # type: ignore[misc]
    """Asks for one stream after another."""

    wait_time = constant(0)
    is_warm = False

    @task  # type: ignore[untyped-decorator]
    def complete(self) -> None:
        """One stream; its first token and its mean time per token become Locust events."""
        start_s = time.perf_counter()
        token_s = [
            time.perf_counter()
            for line in self.client.iter_lines("/v1/completions", method="POST", json=_BODY)
            if line.startswith("data: {") and json.loads(line[6:])["choices"]
        ]
        if self.is_warm:
            self._fire("TTFT", token_s[0] - start_s)
            self._fire("TPOT", (token_s[-1] - token_s[0]) / (len(token_s) - 1))
        self.is_warm = True

    def _fire(self, kind: str, time_s: float) -> None:
        self.environment.events.request.fire(
            request_type=kind,
            name=kind,
            response_time=time_s * 1e3,
            response_length=0,
            exception=None,
            context={},
        )
