"""One level out of its workers' levels, one clock out of theirs."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from harness.load.calls import Planned
from harness.types import ClientFacts, Clock, ErrorClass, Phase, Record


def shifted(record: Record, by_s: float) -> Record:
    """The record with its moments moved; durations stay."""
    if not by_s:
        return record
    return replace(
        record,
        due_s=record.due_s + by_s,
        sent_s=_moved(record.sent_s, by_s),
        headers_s=_moved(record.headers_s, by_s),
        stream_end_s=_moved(record.stream_end_s, by_s),
        chunk_s=tuple(at_s + by_s for at_s in record.chunk_s),
    )


def lost_record(index: int, due_s: float, planned: Planned, reason: str) -> Record:
    """A request that a lost worker had to send, of which nothing is known."""
    return Record(
        request_id=str(index),
        index=index,
        level=-1,
        block=0,
        phase=Phase.MEASURE,
        due_s=due_s,
        connect_s=None,
        sent_s=None,
        chunk_s=(),
        chunk_tokens=(),
        stream_end_s=None,
        prompt_tokens=None,
        output_tokens=None,
        tokens_source=None,
        planned_input_tokens=planned.input_tokens,
        planned_output_tokens=planned.output_tokens,
        clock=Clock.USER,
        error=ErrorClass.WORKER_LOST,
        error_message=reason,
        group=planned.group,
        session=planned.session,
        turn=planned.turn,
        prefix_tokens=planned.prefix_tokens,
        lora=planned.lora,
    )


def merged_end(
    ends: Mapping[int, Mapping[str, Any]], lost: Collection[int], workers: int
) -> dict[str, Any]:
    """How a level went as a whole. `ends`: by worker, on the run's clock.

    It starts with its first worker and ends with its last. Workers that were lost decide neither
    its end nor whether it was cut, unless none is left.
    """
    stayed = [end for worker, end in ends.items() if worker not in lost]
    deciding = stayed or list(ends.values())
    clients = [msgspec.convert(e["client"], ClientFacts) for e in ends.values() if e["client"]]
    return {
        "start_s": min(end["start_s"] for end in ends.values()),
        "window_end_s": max(end["window_end_s"] for end in deciding),
        "drained_s": max(end["drained_s"] for end in deciding),
        "exhausted": any(end["exhausted"] for end in deciding),
        "is_cut": not stayed or any(end["is_cut"] for end in stayed),
        "client": _merged_client(clients, len(lost), workers),
    }


def _merged_client(clients: Iterable[ClientFacts], lost: int, workers: int) -> ClientFacts:
    """Work is summed, trouble is the worst of any."""
    seen = list(clients)
    return ClientFacts(
        cpu_s=_known(sum, (one.cpu_s for one in seen)),
        stall_p99_s=_known(max, (one.stall_p99_s for one in seen)),
        stall_max_s=_known(max, (one.stall_max_s for one in seen)),
        connects=sum(one.connects for one in seen),
        retries=sum(one.retries for one in seen),
        unstamped_reads=sum(one.unstamped_reads for one in seen),
        clock_step_s=max((one.clock_step_s for one in seen), default=0.0),
        peak_in_flight=sum(one.peak_in_flight for one in seen),
        workers=workers,
        workers_lost=lost,
    )


def _known(merge: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return merge(known) if known else None


def _moved(at_s: float | None, by_s: float) -> float | None:
    return None if at_s is None else at_s + by_s
