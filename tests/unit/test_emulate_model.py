import math
from itertools import accumulate, pairwise

import pytest

from harness.config import EmulateConf
from harness.emulate.model.blocks import BlockPool
from harness.emulate.model.engine import EngineModel
from harness.emulate.model.sequence import Sequence
from harness.emulate.model.simulate import token_times
from harness.emulate.model.step_time import stalled_end_s


def engine(**knobs: object) -> EngineModel:
    plain = {
        "prefill_tokens_per_s": 1000.0,
        "step_ms": 10.0,
        "step_per_sequence_ms": 0.0,
        "step_per_kv_token_us": 0.0,
    }
    return EngineModel(EmulateConf(**{**plain, **knobs}))  # type: ignore[arg-type]


def test_a_request_alone_has_the_known_times() -> None:
    [times] = token_times(
        engine(step_per_sequence_ms=2.0, step_per_kv_token_us=100.0),
        [Sequence(prompt_tokens=100, output_tokens=3, arrival_s=5.0)],
    )
    first = 5.0 + 0.100 + 0.010  # prompt / prefill + base
    second = first + 0.010 + 0.002 + 100 * 100e-6  # its 100 tokens are read
    third = second + 0.010 + 0.002 + 101 * 100e-6
    assert times == pytest.approx([first, second, third], abs=1e-12)


def test_a_prompt_over_the_step_is_read_in_pieces() -> None:
    [times] = token_times(
        engine(tokens_per_step=64), [Sequence(prompt_tokens=150, output_tokens=1)]
    )
    assert times == pytest.approx([0.150 + 3 * 0.010])


def short_and_long(*, is_chunked: bool) -> list[list[float]]:
    requests = [
        Sequence(prompt_tokens=10, output_tokens=3),
        Sequence(prompt_tokens=200, output_tokens=1),
    ]
    return token_times(engine(tokens_per_step=64, chunked_prefill=is_chunked), requests)


def test_a_long_prompt_in_pieces_lets_the_short_one_go_on() -> None:
    short, long = short_and_long(is_chunked=True)
    # the long prompt: 54 tokens beside the short one, 63 twice beside one of its tokens, then 20
    ends = [0.064 + 0.010, 0.063 + 0.010, 0.063 + 0.010, 0.020 + 0.010]
    sums = list(accumulate(ends))
    assert short == pytest.approx(sums[:3])
    assert long == pytest.approx([sums[3]])


def test_a_long_prompt_as_a_whole_holds_the_short_one_up() -> None:
    short, long = short_and_long(is_chunked=False)
    assert short == pytest.approx([0.020, 0.240, 0.250])
    assert long == pytest.approx([0.230])


def test_more_than_the_slots_wait_in_order() -> None:
    model = engine(slots=1)
    requests = [
        Sequence(prompt_tokens=10, output_tokens=2, arrival_s=0.0),
        Sequence(prompt_tokens=10, output_tokens=1, arrival_s=0.001),
        Sequence(prompt_tokens=10, output_tokens=1, arrival_s=0.002),
    ]
    first, second, third = token_times(model, requests)
    assert first == pytest.approx([0.020, 0.030])
    assert second == pytest.approx([0.050])
    assert third == pytest.approx([0.070])


def test_what_comes_within_a_step_begins_with_the_next() -> None:
    requests = [
        Sequence(prompt_tokens=10, output_tokens=1, arrival_s=1.0),
        Sequence(prompt_tokens=10, output_tokens=1, arrival_s=1.001),
    ]
    assert token_times(engine(), requests) == [pytest.approx([1.020]), pytest.approx([1.040])]


def test_the_newest_gives_way_when_the_blocks_run_out_and_is_computed_again() -> None:
    model = engine(block_tokens=4, kv_blocks=4, max_model_len_tokens=16, slots=2)
    requests = [
        Sequence(prompt_tokens=8, output_tokens=5),
        Sequence(prompt_tokens=8, output_tokens=3),
    ]
    old, new = token_times(model, requests)
    # step 1 reads both prompts (4 blocks); step 2 has no block for a 9th token of the old one
    assert old == pytest.approx([0.026, 0.036, 0.046, 0.056, 0.066])
    # 8 tokens of the prompt and 1 of the answer are computed again when the old one has ended
    assert new == pytest.approx([0.026, 0.066 + 0.019, 0.066 + 0.029])
    assert [model.counters.preemptions, *(one.preemptions for one in requests)] == [1, 0, 1]
    assert model.counters.generation == 8
    assert model.counters.prompt == 16
    assert model.gauges().kv_usage_ratio == 0


