"""The emulated engine behaves as engines do, whatever its settings."""

from itertools import accumulate, pairwise
from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config import EmulateConf
from harness.emulate.model.engine import EngineModel
from harness.emulate.model.sequence import Sequence
from harness.emulate.model.simulate import token_times

pytestmark = pytest.mark.timeout(120)
SEEDS = st.integers(0, 10_000)


def poisson(
    rate_rps: float, *, seed: int, requests: int = 300, output_tokens: int = 20
) -> list[Sequence]:
    """The same stream of arrivals at every rate, only faster."""
    random = Random(seed)
    units = accumulate(random.expovariate(1.0) for _ in range(requests))
    prompts = [random.randint(16, 256) for _ in range(requests)]
    return [
        Sequence(prompt_tokens=prompt, output_tokens=output_tokens, arrival_s=at / rate_rps)
        for at, prompt in zip(units, prompts, strict=True)
    ]


def ttft_s(model: EngineModel, requests: list[Sequence]) -> list[float]:
    times = token_times(model, requests)
    return [one[0] - request.arrival_s for one, request in zip(times, requests, strict=True)]


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, is_chunked=st.booleans())
def test_the_median_ttft_rises_with_the_rate(seed: int, is_chunked: bool) -> None:
    conf = EmulateConf(slots=8, chunked_prefill=is_chunked)
    medians = [median(ttft_s(EngineModel(conf), poisson(r, seed=seed))) for r in (2.0, 16.0, 64.0)]
    assert medians == sorted(medians)
    assert medians[-1] > 2 * medians[0]


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, kv_blocks=st.integers(40, 200))
def test_preemptions_begin_when_demand_passes_the_blocks(seed: int, kv_blocks: int) -> None:
    longest = 256 + 200  # tokens of a whole request
    few = (kv_blocks * 16) // longest  # so many fit whatever their lengths
    conf = EmulateConf(kv_blocks=kv_blocks, max_model_len_tokens=longest, slots=few)

    def preemptions(slots: int) -> int:
        model = EngineModel(EmulateConf(**{**vars(conf), "slots": slots}))
        token_times(model, poisson(1e6, seed=seed, requests=80, output_tokens=200))
        return model.counters.preemptions

    assert preemptions(few) == 0
    assert preemptions(64) > 0


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS)
def test_throughput_rises_with_the_slots_up_to_the_limit(seed: int) -> None:
    def tokens_per_s(slots: int) -> float:
        model = EngineModel(EmulateConf(slots=slots))
        requests = poisson(1e6, seed=seed, requests=128)
        last_s = max(times[-1] for times in token_times(model, requests))
        return model.counters.generation / last_s

    rates = [tokens_per_s(slots) for slots in (1, 4, 16, 64, 128, 256)]
    assert all(b > a for a, b in pairwise(rates[:4]))
    assert rates[-1] == rates[-2]  # there are 128 requests


@settings(deadline=None, max_examples=50)
@given(
    prompt=st.integers(1, 2000),
    rate=st.floats(100, 1e6),
    step_ms=st.floats(0.1, 200),
    per_sequence_ms=st.floats(0, 10),
)
def test_a_request_alone_has_the_known_ttft(
    prompt: int, rate: float, step_ms: float, per_sequence_ms: float
) -> None:
    conf = EmulateConf(
        prefill_tokens_per_s=rate, step_ms=step_ms, step_per_sequence_ms=per_sequence_ms
    )
    [first] = ttft_s(EngineModel(conf), [Sequence(prompt_tokens=prompt, output_tokens=1)])
    assert first == pytest.approx(prompt / rate + step_ms * 1e-3)


