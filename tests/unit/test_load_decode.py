"""Journals written by hand, from recorded bytes: every field of the records that come out."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adapters.openai import OpenAIAdapter
from adapters.tgi import TgiAdapter
from harness.adapter import Adapter
from harness.config import EngineConf, ModelConf, Route
from harness.load.calls import Planned
from harness.load.decode import Decoded, JournalDecoder, PlayedLevel
from harness.load.journal import Entry, JournalWriter, Kind
from harness.types import ClientFacts, Clock, ErrorClass, Level, Phase, Record, TokensSource

DATA = Path(__file__).parent.parent / "data"
EXPECTED = json.loads((DATA / "cases" / "expected.json").read_text())
MODEL = ModelConf(name="m")
COMPLETIONS = OpenAIAdapter(EngineConf(name="openai"), MODEL)
CHAT = OpenAIAdapter(EngineConf(name="openai", route=Route.CHAT), MODEL)
TGI = TgiAdapter(EngineConf(name="tgi"), MODEL)
ZERO_S = 1000.0
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WARMUP = PlayedLevel(
    name="warm-up", shape="users", users=2, rate_rps=None, is_warmup=True, planned=1
)
USERS = PlayedLevel(
    name="users=3", shape="users", users=3, rate_rps=None, is_warmup=False, planned=9
)
POISSON = PlayedLevel(
    name="poisson=2/s", shape="poisson", users=None, rate_rps=2.0, is_warmup=False, planned=4
)


def wire(name: str) -> bytes:
    return (DATA / "wire" / f"{name}.http").read_bytes()


def piece(text: str) -> bytes:
    return b"%x\r\n%s\r\n" % (len(text), text.encode("latin-1"))


def said(text: str, **more: Any) -> str:
    return f"data: {json.dumps({'choices': [{'text': text, **more}]})}\n\n"


def request(
    index: int,
    entries: Iterable[tuple[Kind, float, float, bytes]],
    *,
    level: int = 1,
    due_s: float = 0.0,
    user: bytes = b"",
) -> list[Entry]:
    """DUE and what follows; times after the run's zero."""
    due = Entry(Kind.DUE, index, ZERO_S + due_s, level, user)
    rest = [Entry(kind, index, ZERO_S + t_s, extra, data) for kind, t_s, extra, data in entries]
    return [due, *rest]


def sent_and_read(
    reads: Iterable[tuple[float, bytes]], *, end: bytes = b"complete"
) -> list[tuple[Kind, float, float, bytes]]:
    entries = [(Kind.CONNECTED, 0.0, 0.0, b""), (Kind.SENT, 0.0, 0.0, b"")]
    entries += [(Kind.READ, t_s, 0.0, data) for t_s, data in reads]
    return [*entries, (Kind.END, entries[-1][1], 0.0, end)]


def decode(
    path: Path,
    entries: Iterable[Entry],
    *,
    adapter: Adapter = COMPLETIONS,
    levels: tuple[PlayedLevel, ...] = (WARMUP, USERS, POISSON),
    count_tokens: Callable[[str], int] | None = None,
) -> Decoded:
    journal = JournalWriter(path / "journal.bin")
    journal.append_json(Kind.OPEN, ZERO_S, 5e9, pid=1)
    for entry in entries:
        journal.append(*entry)
    journal.close()
    decoder = JournalDecoder(
        adapter=adapter,
        block=3,
        planned=lambda index: Planned(
            input_tokens=100 + index,
            output_tokens=200 + index,
            prefix_tokens=16,
            session=4,
            turn=1,
            group="short",
            lora="a",
        ),
        levels=levels,
        count_tokens=count_tokens,
    )
    return decoder.decode(path / "journal.bin")


def one(path: Path, entries: Iterable[Entry], **kwargs: Any) -> Record:
    (record,) = decode(path, entries, **kwargs).records
    return record


