"""A load over gRPC through the real load process: journal, records and the server's log agree."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adapters.mii_wire import STREAM_PATH, read_reply, request_message
from harness.adapter import Adapter
from harness.calibrate.server.log import read_log
from harness.calibrate.server.running import running_server
from harness.grpc.call import grpc_bytes
from harness.load.calls import Planned, PlannedCall, write_calls
from harness.load.decode import JournalDecoder, PlayedLevel
from harness.load.job import LevelsJob, LoadJob, Target
from harness.load.journal import Kind
from harness.testing.played import Played, WrittenLoad, closed, play_job
from harness.types import Chunk, ChunkKind, HttpCall, Record, ResponseHead, Wire

TOKENS = (12, 1, 5, 0, 3, 8)  # 0: refused by the server
USERS = 2


class ReplyDecoder:
    """Each message is one reply of MII."""

    def feed(self, data: bytes) -> list[Chunk]:
        reply = read_reply(data)
        end = None if reply.finish_reason == "none" else reply.finish_reason
        kind = ChunkKind.TEXT if reply.text else ChunkKind.END
        total = reply.generated_tokens
        return [Chunk(kind=kind, text=reply.text, total_tokens=total, finish_reason=end)]

    def end(self) -> list[Chunk]:
        return []


class ReplyAdapter:
    def decoder(self, head: ResponseHead) -> ReplyDecoder:
        return ReplyDecoder()


def calls(authority: str) -> Iterator[PlannedCall]:
    for index, tokens in enumerate(TOKENS):
        body = request_message("one two", max_new_tokens=tokens)
        call = HttpCall(path=STREAM_PATH, body=body, wire=Wire.GRPC)
        data = grpc_bytes(call, authority=authority, request_id=str(index))
        yield PlannedCall(data, None, Planned(input_tokens=2, output_tokens=tokens))


def written(folder: Path, port: int) -> WrittenLoad:
    target = Target(host="127.0.0.1", port=port, wire=Wire.GRPC)
    write_calls(folder, calls(target.authority))
    job = LoadJob(
        zero_s=time.monotonic(),
        target=target,
        journal=str(folder / "journal.bin"),
        request_timeout_s=20.0,
        drain_timeout_s=20.0,
        settle_s=0.0,
    )
    level = closed("all", 0, len(TOKENS), USERS)
    return WrittenLoad(job, LevelsJob(calls=str(folder), levels=(level,)))


def decoded(played: Played, load: WrittenLoad) -> list[Record]:
    adapter: Any = ReplyAdapter()
    typed: Adapter = adapter
    decoder = JournalDecoder(
        adapter=typed,
        block=0,
        planned=lambda index: Planned(input_tokens=2, output_tokens=TOKENS[index]),
        levels=(PlayedLevel(name="all", shape="users", users=USERS),),
    )
    return list(decoder.decode(Path(load.journal)).records)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Played, list[Record], Any]:
    folder = tmp_path_factory.mktemp("grpc")
    log = folder / "server.log"
    with running_server(log, "--grpc", "--ttft-ms", "20", "--tokens-per-s", "200") as url:
        load = written(folder, int(url.rpartition(":")[2]))
        played = play_job(load)
    return played, decoded(played, load), read_log(log)


def test_every_call_is_a_record_with_its_tokens(run: tuple[Played, list[Record], Any]) -> None:
    _, records, _ = run
    assert [r.index for r in records] == list(range(len(TOKENS)))
    good = [r for r in records if TOKENS[r.index]]
    assert [r.error for r in good] == [None] * len(good)
    assert [r.output_tokens for r in good] == [TOKENS[r.index] for r in good]
    assert [len(r.chunk_s) for r in good] == [TOKENS[r.index] for r in good]
    assert {r.finish_reason for r in good} == {"length"}
    assert {r.http_status for r in records} == {200}
    (refused,) = [r for r in records if not TOKENS[r.index]]
    assert (refused.error_message or "").startswith("grpc-status 3 (INVALID_ARGUMENT): max_new")


def test_stamps_follow_what_the_server_logged(run: tuple[Played, list[Record], Any]) -> None:
    played, records, log = run
    _, sent = log.token_times()
    rows = {index: row for row, index in enumerate(log.columns["index"])}
    for record in records:
        if not record.chunk_s:
            continue
        arrived = [t_s + played.zero_s for t_s in record.chunk_s]
        server_sent = sent[rows[record.index]]
        assert len(arrived) == len(server_sent) == TOKENS[record.index]
        assert all(a >= s - 1e-3 for a, s in zip(arrived, server_sent, strict=True))
        assert all(a <= b for a, b in pairwise(arrived))
        assert record.sent_s is not None
        assert record.sent_s < record.chunk_s[0]


def test_users_keep_their_connections(run: tuple[Played, list[Record], Any]) -> None:
    played, _, _ = run
    assert len(played.of(Kind.CONNECTED)) == USERS
    assert len(played.of(Kind.CHANNEL)) == len(TOKENS)
    assert len({e.extra for e in played.of(Kind.CHANNEL)}) == USERS