def test_equal_beginnings_are_read_once_until_the_cache_is_reset() -> None:
    model = engine(prefix_cache=True, block_tokens=4)
    keys = ("a", "ab")  # 8 of 10 tokens are full blocks

    def ask(arrival_s: float) -> tuple[float, int | None]:
        one = Sequence(prompt_tokens=10, output_tokens=1, arrival_s=arrival_s, block_keys=keys)
        [[first_s]] = token_times(model, [one])
        return round(first_s - arrival_s, 9), one.cached_tokens

    assert ask(0.0) == (0.020, 0)
    assert ask(1.0) == (0.012, 8)
    assert (model.counters.prefix_queries, model.counters.prefix_hits) == (20, 8)
    model.reset_cache()
    assert ask(2.0) == (0.020, 0)
    assert ask(3.0) == (0.012, 8)


def test_a_whole_prompt_in_the_cache_still_computes_one_token() -> None:
    model = engine(prefix_cache=True, block_tokens=4)
    requests = [
        Sequence(prompt_tokens=8, output_tokens=1, arrival_s=at, block_keys=("a", "ab"))
        for at in (0.0, 1.0)
    ]
    assert token_times(model, requests)[1] == pytest.approx([1.0 + 0.004 + 0.010])
    assert requests[1].cached_tokens == 4


def test_a_cancelled_request_frees_its_slot_and_its_blocks() -> None:
    model = engine(slots=1)
    running, waiting = (Sequence(prompt_tokens=32, output_tokens=9) for _ in range(2))
    model.submit(running)
    model.submit(waiting)
    model.begin()
    assert (model.gauges().running, model.gauges().waiting) == (1, 1)
    assert model.gauges().kv_usage_ratio == pytest.approx(2 / 8192)
    model.cancel(running)
    assert model.finish() == []
    model.cancel(waiting)
    model.cancel(waiting)
    assert model.begin() is None
    assert model.gauges().kv_usage_ratio == 0


def test_drift_and_stall_make_steps_longer() -> None:
    drifting = engine(drift_per_hour=0.5)
    late = Sequence(prompt_tokens=10, output_tokens=1, arrival_s=7200.0)
    assert token_times(drifting, [late]) == [pytest.approx([7200.0 + 2 * 0.020])]
    stalling = engine(stall_every_s=1.0, stall_ms=200.0)
    hit = Sequence(prompt_tokens=20, output_tokens=1, arrival_s=0.99)
    assert token_times(stalling, [hit]) == [pytest.approx([0.99 + 0.030 + 0.200])]


@pytest.mark.parametrize(
    ("start_s", "work_s", "end_s"),
    [
        (0.0, 0.5, 0.5),  # the first stop is at 1
        (0.0, 1.5, 1.7),
        (0.9, 0.1, 1.0),
        (1.0, 0.1, 1.3),  # begins in a stop
        (1.1, 0.1, 1.3),
        (1.2, 0.1, 1.3),
        (0.5, 2.5, 3.6),  # over three stops
    ],
)
def test_work_stands_still_in_a_stop(start_s: float, work_s: float, end_s: float) -> None:
    got = stalled_end_s(start_s, work_s, every_s=1.0, stall_s=0.2)
    assert got == pytest.approx(end_s)


def test_jitter_has_the_mean_and_spread_that_is_asked_for_and_a_seed() -> None:
    def gaps(seed: int) -> list[float]:
        model = engine(jitter_ratio=0.2, seed=seed, max_model_len_tokens=8192)
        [times] = token_times(model, [Sequence(prompt_tokens=1, output_tokens=4000)])
        return [b - a for a, b in pairwise(times)]

    one = gaps(1)
    mean = math.fsum(one) / len(one)
    spread = math.sqrt(math.fsum((x - mean) ** 2 for x in one) / len(one))
    assert mean == pytest.approx(0.010, rel=0.02)
    assert spread / mean == pytest.approx(0.2, rel=0.05)
    assert one == gaps(1)
    assert one != gaps(2)


def test_the_pool_gives_up_what_was_let_go_longest_ago_and_ends_before_beginnings() -> None:
    pool = BlockPool(3)
    assert pool.allocate(2)
    blocks = [pool.publish(key) for key in ("a", "ab")]
    pool.release([block for block in blocks if block is not None], 0)
    assert pool.available == 3
    assert pool.allocate(2)  # the empty one, and the end of the beginning
    assert [block.key for block in pool.find(("a", "ab"), 2)] == ["a"]
    assert not pool.allocate(1)
    assert pool.usage_ratio == 1.0