@settings(deadline=None, max_examples=15)
@given(seed=SEEDS, beginnings=st.integers(1, 5))
def test_a_cache_reset_drops_the_hit_rate_to_zero(seed: int, beginnings: int) -> None:
    model = EngineModel(EmulateConf(prefix_cache=True))
    random = Random(seed)

    def hit_ratio() -> float:
        queries, hits = model.counters.prefix_queries, model.counters.prefix_hits
        requests = []
        for name in range(beginnings):
            keys = tuple((name, block) for block in range(random.randint(1, 8)))
            prompt = 16 * len(keys) + 8
            one = Sequence(prompt_tokens=prompt, output_tokens=2, block_keys=keys)
            one.arrival_s = model.now_s
            requests.append(one)
        token_times(model, requests)
        return (model.counters.prefix_hits - hits) / (model.counters.prefix_queries - queries)

    assert hit_ratio() == 0
    assert hit_ratio() > 0
    model.reset_cache()
    assert hit_ratio() == 0
    assert hit_ratio() > 0  # and it recovers


@settings(deadline=None, max_examples=40)
@given(
    seed=SEEDS,
    kv_blocks=st.integers(32, 100),
    slots=st.integers(1, 20),
    step_tokens=st.integers(20, 300),
    is_chunked=st.booleans(),
    has_cache=st.booleans(),
)
def test_every_request_gets_all_its_tokens_and_every_block_comes_back(
    seed: int, kv_blocks: int, slots: int, step_tokens: int, is_chunked: bool, has_cache: bool
) -> None:
    conf = EmulateConf(
        slots=slots,
        kv_blocks=kv_blocks,
        max_model_len_tokens=kv_blocks * 16,
        tokens_per_step=step_tokens,
        chunked_prefill=is_chunked,
        prefix_cache=has_cache,
        jitter_ratio=0.3,
        seed=seed,
    )
    model, random = EngineModel(conf), Random(seed)
    requests = poisson(30.0, seed=seed, requests=60, output_tokens=60)
    for one in requests:
        one.block_keys = tuple(
            (random.randrange(2), block) for block in range(one.prompt_tokens // 16)
        )
    times = token_times(model, requests)
    for row, request in zip(times, requests, strict=True):
        assert len(row) == 60
        assert row == sorted(row)
        assert row[0] > request.arrival_s
    assert model.counters.generation == 60 * 60
    assert model.counters.prompt == sum(request.prompt_tokens for request in requests)
    gauges = model.gauges()
    assert (gauges.running, gauges.waiting, gauges.kv_usage_ratio) == (0, 0, 0.0)


@settings(deadline=None, max_examples=30)
@given(
    seed=SEEDS,
    lengths=st.lists(st.tuples(st.integers(1, 300), st.integers(1, 200)), min_size=1, max_size=30),
    is_chunked=st.booleans(),
)
def test_nothing_is_preempted_while_all_of_the_demand_fits(
    seed: int, lengths: list[tuple[int, int]], is_chunked: bool
) -> None:
    demand = sum(-(-(prompt + output - 1) // 16) for prompt, output in lengths)
    conf = EmulateConf(
        kv_blocks=demand, max_model_len_tokens=demand * 16, chunked_prefill=is_chunked
    )
    model, random = EngineModel(conf), Random(seed)
    token_times(
        model,
        [
            Sequence(prompt_tokens=prompt, output_tokens=output, arrival_s=random.random())
            for prompt, output in lengths
        ],
    )
    assert model.counters.preemptions == 0
    assert model.counters.generation == sum(output for _, output in lengths)


@settings(deadline=None, max_examples=30)
@given(prompt=st.integers(1, 200), output=st.integers(20, 200), sequences=st.integers(2, 6))
def test_one_gives_way_as_soon_as_the_demand_passes_the_blocks(
    prompt: int, output: int, sequences: int
) -> None:
    each = -(-(prompt + output - 1) // 16)
    at_start = -(-prompt // 16)

    def preemptions(kv_blocks: int) -> int:
        conf = EmulateConf(kv_blocks=kv_blocks, max_model_len_tokens=each * 16)
        model = EngineModel(conf)
        requests = [Sequence(prompt_tokens=prompt, output_tokens=output) for _ in range(sequences)]
        token_times(model, requests)
        return model.counters.preemptions

    assert preemptions(sequences * each) == 0
    if at_start < each:  # all can begin, and one block is missing in the end
        assert preemptions(sequences * each - 1) > 0


@settings(deadline=None, max_examples=30)
@given(
    long=st.integers(500, 6000),
    step_tokens=st.integers(64, 400),
    rate=st.floats(500, 20_000),
    others=st.integers(1, 8),
)
def test_a_prompt_in_pieces_holds_the_others_up_for_one_step_at_most(
    long: int, step_tokens: int, rate: float, others: int
) -> None:
    def longest_gap_s(*, is_chunked: bool) -> float:
        conf = EmulateConf(
            chunked_prefill=is_chunked,
            tokens_per_step=step_tokens,
            slots=16,
            prefill_tokens_per_s=rate,
            step_per_kv_token_us=0.0,
        )
        running = [Sequence(prompt_tokens=1, output_tokens=300) for _ in range(others)]
        newcomer = Sequence(prompt_tokens=long, output_tokens=1, arrival_s=0.05)
        times = token_times(EngineModel(conf), [*running, newcomer])[:others]
        return max(b - a for row in times for a, b in pairwise(row))

    one_step_s = 0.020 + others * 0.1e-3 + step_tokens / rate
    assert longest_gap_s(is_chunked=True) <= one_step_s + 1e-9
    assert longest_gap_s(is_chunked=False) >= long / rate + 0.020


def closed_load_tokens_per_s(conf: EmulateConf, *, users: int, seed: int) -> float:
    """Each user asks again as soon as it is answered: tokens over the time of 400 requests."""
    model, random = EngineModel(conf), Random(seed)
    left = 400 - users

    def ask() -> None:
        prompt, output = random.randint(16, 128), random.randint(20, 60)
        model.submit(Sequence(prompt_tokens=prompt, output_tokens=output, arrival_s=model.now_s))

    for _ in range(users):
        ask()
    while model.begin() is not None:
        for sequence in model.finish():
            if sequence.is_complete and left:
                left -= 1
                ask()
    return model.counters.generation / model.now_s


@settings(deadline=None, max_examples=10)
@given(seed=SEEDS, users=st.integers(4, 40), per_sequence_ms=st.floats(0, 2))
def test_more_slots_never_lower_the_throughput_of_a_closed_load(
    seed: int, users: int, per_sequence_ms: float
) -> None:
    rates = [
        closed_load_tokens_per_s(
            EmulateConf(slots=slots, step_per_sequence_ms=per_sequence_ms), users=users, seed=seed
        )
        for slots in (1, 2, 4, 8, 16, 32, 64)
    ]
    assert all(b >= 0.98 * a for a, b in pairwise(rates)), rates  # the load's end is uneven
    assert users > 32 or rates[-1] == rates[-2]  # slots that nobody needs change nothing
    assert rates[2] > 1.5 * rates[0]


@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, share_gone=st.floats(0, 1), kv_blocks=st.integers(40, 400))
def test_tokens_are_counted_once_whoever_leaves(
    seed: int, share_gone: float, kv_blocks: int
) -> None:
    conf = EmulateConf(kv_blocks=kv_blocks, max_model_len_tokens=40 * 16, slots=12)
    model, random = EngineModel(conf), Random(seed)
    requests = poisson(20.0, seed=seed, requests=60, output_tokens=60)
    for one in requests:
        model.submit(one)
    emitted = 0
    while model.begin() is not None:
        if random.random() < share_gone / 10:
            model.cancel(random.choice(requests))
        emitted += len(model.finish())
    complete = [one for one in requests if one.is_complete]
    assert {one.is_gone for one in requests if one not in complete} <= {True}
    assert emitted == model.counters.generation == sum(one.generated for one in requests)
    assert model.counters.ended == 60 * len(complete)
    assert model.counters.prompt == sum(one.prompt_tokens for one in requests if one.generated)
    assert model.gauges().kv_usage_ratio == 0
