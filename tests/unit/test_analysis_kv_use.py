"""KV use from our own stamps: by hand, against a replayed engine, and against the engine's own."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from harness.analysis.frame import request_frame, sample_frame
from harness.analysis.kv_use import kv_usage, mean_kv_tokens, peak_kv_tokens
from harness.analysis.validity import run_doubts
from harness.analysis.views import LevelView, level_view
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import (
    Capabilities,
    EngineIdentity,
    EngineSample,
    HostSample,
    Level,
    LogFacts,
    Provenance,
    Record,
    Severity,
)


def view_of(
    records: list[Record], end_s: float = 10.0, *, capacity: int | None = 100, slots: int | None = 8
) -> LevelView:
    identity = EngineIdentity(kv_capacity_tokens=capacity, max_running=slots)
    info = make_info(config=make_config(engine={"max_running": None}), identity=identity)
    return level_view(
        request_frame(records),
        Level(index=0, name="x", shape="users", users=1, window_end_s=end_s),
        engine=sample_frame([], EngineSample),
        host=sample_frame([], HostSample),
        info=info,
    )


def answer(i: int, sent_s: float, chunk_s: tuple[float, ...], **changes: Any) -> Record:
    """10 prompt tokens, one token a chunk."""
    return make_record(
        i,
        due_s=sent_s,
        chunk_s=chunk_s,
        chunk_tokens=(1,) * len(chunk_s),
        output_tokens=len(chunk_s),
        **changes,
    )


def test_prompt_and_generated_tokens_are_held_until_the_end() -> None:
    """10 tokens for 2 s, 11 for 1 s, 12 for 1 s of 10 s: 20 + 11 + 12."""
    view = view_of([answer(0, 1.0, (3.0, 4.0), stream_end_s=5.0)])
    assert mean_kv_tokens(view) == pytest.approx(4.3)
    assert peak_kv_tokens(view) == pytest.approx(12.0)
    assert kv_usage(view) == pytest.approx(0.043)
    assert kv_usage(view, is_peak=True) == pytest.approx(0.12)


def test_only_what_lies_in_the_window_counts() -> None:
    """From before its start to after its end: 10, 11 and 12 tokens for 2, 6 and 2 s."""
    records = [answer(0, -5.0, (2.0, 8.0), stream_end_s=40.0), answer(1, 11.0, (12.0,))]
    view = view_of(records)
    assert mean_kv_tokens(view) == pytest.approx((20 + 66 + 24) / 10)
    assert peak_kv_tokens(view) == pytest.approx(12.0)


def test_a_request_above_the_slots_waits_and_holds_nothing() -> None:
    """Two at once into one slot: the second takes its place at 4 s, when the first ends."""
    records = [
        answer(0, 0.0, (1.0, 4.0), stream_end_s=4.0),
        answer(1, 0.0, (5.0, 8.0), stream_end_s=8.0),
    ]
    one_by_one = 10 * 1 + 11 * 3 + 10 * 1 + 11 * 3
    assert mean_kv_tokens(view_of(records, slots=1)) == pytest.approx(one_by_one / 10)
    assert mean_kv_tokens(view_of(records, slots=2)) == pytest.approx((one_by_one + 40) / 10)
    assert mean_kv_tokens(view_of(records, slots=None)) == pytest.approx((one_by_one + 40) / 10)


def test_a_place_is_taken_before_the_first_token_whatever_the_slots_say() -> None:
    records = [answer(0, 0.0, (1.0, 9.0)), answer(1, 0.0, (2.0, 9.0))]
    assert mean_kv_tokens(view_of(records, slots=1)) == pytest.approx(
        (11 * 8 + 10 + 10 * 0 + 77) / 10
    )


def test_what_was_cut_off_or_not_counted_is_held_as_planned() -> None:
    cut = make_record(0, due_s=0.0, chunk_s=(), chunk_tokens=(), prompt_tokens=None, censored_s=5.0)
    assert mean_kv_tokens(view_of([cut, answer(1, 20.0, (21.0,))])) == pytest.approx(5.0)


def test_without_a_capacity_there_are_tokens_and_no_share() -> None:
    view = view_of([answer(0, 1.0, (3.0,), stream_end_s=5.0)], capacity=None)
    assert kv_usage(view) is None
    assert mean_kv_tokens(view) == pytest.approx((20 + 22) / 10)


def test_the_estimate_is_that_of_an_engine_played_in_small_steps() -> None:
    """First come, first served into 4 slots, in steps of 1 ms: the sum over all that runs."""
    rng, slots, step_s = Random(5), 4, 0.001
    waiting = [(round(rng.uniform(0, 9), 3), rng.randint(5, 40)) for _ in range(40)]
    waiting.sort()
    running: list[list[Any]] = []
    records: list[Record] = []
    held = []
    sent = list(waiting)
    for k in range(10_000):
        t = k * step_s
        running = [one for one in running if one[2] < one[1]]
        while sent and sent[0][0] <= t and len(running) < slots:
            due, tokens = sent.pop(0)
            running.append([due, tokens, 0, []])
        for one in running:
            if k % 20 == 0:
                one[2] += 1
                one[3].append(t)
                if one[2] == one[1]:
                    stamps = tuple(one[3])
                    records.append(answer(len(records), one[0], stamps, stream_end_s=t))
        held.append(sum(10 + one[2] for one in running if one[2] < one[1]))
    assert len(records) == 40
    view = view_of(records, 9.999, slots=slots)
    assert mean_kv_tokens(view) == pytest.approx(float(np.mean(held)), rel=0.01)


def doubts_of(tmp_path: Path, engine_ratio: float, **info: Any) -> dict[str, Any]:
    """400 answers of 10 tokens for 0.25 s and 11 for 0.25 s, the last 20 cut by the window's end.

    400 x 5.25 - 51.125 token seconds in 10 s: 204.9 tokens.
    """
    records = [
        answer(i, i * 0.025, (i * 0.025 + 0.25, i * 0.025 + 0.5), stream_end_s=i * 0.025 + 0.5)
        for i in range(400)
    ]
    samples = [
        EngineSample(t_s=t / 2, kv_usage_ratio=engine_ratio, kv_provenance=Provenance.MEASURED)
        for t in range(20)
    ]
    config = make_config(engine={"max_running": 64})
    run = store_run(tmp_path, make_info(config=config, **info), records, engine=samples)
    return {doubt.code: doubt for doubt in run_doubts(run)}


def test_a_difference_to_the_engines_own_figure_is_told(tmp_path: Path) -> None:
    identity = EngineIdentity(kv_capacity_tokens=420)
    found = doubts_of(tmp_path / "a", 0.75, identity=identity)["kv_differs"]
    assert found.severity is Severity.NOTE
    assert found.what == (
        "the engine says that 75.0 % of its KV cache was in use on average; the tokens of the "
        "answers under way are 48.8 % of it"
    )
    assert "kv_differs" not in doubts_of(tmp_path / "b", 0.5, identity=identity)
    assert "kv_differs" not in doubts_of(tmp_path / "c", 0.75)


def test_a_capacity_from_the_log_counts_where_the_server_does_not_tell(tmp_path: Path) -> None:
    found = doubts_of(tmp_path, 0.75, log=LogFacts(kv_capacity_tokens=420))
    assert "48.8 %" in found["kv_differs"].what


def sparse(tmp_path: Path, every_s: float, *, has_metrics: bool = True) -> Any:
    capabilities = Capabilities(
        forced_length=True,
        token_id_prompts=False,
        usage_in_stream=True,
        kv_metric=Provenance.MEASURED,
        prefix_cache_off=True,
        tokenize_route=False,
        metrics=has_metrics,
    )
    samples = [EngineSample(t_s=t) for t in np.arange(0.1, 10, every_s)] if every_s else []
    info = make_info(capabilities=capabilities)
    run = store_run(tmp_path, info, [answer(0, 1.0, (2.0,))], engine=samples)
    return {doubt.code: doubt for doubt in run_doubts(run)}.get("sparse_metrics")


def test_engine_figures_rarer_than_one_a_second_are_told(tmp_path: Path) -> None:
    assert sparse(tmp_path / "a", 1.0) is None
    found = sparse(tmp_path / "b", 2.5)
    assert found.what == "engine figures every 2.50 s came in a window of 10.0 s"
    silent = sparse(tmp_path / "c", 0)
    assert silent.what == "no engine figure came in a window of 10.0 s"
    assert sparse(tmp_path / "d", 0, has_metrics=False) is None