def test_every_field_of_a_recorded_answer(tmp_path: Path) -> None:
    raw = wire("vllm-0.32.0-completions-stream-usage")
    second = raw.index(b"data: ", raw.index(b'" is"'))  # two events in each read
    head, first, rest = (
        raw[: raw.index(b"data: ")],
        raw[raw.index(b"data: ") : second],
        raw[second:],
    )
    entries = request(
        7,
        [
            (Kind.CONNECTED, 0.251, 0.001, b""),
            (Kind.SENT, 0.252, 0.0, b""),
            (Kind.READ, 0.300, 0.0001, head),
            (Kind.READ, 0.500, 0.0004, first),
            (Kind.READ, 0.750, 0.0002, rest),
            (Kind.END, 0.750, 0.0, b"complete"),
        ],
        due_s=0.25,
        user=b"2",
    )
    record = one(tmp_path, entries)
    assert record == Record(
        request_id="7",
        index=7,
        level=0,
        block=3,
        phase=Phase.MEASURE,
        due_s=0.25,
        connect_s=0.001,
        sent_s=pytest.approx(0.252),
        chunk_s=pytest.approx((0.5, 0.5, 0.75, 0.75)),
        chunk_tokens=(None, None, None, None),
        stream_end_s=pytest.approx(0.75),
        prompt_tokens=10,
        output_tokens=4,
        tokens_source=TokensSource.USAGE,
        planned_input_tokens=107,
        planned_output_tokens=207,
        clock=Clock.KERNEL,
        headers_s=pytest.approx(0.3),
        cached_tokens=None,
        reasoning_tokens=None,
        finish_reason="length",
        error=None,
        error_message=None,
        http_status=200,
        censored_s=None,
        user=2,
        reads=3,
        merged_reads=2,
        late_s=0.0004,
        text_sha256=hashlib.sha256(b"ctions isctions is").hexdigest(),
        prefix_tokens=16,
        session=4,
        turn=1,
        group="short",
        lora="a",
    )


def test_zero_and_wall_clock_of_the_run(tmp_path: Path) -> None:
    decoded = decode(tmp_path, [])
    assert (decoded.zero_s, decoded.started_at_s) == (ZERO_S, 5e9)
    assert (decoded.records, decoded.levels) == ((), ())


@pytest.mark.parametrize(
    ("name", "status", "error", "message"),
    [
        ("llamacpp-b11434-completions-stream-usage", 200, None, None),
        ("vllm-0.32.0-chat-stream-usage", 200, None, None),
        ("vllm-0.32.0-completions-nonstream", 200, None, None),
        ("llamacpp-b11434-err-badjson", 400, ErrorClass.HTTP_4XX, "json.exception.parse_error"),
        ("vllm-0.32.0-err-toolong", 400, ErrorClass.HTTP_4XX, "maximum context length"),
    ],
)
def test_recorded_answers_in_one_read(
    tmp_path: Path, name: str, status: int, error: ErrorClass | None, message: str | None
) -> None:
    adapter = CHAT if "chat" in name else COMPLETIONS
    record = one(tmp_path, request(0, sent_and_read([(0.5, wire(name))])), adapter=adapter)
    assert (record.http_status, record.error) == (status, error)
    assert record.is_ok is (error is None)
    assert (message or "") in (record.error_message or "")
    if error is None:
        assert record.output_tokens
        assert record.tokens_source is TokensSource.USAGE
        assert record.chunk_s == pytest.approx([0.5] * len(record.chunk_s))
    else:
        assert (record.chunk_s, record.output_tokens, record.tokens_source) == ((), None, None)


def case_records(path: Path, case: str, adapter: Adapter, **kwargs: Any) -> Record:
    """A case of tests/data/cases over the journal; each piece is one chunk of the body."""
    pieces = json.loads((DATA / "cases" / f"{case}.sse").read_text())
    now_s, reads = 0.0, [(0.0, SSE)]
    for delay_ms, text in pieces:
        now_s += delay_ms * 1e-3
        if text:
            reads.append((now_s, piece(text)))
    reads.append((now_s, b"0\r\n\r\n"))
    return one(path, request(0, sent_and_read(reads)), adapter=adapter, **kwargs)


