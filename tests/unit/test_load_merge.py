"""One level out of its workers' levels, one clock out of theirs: exact values."""

from dataclasses import replace
from typing import Any

from harness.load.calls import Planned
from harness.load.distributed.merge import lost_record, merged_end, shifted
from harness.types import ClientFacts, ErrorClass


def end(start_s: float, window_end_s: float, **more: Any) -> dict[str, Any]:
    return {
        "start_s": start_s,
        "window_end_s": window_end_s,
        "drained_s": window_end_s + 1.0,
        "exhausted": False,
        "is_cut": False,
        "client": None,
        **more,
    }


def client(**more: Any) -> dict[str, Any]:
    return {"cpu_s": 1.5, "stall_p99_s": 0.001, "stall_max_s": 0.002, "connects": 3, **more}


def test_a_level_starts_with_its_first_worker_and_ends_with_its_last() -> None:
    ends = {
        0: end(1.0, 10.0, client=client(peak_in_flight=4, clock_step_s=0.5)),
        1: end(1.1, 11.0, exhausted=True, client=client(stall_max_s=0.02, peak_in_flight=5)),
    }
    merged = merged_end(ends, (), 2)
    assert merged.pop("client") == ClientFacts(
        cpu_s=3.0,
        stall_p99_s=0.001,
        stall_max_s=0.02,
        connects=6,
        clock_step_s=0.5,
        peak_in_flight=9,
        workers=2,
    )
    assert merged == {
        "start_s": 1.0,
        "window_end_s": 11.0,
        "drained_s": 12.0,
        "exhausted": True,
        "is_cut": False,
    }


def test_a_lost_worker_decides_neither_the_end_nor_whether_it_was_cut() -> None:
    ends = {0: end(1.0, 10.0, client=client()), 1: end(0.9, 20.0, is_cut=True)}
    merged = merged_end(ends, {1}, 2)
    assert (merged["start_s"], merged["window_end_s"], merged["is_cut"]) == (0.9, 10.0, False)
    assert (merged["client"].cpu_s, merged["client"].workers_lost) == (1.5, 1)


def test_a_level_that_lost_all_its_workers_is_cut() -> None:
    ends = {0: end(1.0, 4.0, is_cut=True), 1: end(1.0, 5.0, is_cut=True)}
    merged = merged_end(ends, {0, 1}, 2)
    assert (merged["window_end_s"], merged["is_cut"]) == (5.0, True)
    assert merged["client"] == ClientFacts(workers=2, workers_lost=2)


def test_moments_move_and_durations_stay() -> None:
    planned = Planned(input_tokens=4, output_tokens=8, group="light", session=2, turn=1)
    record = lost_record(7, 2.5, planned, "gone")
    assert (record.error, record.error_message) == (ErrorClass.WORKER_LOST, "gone")
    assert (record.index, record.request_id, record.group, record.turn) == (7, "7", "light", 1)
    assert shifted(record, 0.0) is record
    moved = shifted(record, 0.5)
    assert (moved.due_s, moved.sent_s, moved.connect_s) == (3.0, None, None)
    played = replace(record, sent_s=2.6, chunk_s=(3.0, 3.5), connect_s=0.25, stream_end_s=4.0)
    moved = shifted(played, 0.5)
    assert (moved.chunk_s, moved.stream_end_s, moved.connect_s) == ((3.5, 4.0), 4.5, 0.25)
