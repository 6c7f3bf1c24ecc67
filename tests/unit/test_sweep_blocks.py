"""Which jobs are launched, in which order, and which stored runs are used as they are."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.config import RunConf
from harness.sweep.blocks import BlockJob, finished_runs, schedule
from harness.testing.records import make_info, make_record, store_run
from harness.types import Outcome

CONF = RunConf()


def blocks_of(arms: int, repeats: int) -> list[list[BlockJob]]:
    return [
        [
            BlockJob(conf=CONF, overrides=(f"arm={arm}",), content_hash=f"{arm}-{number}")
            for arm in range(arms)
        ]
        for number in range(repeats)
    ]


def hashes(blocks: tuple[tuple[BlockJob, ...], ...]) -> list[list[str]]:
    return [[job.content_hash for job in block] for block in blocks]


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 10**6), st.data())
def test_every_block_is_launched_whole_or_not_at_all(
    arms: int, repeats: int, seed: int, data: st.DataObject
) -> None:
    blocks = blocks_of(arms, repeats)
    every = [job.content_hash for block in blocks for job in block]
    done = data.draw(st.sets(st.sampled_from(every)))
    found = schedule(blocks, {name: Path(name) for name in done}, seed=seed)
    launched = {tuple(sorted(names)) for names in hashes(found.blocks)}
    for block in blocks:
        names = tuple(sorted(job.content_hash for job in block))
        assert (names in launched) != (set(names) <= done)
    assert len(found.blocks) + len(found.stored) // arms == repeats
    assert {path.name for path in found.stored} <= done


def test_the_order_differs_between_blocks_and_seeds_and_is_the_same_again() -> None:
    blocks = blocks_of(4, 6)
    first = hashes(schedule(blocks, {}, seed=1).blocks)
    assert first == hashes(schedule(blocks, {}, seed=1).blocks)
    orders = {tuple(name.split("-")[0] for name in block) for block in first}
    assert len(orders) > 1
    assert first != hashes(schedule(blocks, {}, seed=2).blocks)
    assert [sorted(block) for block in first] == [
        sorted(job.content_hash for job in block) for block in blocks
    ]


def test_over_many_blocks_each_arm_is_first_about_as_often() -> None:
    first = [block[0] for block in hashes(schedule(blocks_of(2, 200), {}, seed=3).blocks)]
    ahead = sum(name.startswith("0-") for name in first)
    assert 75 <= ahead <= 125  # 99.96 % of fair coins


def test_the_order_of_a_block_does_not_hang_on_what_is_stored() -> None:
    blocks = blocks_of(3, 3)
    whole = hashes(schedule(blocks, {}, seed=5).blocks)
    stored = {f"{arm}-0": Path(f"{arm}-0") for arm in range(3)}
    assert hashes(schedule(blocks, stored, seed=5).blocks) == whole[1:]


def test_a_half_done_block_is_measured_again_whole() -> None:
    found = schedule(
        blocks_of(2, 2), {"0-0": Path("a"), "0-1": Path("b"), "1-1": Path("c")}, seed=1
    )
    assert [sorted(block) for block in hashes(found.blocks)] == [["0-0", "1-0"]]
    assert found.stored == (Path("b"), Path("c"))


def test_only_finished_valid_runs_count_as_stored(tmp_path: Path) -> None:
    sweep = tmp_path / "store" / "sweep"
    good = store_run(sweep, make_info(run_id="good", content_hash="h-good"), [make_record()])
    store_run(sweep, make_info(run_id="cut", content_hash="h-cut", ended_at=None), [])
    for outcome in (Outcome.INVALID, Outcome.DIED, Outcome.INTERRUPTED, Outcome.FAILED):
        store_run(sweep, make_info(run_id=outcome, content_hash=outcome, outcome=outcome), [])
    damaged = store_run(sweep, make_info(run_id="damaged", content_hash="h-damaged"), [])
    (damaged.folder / "run.json").write_text("{")
    finished, doubts = finished_runs(tmp_path / "store")
    assert finished == {"h-good": good.folder}
    assert [doubt.where for doubt in doubts] == ["damaged"]


def test_a_store_that_is_not_there_or_empty_has_nothing(tmp_path: Path) -> None:
    assert finished_runs(tmp_path / "no") == ({}, ())
    assert finished_runs(tmp_path) == ({}, ())
    hidden = tmp_path / "sweep" / ".x.part"
    hidden.mkdir(parents=True)
    (hidden / "run.json").write_text("{}")
    assert finished_runs(tmp_path) == ({}, ())