def figures(record: Record) -> dict[str, Any]:
    def ms(value_s: float) -> float:
        return round(value_s * 1e3, 3)

    chunk_s = record.chunk_s
    gaps = [ms(b - a) for a, b in pairwise(chunk_s)]
    return {
        "ttft_ms": ms(chunk_s[0] - (record.sent_s or 0.0)) if chunk_s else None,
        "gaps_ms": gaps,
        "e2e_ms": None if record.stream_end_s is None else ms(record.stream_end_s),
        "output_tokens": record.output_tokens,
        "prompt_tokens": record.prompt_tokens,
        "reasoning_tokens": record.reasoning_tokens,
        "tokens_source": str(record.tokens_source),
        "first_event_tokens": record.chunk_tokens[0] if record.chunk_tokens else None,
        "chunks": len(chunk_s),
        "partial_tokens": record.output_tokens,
        "error_class": None if record.error is None else str(record.error),
        "message": record.error_message,
        "status": "failed" if record.error else "ok",
    }


CASES = ["C01", "C02", "C05", "C06", "C07", "C09", "C10", "C11", "C12", "C17", "C19", "C23", "C25"]


@pytest.mark.parametrize("case", CASES, ids=[f"{c}: {EXPECTED[c]['title']}" for c in CASES])
def test_figures_of_the_cases(tmp_path: Path, case: str) -> None:
    found = figures(case_records(tmp_path, case, TGI if case == "C25" else CHAT))
    wanted = {k: v for k, v in EXPECTED[case]["expect"].items() if k in found}
    assert len(wanted) >= 3
    wrong = {}
    for key, value in wanted.items():
        either = value if isinstance(value, list) and key != "gaps_ms" else [value]
        if found[key] not in either:
            wrong[key] = (found[key], value)
    assert wrong == {}


def test_the_text_is_hashed_without_its_reasoning(tmp_path: Path) -> None:
    texts = {"C09": "one two three", "C10": "中文", "C12": "AB"}
    for case, text in texts.items():
        folder = tmp_path / case
        folder.mkdir()
        record = case_records(folder, case, CHAT)
        assert record.text_sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert case_records(tmp_path, "C02", CHAT).text_sha256 is None


def test_without_usage_the_tokenizer_counts_the_joined_text(tmp_path: Path) -> None:
    record = case_records(tmp_path, "C09", CHAT, count_tokens=lambda text: 10 * len(text.split()))
    assert (record.output_tokens, record.tokens_source) == (30, TokensSource.TOKENIZER)


def test_an_interim_answer_is_not_the_head(tmp_path: Path) -> None:
    interim = b"HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n"
    whole = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    record = one(tmp_path, request(0, sent_and_read([(0.1, interim), (0.4, whole)])))
    assert (record.http_status, record.error) == (503, ErrorClass.HTTP_5XX)
    assert record.headers_s == pytest.approx(0.4)


