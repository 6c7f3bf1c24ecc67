"""What a scenario is about: each measure on hand-made runs, with exact values."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.analysis.arms import compare_summaries
from harness.analysis.cells import summarise
from harness.analysis.model import Summary
from harness.analysis.scenario_measures.drift import theil_sen
from harness.analysis.scenario_measures.table import BY_NAME, MEASURES, Measure
from harness.report.measures import measure_lines, measure_tables
from harness.report.write import write_report
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import EngineSample, HostSample, Level, Record, RunInfo

NAMES = {
    "ttft_by_group",
    "others_loss",
    "accepted_tokens_per_step",
    "prefix_hit_ratio",
    "cold_start",
    "turn_ttft",
    "drift",
    "memory_growth",
    "lora_spread",
    "tokens_per_hour_cost",
    "tail_ratio",
    "prefill_rate",
    "interactivity",
}


def info_of(
    *names: str, block: int = 0, levels: tuple[str, ...] = ("users=1",), **more: Any
) -> RunInfo:
    config = make_config(
        scenario={"measures": list(names)},
        hardware={"price": more.pop("price", {"per_hour": None})},
    )
    rows = tuple(
        Level(
            index=i,
            name=name,
            shape="users",
            users=1,
            window_start_s=i * 10.0,
            window_end_s=i * 10.0 + 10.0,
        )
        for i, name in enumerate(levels)
    )
    return make_info(block=block, config=config, levels=rows, **more)


def answers(
    n: int, ttft_s: float, *, first: int = 0, level: int = 0, tpot_s: float = 0.01, **changes: Any
) -> list[Record]:
    """Answers of two tokens, evenly over a level of 10 s."""
    return [
        make_record(
            first + i,
            level=level,
            due_s=level * 10 + i * 9.0 / n,
            chunk_s=tuple(level * 10 + i * 9.0 / n + ttft_s + k * tpot_s for k in range(2)),
            **changes,
        )
        for i in range(n)
    ]


def only(tmp_path: Path, info: RunInfo, records: list[Record], **more: Any) -> Measure:
    summary = summarise([store_run(tmp_path / "sweep", info, records, **more)])
    (measure,) = summary.measures
    return measure


def values(measure: Measure) -> dict[str, float | None]:
    return {f"{f.label} @ {f.level}".removesuffix(" @ "): f.value.value for f in measure.figures}


def test_the_table_has_every_name_once_with_a_formula() -> None:
    assert set(BY_NAME) == NAMES
    assert len(MEASURES) == len(NAMES)
    assert all(kind.title and kind.formula and kind.source for kind in MEASURES)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_of_a_run_that_carries_nothing_a_measure_says_so(name: str, tmp_path: Path) -> None:
    measure = only(tmp_path, info_of(name), answers(3, 0.1))
    assert measure.name == name
    assert measure.says
    assert "nan" not in measure.says


def test_without_names_there_is_no_measure(tmp_path: Path) -> None:
    plain = store_run(tmp_path / "a", make_info(), answers(3, 0.1))
    unknown = store_run(tmp_path / "b", info_of("not_yet_known"), answers(3, 0.1))
    assert summarise([plain]).measures == ()
    assert summarise([unknown]).measures == ()


def test_ttft_by_group_over_the_shortest(tmp_path: Path) -> None:
    records = answers(40, 0.1, group="short", planned_input_tokens=10)
    records += answers(40, 0.3, first=40, group="long", planned_input_tokens=2000)
    measure = only(tmp_path, info_of("ttft_by_group"), records)
    found = values(measure)
    assert found["short, TTFT P50 @ users=1"] == pytest.approx(0.1)
    assert found["long, TTFT P90 @ users=1"] == pytest.approx(0.3)
    assert found["long over short @ users=1"] == pytest.approx(3)
    assert measure.says == "the median TTFT of long over short at users=1 is 3.00 times as long"


def test_ttft_by_group_over_the_group_alone(tmp_path: Path) -> None:
    """Short ones wait twice as long beside long ones as alone at the other level."""
    info = info_of("ttft_by_group", levels=("short=4", "short=4+long=1"))
    records = answers(40, 0.1, group="short", planned_input_tokens=10)
    records += answers(40, 0.2, first=40, level=1, group="short", planned_input_tokens=10)
    records += answers(40, 0.6, first=80, level=1, group="long", planned_input_tokens=2000)
    found = values(only(tmp_path, info, records))
    assert found["short over short alone @ short=4+long=1"] == pytest.approx(2)
    assert found["long over short @ short=4+long=1"] == pytest.approx(3)
    assert found["short alone, TTFT P50 @ short=4"] == pytest.approx(0.1)


def test_what_others_lose_is_paired_within_runs(tmp_path: Path) -> None:
    levels = ("light=7", "light=7+heavy=1")
    runs = []
    for block, (alone_s, beside_s) in enumerate([(0.1, 0.2), (0.2, 0.44), (0.1, 0.19)]):
        records = answers(40, alone_s, group="light")
        records += answers(40, beside_s, first=40, level=1, tpot_s=0.03, group="light")
        records += answers(9, 3.0, first=80, level=1, group="heavy")
        info = info_of("others_loss", block=block, levels=levels)
        runs.append(store_run(tmp_path / "sweep", info, records))
    (measure,) = summarise(runs).measures
    figure = measure.figures[0]
    assert (figure.label, figure.level) == ("light, TTFT P50", "light=7+heavy=1")
    assert figure.value.value == pytest.approx((2 * 2.2 * 1.9) ** (1 / 3))
    assert figure.value.n == 3
    assert figure.value.ci_low is not None
    assert figure.value.ci_high is not None
    assert 1.5 < figure.value.ci_low < 2 < figure.value.ci_high < 2.6
    assert values(measure)["light, TPOT P50 @ light=7+heavy=1"] == pytest.approx(3)
    assert measure.says.startswith("TTFT P50 of light is 2.03 times as long beside the others")


def test_accepted_tokens_a_step_from_the_answers(tmp_path: Path) -> None:
    """10 tokens out, 6 of them accepted drafts: 4 steps of 1.5; 6 of 12 drafted."""
    records = answers(5, 0.1, output_tokens=10, accepted_tokens=6, draft_tokens=12)
    measure = only(tmp_path, info_of("accepted_tokens_per_step"), records)
    found = values(measure)
    assert found["accepted tokens a step @ users=1"] == pytest.approx(1.5)
    assert found["accepted of drafted @ users=1"] == pytest.approx(0.5)
    assert measure.says == "1.50 draft tokens are accepted a step at users=1"


def test_accepted_tokens_a_step_from_the_engine_else_from_chunks(tmp_path: Path) -> None:
    samples = [
        EngineSample(
            t_s=t, draft_tokens_total=d, accepted_tokens_total=a, generation_tokens_total=g
        )
        for t, d, a, g in ((1.0, 100, 50, 200), (9.0, 180, 90, 300))
    ]
    info = info_of("accepted_tokens_per_step")
    found = values(only(tmp_path / "a", info, answers(5, 0.1), engine=samples))
    assert found["accepted tokens a step @ users=1"] == pytest.approx(40 / 60)
    assert found["accepted of drafted @ users=1"] == pytest.approx(0.5)
    chunks = only(tmp_path / "b", info, answers(5, 0.1, output_tokens=6))
    assert values(chunks) == {"tokens a chunk (chunks, not steps) @ users=1": pytest.approx(3)}
    assert "chunks are not steps" in chunks.says


def test_prefix_hits_against_what_the_plan_made_reusable(tmp_path: Path) -> None:
    records = answers(5, 0.1, cached_tokens=4, prefix_tokens=8)
    measure = only(tmp_path / "a", info_of("prefix_hit_ratio"), records)
    found = values(measure)
    assert found["prompt tokens from the cache @ users=1"] == pytest.approx(0.4)
    assert found["reusable by the plan @ users=1"] == pytest.approx(0.8)
    samples = [
        EngineSample(t_s=t, prefix_cached_tokens_total=c, prompt_tokens_total=p)
        for t, c, p in ((1.0, 10, 100), (9.0, 40, 200))
    ]
    counted = only(tmp_path / "b", info_of("prefix_hit_ratio"), answers(5, 0.1), engine=samples)
    assert values(counted)["prompt tokens from the cache @ users=1"] == pytest.approx(0.3)
    assert values(counted)["reusable by the plan @ users=1"] is None


def test_the_first_answer_of_a_cold_server(tmp_path: Path) -> None:
    cold = make_record(99, due_s=-0.001, chunk_s=(0.8, 0.9))
    info = info_of("cold_start", time_to_ready_s=12.0)
    found = values(only(tmp_path, info, [cold, *answers(39, 0.1)]))
    assert found["time to ready"] == 12.0
    assert found["first answers, TTFT P50"] == pytest.approx(0.801)
    assert found["first answers over the level's median"] == pytest.approx(8.01)


def test_ttft_of_each_turn(tmp_path: Path) -> None:
    records = [
        one
        for turn in range(3)
        for one in answers(20, 0.1 * (turn + 1), first=20 * turn, session=1, turn=turn)
    ]
    measure = only(tmp_path, info_of("turn_ttft"), records)
    found = values(measure)
    assert found["turn 1, TTFT P50 @ users=1"] == pytest.approx(0.1)
    assert found["turn 3, TTFT P50 @ users=1"] == pytest.approx(0.3)
    assert found["turn 3 over turn 1 @ users=1"] == pytest.approx(3)
    assert measure.says == "the median TTFT of turn 3 is 3.00 × that of turn 1"


def test_the_spread_over_adapters(tmp_path: Path) -> None:
    records = answers(20, 0.1, lora="fr") + answers(20, 0.25, first=20, lora="de", tpot_s=0.02)
    found = values(only(tmp_path, info_of("lora_spread"), records))
    assert found["slowest over fastest adapter, TTFT P50 @ users=1"] == pytest.approx(2.5)
    assert found["slowest over fastest adapter, TPOT P50 @ users=1"] == pytest.approx(2)
    assert found["de, TTFT P50 @ users=1"] == pytest.approx(0.25)


def test_theil_sen_is_not_moved_by_an_outlier() -> None:
    x = np.arange(20.0)
    y = 3 * x + 1
    y[7] = 900.0
    slope = theil_sen(x, y)
    assert slope.value == pytest.approx(3)
    assert slope.ci_low is not None
    assert slope.ci_high is not None
    assert slope.ci_low <= 3 <= slope.ci_high
    assert theil_sen(x[:5], y[:5]).value is None


def soak(slope_per_s: float) -> list[Record]:
    rng = np.random.default_rng(3)
    records = []
    for i in range(400):
        due_s = i * 0.025
        step_s = 0.01 + slope_per_s * due_s + abs(rng.normal(0, 1e-5))
        records.append(make_record(i, due_s=due_s, chunk_s=(due_s + 0.1, due_s + 0.1 + step_s)))
    return records


def test_drift_is_a_slope_an_hour_with_its_interval(tmp_path: Path) -> None:
    measure = only(tmp_path / "a", info_of("drift"), soak(0.001))
    tpot = measure.figures[0]
    assert tpot.label == "median TPOT"
    assert tpot.value.value == pytest.approx(3.6, rel=0.02)
    assert tpot.value.ci_low is not None
    assert tpot.value.ci_low > 3.4
    assert "median TPOT at users=1 rises by 3.6" in measure.says
    still = only(tmp_path / "b", info_of("drift"), soak(0.0))
    assert "median TPOT at users=1 stands still within what the run can show" in still.says


def test_memory_growth_is_a_slope_an_hour(tmp_path: Path) -> None:
    host = [
        HostSample(t_s=t / 10, cpu_total_ratio=0.1, engine_rss_bytes=10**9 + 1024 * t)
        for t in range(100)
    ]
    measure = only(tmp_path, info_of("memory_growth"), answers(5, 0.1), host=host)
    assert values(measure) == {"engine memory @ users=1": pytest.approx(1024 * 10 * 3600)}
    assert measure.says.startswith("engine memory at users=1 rises by 35.2 MiB an hour")


def test_tokens_an_hour_and_their_cost(tmp_path: Path) -> None:
    """40 answers of 2 tokens in 10 s: 8 tokens/s, 28,800 an hour, at 2.88 an hour 100 a million."""
    price = {"per_hour": 2.88, "currency": "EUR", "date": "2026-11-30", "source": "invoice"}
    measure = only(tmp_path, info_of("tokens_per_hour_cost", price=price), answers(40, 0.1))
    found = values(measure)
    assert found["output tokens an hour @ users=1"] == pytest.approx(28_800)
    assert found["cost @ users=1"] == pytest.approx(100)
    assert measure.says == "28,800 output tokens an hour at users=1, at 100 a million"


def two(tmp_path: Path) -> Summary:
    names = ("cold_start", "tokens_per_hour_cost", "turn_ttft")
    runs = [
        store_run(
            tmp_path / "sweep",
            replace(info_of(*names), engine=engine, run_id=engine, content_hash=engine),
            answers(40, 0.1),
        )
        for engine in ("alpha", "beta")
    ]
    return summarise(runs)


def test_the_terminal_gets_at_most_three_lines_in_turn(tmp_path: Path) -> None:
    lines = measure_lines(two(tmp_path))
    assert [line.partition(":")[0] for line in lines] == [
        "Cold start, alpha",
        "Cold start, beta",
        "Tokens an hour, alpha",
    ]


def test_the_page_shows_each_measure_with_its_exact_value(tmp_path: Path) -> None:
    summary = two(tmp_path)
    tables = measure_tables(summary)
    assert [table.name for table in tables] == ["cold_start", "tokens_per_hour_cost", "turn_ttft"]
    assert len(tables[0].rows) == 6
    assert tables[2].rows == ()
    page = write_report(summary, [], tmp_path / "page.html").read_text()
    assert "What this scenario is about" in page
    assert 'data-measure="tokens_per_hour_cost" data-exact="28800.0"' in page
    assert "there are no turns" in page
    assert "The client was not calibrated on this machine" in page


def test_arms_keep_their_measures_apart(tmp_path: Path) -> None:
    both = compare_summaries(two(tmp_path / "a"), two(tmp_path / "b"), names=("old", "new"))
    assert {m.label for m in both.measures} == {
        f"{engine} ({arm})" for engine in ("alpha", "beta") for arm in ("old", "new")
    }


def test_every_measure_that_a_scenario_names_is_known() -> None:
    folder = Path(__file__).parent.parent.parent / "conf" / "scenario"
    named = {
        name
        for path in sorted(folder.glob("*.yaml"))
        for name in yaml.safe_load(path.read_text()).get("measures") or ()
    }
    assert named <= NAMES


def test_the_tail_over_the_middle(tmp_path: Path) -> None:
    records = [*answers(400, 1.0), *answers(20, 4.0, first=400)]
    measure = only(tmp_path, info_of("tail_ratio"), records)
    assert values(measure)["TTFT, P99 over P50 @ users=1"] == pytest.approx(4.0)
    assert values(measure)["chunk gap, P99 over P50 @ users=1"] == pytest.approx(1.0)
    assert measure.says.startswith("TTFT, P99 over P50 is 4")


def test_how_fast_prompts_are_read_leaves_out_what_was_cached(tmp_path: Path) -> None:
    records = answers(5, 0.5, prompt_tokens=110, cached_tokens=10)
    records = [replace(record, sent_s=record.due_s) for record in records]
    measure = only(tmp_path, info_of("prefill_rate"), records)
    assert values(measure) == {
        "prompt tokens/s of the median request @ users=1": pytest.approx(100 / 0.5)
    }


def test_one_user_beside_all_of_them(tmp_path: Path) -> None:
    measure = only(tmp_path, info_of("interactivity"), answers(50, 0.1, output_tokens=2))
    found = values(measure)
    assert found["one user, median @ users=1"] == pytest.approx(100.0)
    assert found["all users @ users=1"] == pytest.approx(10.0)
