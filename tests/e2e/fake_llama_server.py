#!/usr/bin/env python3
"""A stand-in for the llama-server binary: same flags, same wire form, timings that a test sets.

Environment: FAKE_LISTEN_S, FAKE_HEALTH_S, FAKE_READY_S (seconds after start at which the port
opens, health is 200, completions work), FAKE_TTFT_S, FAKE_TOKEN_S, FAKE_DIE_S (kills itself with
SIGKILL so long after the first streamed request), FAKE_STATUS (answer to every stream),
FAKE_EXIT (message to print before ending with 1 at once), FAKE_EXIT_NP (the same for this number
of slots only, for want of memory), FAKE_REPLAY (a case file, *.sse or
*.http.json: what every stream is answered), FAKE_BUSY_AFTER (streams of more than one token after
this many take a minute), FAKE_STOP_S (what it takes to end after SIGTERM),
FAKE_PREFILL_S (what streams of more than one token wait for the first).
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

START_S = time.monotonic()
REPLAY = os.environ.get("FAKE_REPLAY")
CASE = json.loads(Path(REPLAY).read_text(encoding="latin-1")) if REPLAY else None


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def setting(name: str, default: float) -> float:
    return float(os.environ.get(name, default))


class Server:
    def __init__(self, args: argparse.Namespace) -> None:
        self.slots = asyncio.Semaphore(args.np)
        self.count = args.np
        self.busy = 0
        self.waiting = 0
        self.tokens = 0
        self.streams = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                _method, path, _ = head.split(" ", 2)
                length = 0
                for line in head.split("\r\n"):
                    if line.lower().startswith("content-length:"):
                        length = int(line.partition(":")[2])
                body = await reader.readexactly(length)
                await self.answer(path, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        age_s = time.monotonic() - START_S
        if path == "/health":
            ok = age_s >= setting("FAKE_HEALTH_S", 0)
            self.json(writer, 200 if ok else 503, {"status": "ok"} if ok else LOADING)
        elif path.endswith("/completions"):
            await self.complete(json.loads(body), age_s, writer)
        elif path == "/metrics":
            text = (
                f"llamacpp:requests_processing {self.busy}\nllamacpp:requests_deferred "
                f"{self.waiting}\nllamacpp:tokens_predicted_total {self.tokens}\n"
            )
            self.raw(writer, 200, text.encode(), "text/plain")
        elif path == "/slots":
            rows = [
                {"id": i, "n_ctx": 512, "is_processing": i < self.busy, "n_prompt_tokens": 40}
                for i in range(self.count)
            ]
            self.json(writer, 200, rows)
        elif path == "/props":
            self.json(
                writer,
                200,
                {
                    "total_slots": self.count,
                    "build_info": "fake",
                    "default_generation_settings": {"n_ctx": 512},
                },
            )
        else:
            self.json(writer, 404, {"error": {"message": "File Not Found", "code": 404}})
        await writer.drain()

    async def complete(
        self, body: dict[str, Any], age_s: float, writer: asyncio.StreamWriter
    ) -> None:
        if age_s < setting("FAKE_READY_S", 0):
            self.json(writer, 503, {"error": {"message": "not ready"}})
            return
        count = body.get("max_tokens", 16)
        if count > 1 and "FAKE_DIE_S" in os.environ:
            loop = asyncio.get_running_loop()
            loop.call_later(setting("FAKE_DIE_S", 0), os.kill, os.getpid(), signal.SIGKILL)
        if count > 1 and "FAKE_STATUS" in os.environ:
            status = int(os.environ["FAKE_STATUS"])
            self.json(writer, status, {"error": {"message": "told to fail", "code": status}})
            return
        if count > 1 and CASE is not None:
            await self.replay(CASE, writer)
            return
        self.waiting += 1
        async with self.slots:
            self.waiting -= 1
            self.busy += 1
            try:
                await self.stream(body, count, writer)
            finally:
                self.busy -= 1

    async def stream(self, body: dict[str, Any], count: int, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        self.streams += count > 1
        token_s = setting("FAKE_TOKEN_S", 0.005)
        if count > 1 and self.streams > setting("FAKE_BUSY_AFTER", 1e9):
            token_s = 60.0 / count
        if count > 1 and (prefill_s := setting("FAKE_PREFILL_S", 0)):
            say("prefill")
            await asyncio.sleep(prefill_s)
        await asyncio.sleep(setting("FAKE_TTFT_S", 0.02))
        for k in range(count):
            if k:
                await asyncio.sleep(token_s)
            self.tokens += 1
            self.event(writer, {"choices": [{"text": "w", "index": 0, "finish_reason": None}]})
            await writer.drain()
        prompt = len(str(body.get("prompt", "")))
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": count,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        last = {"choices": [{"text": "", "index": 0, "finish_reason": "length"}], "usage": usage}
        self.event(writer, last)
        self.chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    async def replay(self, case: Any, writer: asyncio.StreamWriter) -> None:
        reply = (
            case["replies"][0]
            if isinstance(case, dict)
            else {"status": 200, "headers": {"Content-Type": "text/event-stream"}, "body": case}
        )
        head = f"HTTP/1.1 {reply['status']} X\r\nTransfer-Encoding: chunked\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in reply["headers"].items())
        writer.write(head.encode() + b"\r\n")
        for delay_ms, text in reply["body"]:
            await asyncio.sleep(delay_ms / 1000)
            if text:
                self.chunk(writer, text.encode("latin-1"))
                await writer.drain()
        writer.write(b"0\r\n\r\n")

    def event(self, writer: asyncio.StreamWriter, content: dict[str, Any]) -> None:
        self.chunk(writer, b"data: " + json.dumps(content).encode() + b"\n\n")

    @staticmethod
    def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def json(self, writer: asyncio.StreamWriter, status: int, content: object) -> None:
        self.raw(writer, status, json.dumps(content).encode(), "application/json")

    @staticmethod
    def raw(writer: asyncio.StreamWriter, status: int, body: bytes, kind: str) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)


LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("-np", type=int, default=1)
    args, _ = parser.parse_known_args()
    if message := os.environ.get("FAKE_EXIT"):
        say(message)
        sys.exit(1)
    if args.np == setting("FAKE_EXIT_NP", 0):
        say("llama_init: failed to allocate 9 GiB")
        sys.exit(1)
    say("starting")
    if stop_s := setting("FAKE_STOP_S", 0):

        def linger(*_: object) -> None:
            say("stopping")
            time.sleep(stop_s)
            sys.exit(0)

        signal.signal(signal.SIGTERM, linger)
    await asyncio.sleep(setting("FAKE_LISTEN_S", 0))
    server = await asyncio.start_server(Server(args).handle, "127.0.0.1", args.port)
    say(f"listening on http://127.0.0.1:{args.port}")
    await server.serve_forever()


asyncio.run(main())