def test_a_redirect_is_a_failure_with_its_place(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 307 Moved\r\nLocation: /v1/x\r\nContent-Length: 0\r\n\r\n"
    record = one(tmp_path, request(0, sent_and_read([(0.1, answer)])))
    assert record.error is ErrorClass.REDIRECT
    assert "/v1/x" in (record.error_message or "")


def test_after_a_retry_only_the_second_connection_counts(tmp_path: Path) -> None:
    entries = request(
        0,
        [
            (Kind.SENT, 0.1, 0.0, b""),
            (Kind.RETRY, 0.2, 0.0, b""),
            (Kind.CONNECTED, 0.3, 0.05, b""),
            (Kind.SENT, 0.35, 0.0, b""),
            (Kind.READ, 0.5, 0.0, SSE + piece(said("a"))),
            (Kind.READ, 0.6, 0.0, piece(said("", finish_reason="stop")) + b"0\r\n\r\n"),
            (Kind.END, 0.6, 0.0, b"complete"),
        ],
    )
    record = one(tmp_path, entries)
    assert record.is_ok
    assert (record.connect_s, record.sent_s) == (0.05, pytest.approx(0.35))
    assert record.chunk_s == (pytest.approx(0.5),)
    assert record.reads == 2


A_AND_B = [(0.1, SSE + piece(said("a"))), (0.2, piece(said("b")))]
LAST = piece(said("", finish_reason="length"))


@pytest.mark.parametrize(
    ("reads", "reason", "error", "message"),
    [
        ([], b"connect: ECONNREFUSED", "connection_error", "connect: ECONNREFUSED"),
        ([], b"timeout", "timeout", "no end in time (load.request_timeout_s)"),
        ([], b"eof", "connection_error", "reset: closed"),
        ([], b"garbage: bad", "stream_error", "not HTTP: bad"),
        (
            A_AND_B,
            b"timeout: no end after 2 s",
            "timeout",
            "no end after 2 s (load.request_timeout_s)",
        ),
        (A_AND_B, b"reset: by peer", "connection_error", "reset: by peer"),
        (A_AND_B, b"garbage: bad", "stream_error", "not HTTP: bad"),
        (A_AND_B, b"eof", "connection_error", "closed in the middle of the answer"),
    ],
)
def test_broken_exchanges(
    tmp_path: Path, reads: list[tuple[float, bytes]], reason: bytes, error: str, message: str
) -> None:
    record = one(tmp_path, request(0, sent_and_read(reads, end=reason)))
    assert (record.error, record.error_message) == (error, message)
    assert record.censored_s is None
    assert not record.is_ok
    assert record.output_tokens == (2 if reads else None)
    assert record.chunk_s == pytest.approx((0.1, 0.2) if reads else ())
    assert record.http_status == (200 if reads else None)


def test_what_is_not_http_is_shown(tmp_path: Path) -> None:
    reads = [(0.1, b"SSH-2.0-OpenSSH_9.9\r\n")]
    record = one(tmp_path, request(0, sent_and_read(reads, end=b"garbage: bad")))
    assert record.error == "stream_error"
    assert record.error_message == r"not HTTP: bad, in b'SSH-2.0-OpenSSH_9.9\r\n'"
    assert (record.http_status, record.output_tokens) == (None, None)


def test_a_connection_that_closes_after_the_last_event_has_lost_nothing(tmp_path: Path) -> None:
    record = one(tmp_path, request(0, sent_and_read([*A_AND_B, (0.3, LAST)], end=b"eof")))
    assert (record.error, record.finish_reason) == (None, "length")


def test_a_body_without_framing_may_just_end_but_must_be_whole(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    whole = [(0.1, head + said("a").encode()), (0.2, said("", finish_reason="stop").encode())]
    entries = request(0, sent_and_read(whole, end=b"eof"))
    entries += request(1, sent_and_read(whole[:1], end=b"eof"))
    first, second = decode(tmp_path, entries).records
    assert (first.error, first.output_tokens) == (None, 1)
    assert second.error is ErrorClass.INCOMPLETE_STREAM


def test_a_cut_off_request_is_censored_and_neither_ok_nor_failed(tmp_path: Path) -> None:
    entries = request(
        0,
        [
            (Kind.SENT, 1.0, 0.0, b""),
            (Kind.READ, 1.5, 0.0, SSE + piece(said("a"))),
            (Kind.END, 4.0, 0.0, b"cut off"),
        ],
        due_s=0.5,
    )
    record = one(tmp_path, entries)
    assert (record.error, record.error_message) == (None, None)
    assert record.censored_s == pytest.approx(3.5)
    assert not record.is_ok
    assert record.output_tokens == 1


def test_what_a_lost_process_left_open_is_worker_lost(tmp_path: Path) -> None:
    entries = request(0, sent_and_read(A_AND_B)[:-1]) + request(1, [], due_s=0.15)
    first, second = decode(tmp_path, entries).records
    for record in (first, second):
        assert record.error is ErrorClass.WORKER_LOST
        assert record.error_message == "the load process ended"
    assert first.chunk_s == pytest.approx((0.1, 0.2))
    assert first.stream_end_s == pytest.approx(0.2)
    assert (second.sent_s, second.reads) == (None, 0)


def test_one_read_without_a_kernel_stamp_makes_it_the_users_clock(tmp_path: Path) -> None:
    entries = request(
        0,
        [
            (Kind.READ, 0.1, 0.001, SSE + piece(said("a"))),
            (Kind.READ_USER, 0.2, 0.0, LAST + b"0\r\n\r\n"),
            (Kind.END, 0.2, 0.0, b"complete"),
        ],
    )
    record = one(tmp_path, entries)
    assert (record.clock, record.late_s) == (Clock.USER, 0.001)


def test_events_that_share_a_read_are_merged(tmp_path: Path) -> None:
    many = b"".join(piece(said(str(i))) for i in range(100))
    reads = [(0.1, SSE + piece(said("a"))), (0.2, many), (0.3, LAST + b"0\r\n\r\n")]
    record = one(tmp_path, request(0, sent_and_read(reads)))
    assert (record.reads, record.merged_reads, len(record.chunk_s)) == (3, 1, 101)
    assert record.chunk_s == pytest.approx([0.1] + [0.2] * 100)


def level_entry(number: int, **content: Any) -> Entry:
    payload = {"start_s": ZERO_S + 1.0, "window_end_s": ZERO_S + 5.0, "played": 1}
    text = json.dumps({**payload, "exhausted": False, **content}).encode()
    return Entry(Kind.LEVEL, 0, ZERO_S + 6.0, number, text)


def test_phases_rows_and_windows_of_levels(tmp_path: Path) -> None:
    entries = [
        *request(9, sent_and_read(A_AND_B), level=0, due_s=-0.5),
        level_entry(0),
        *request(1, sent_and_read(A_AND_B), level=1, due_s=1.0),
        *request(0, sent_and_read(A_AND_B), level=1, due_s=1.1),
        level_entry(1, exhausted=True),
        *request(5, sent_and_read(A_AND_B), level=2, due_s=7.0),
        level_entry(2, start_s=ZERO_S + 6.5, window_end_s=ZERO_S + 8.0),
    ]
    decoded = decode(tmp_path, entries)
    found = [(r.index, r.level, r.phase) for r in decoded.records]
    assert found == [
        (9, -1, Phase.WARMUP),
        (0, 0, Phase.MEASURE),
        (1, 0, Phase.MEASURE),
        (5, 1, Phase.MEASURE),
    ]
    assert decoded.levels == (
        Level(
            index=0,
            name="users=3",
            shape="users",
            users=3,
            rate_rps=None,
            window_start_s=1.0,
            window_end_s=5.0,
            drained_s=6.0,
            planned=9,
            exhausted=True,
        ),
        Level(
            index=1,
            name="poisson=2/s",
            shape="poisson",
            users=None,
            rate_rps=2.0,
            window_start_s=6.5,
            window_end_s=8.0,
            drained_s=6.0,
            planned=4,
            exhausted=False,
        ),
    )


def test_a_level_that_never_ended_has_records_but_no_row(tmp_path: Path) -> None:
    entries = [level_entry(0), *request(1, sent_and_read(A_AND_B), level=1)]
    decoded = decode(tmp_path, entries)
    assert decoded.levels == ()
    assert [record.level for record in decoded.records] == [0]


def test_a_kept_journal_can_be_decoded_again(tmp_path: Path) -> None:
    entries = request(0, sent_and_read([*A_AND_B, (0.3, LAST + b"0\r\n\r\n")]))
    first = decode(tmp_path, entries)
    decoder = JournalDecoder(
        adapter=COMPLETIONS,
        block=3,
        planned=lambda index: Planned(
            input_tokens=100 + index,
            output_tokens=200 + index,
            prefix_tokens=16,
            session=4,
            turn=1,
            group="short",
            lora="a",
        ),
        levels=(WARMUP, USERS, POISSON),
    )
    assert decoder.decode(tmp_path / "journal.bin") == first
    assert first.records[0].is_ok


def compressed(text: str, encoding: str) -> list[tuple[float, bytes]]:
    body = zlib.compress(text.encode(), wbits=31 if encoding == "gzip" else 15)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: {encoding}\r\n"
    framing = f"Content-Length: {len(body)}\r\n\r\n"
    return [(0.1, (head + framing).encode() + body[:20]), (0.2, body[20:])]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_body_is_unpacked_as_it_comes(tmp_path: Path, encoding: str) -> None:
    text = said("a", finish_reason="length") + "data: [DONE]\n\n"
    record = one(tmp_path, request(0, sent_and_read(compressed(text, encoding))))
    assert (record.error, record.finish_reason, len(record.chunk_s)) == (None, "length", 1)


def test_a_body_that_only_claims_to_be_compressed_is_an_error(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nplain"
    record = one(tmp_path, request(0, sent_and_read([(0.1, head)])))
    assert record.error is ErrorClass.STREAM_ERROR
    assert record.error_message == (
        "content-encoding that cannot be read: Error -3 while decompressing data: incorrect header "
        "check"
    )


REFUSED = b"HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


def test_a_refused_request_says_how_long_to_wait(tmp_path: Path) -> None:
    record = one(tmp_path, request(0, sent_and_read([(0.005, REFUSED)])))
    assert (record.error, record.http_status) == (ErrorClass.RATE_LIMITED, 429)
    assert (record.attempts, record.retry_after_s) == (1, 1.0)


def test_a_retried_request_keeps_the_clock_of_its_first_time(tmp_path: Path) -> None:
    entries: list[tuple[Kind, float, float, bytes]] = [
        (Kind.CONNECTED, 0.0, 0.0, b""),
        (Kind.SENT, 0.0, 0.0, b""),
        (Kind.READ, 0.005, 0.0, REFUSED),
        (Kind.AGAIN, 0.005, 1.0, b""),
        (Kind.SENT, 1.005, 0.0, b""),
        (Kind.READ, 1.055, 0.0, SSE + piece(said("A", finish_reason="stop"))),
        (Kind.END, 1.055, 0.0, b"complete"),
    ]
    record = one(tmp_path, request(0, entries))
    assert (record.error, record.attempts, record.retry_after_s) == (None, 2, 1.0)
    assert record.sent_s == pytest.approx(0.0)
    assert record.chunk_s == pytest.approx((1.055,))  # case C53: TTFT 1,055 ms from the first send


def test_a_stamp_before_the_request_is_a_clock_error(tmp_path: Path) -> None:
    entries = request(0, sent_and_read([(-0.5, SSE + piece(said("A", finish_reason="stop")))]))
    assert one(tmp_path, entries).error is ErrorClass.CLOCK_ERROR


def test_a_level_that_never_ended_reaches_to_the_last_entry(tmp_path: Path) -> None:
    begin = Entry(Kind.LEVEL_BEGIN, 0, ZERO_S + 1.0, 1, b'{"name": "users=3"}')
    entries = [begin, *request(0, sent_and_read(A_AND_B)[:-1], level=1, due_s=1.0)]
    decoded = decode(tmp_path, entries)
    (record,) = decoded.records
    assert record.error is ErrorClass.WORKER_LOST
    (row,) = decoded.levels
    assert (row.index, row.name, row.is_cut, row.client) == (0, "users=3", True, None)
    assert (row.window_start_s, row.window_end_s) == pytest.approx((1.0, 1.0))


def test_what_the_client_saw_of_itself_is_kept(tmp_path: Path) -> None:
    client = {"cpu_s": 0.5, "connects": 3, "peak_in_flight": 7, "stall_p99_s": 0.001}
    entries = [*request(0, sent_and_read(A_AND_B)), level_entry(1, client=client)]
    (row,) = decode(tmp_path, entries).levels
    assert row.client == ClientFacts(cpu_s=0.5, connects=3, peak_in_flight=7, stall_p99_s=0.001)


def test_bytes_behind_a_whole_answer_are_no_part_of_it(tmp_path: Path) -> None:
    whole = SSE + piece(said("a", finish_reason="stop")) + b"0\r\n\r\n"
    behind = b"HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\nother"
    record = one(tmp_path, request(0, sent_and_read([(0.1, whole + behind)])))
    assert (record.error, record.http_status, len(record.chunk_s)) == (None, 200, 1)
