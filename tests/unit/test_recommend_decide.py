"""The recommender on hand-made summaries: every end of the tree, and what it cites."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from harness.analysis.model import Candidate, Cell, FailedRun, Summary, Workload
from harness.config import SloConf
from harness.errors import ConfigError
from harness.recommend.decide import recommend
from harness.recommend.model import Decision, Fit, Status
from harness.recommend.text import decision_lines, evidence_table, path_tree
from harness.types import Doubt, Estimate, Outcome, RunInfo, Severity, Verdict, VerdictKind

SLO = SloConf(name="cpu_small", ttft_s=5, tpot_s=0.15, attainment_ratio=0.9)
PER_BLOCK = 40


def candidate(engine: str, **changes: object) -> Candidate:
    plain = Candidate(key=f"key-{engine}", engine=engine, label=engine, model="m", hardware="cpu")
    return replace(plain, **changes)  # type: ignore[arg-type]


def workload(users: int = 8, scenario: str = "chat", output_tokens: int = 24) -> Workload:
    return Workload(
        key=f"{scenario}|{output_tokens}|users={users}",
        scenario=scenario,
        level=f"users={users}",
        closed=True,
        input_tokens=(30, 60),
        output_tokens=(16, output_tokens),
        users=users,
    )


def cell(
    engine: str,
    tokens_per_s: Sequence[float],
    *,
    users: int = 8,
    good: Sequence[int] | None = None,
    what: Candidate | None = None,
    where: Workload | None = None,
    e2e_s: float = 1.0,
) -> Cell:
    """A cell whose run in block b gave `tokens_per_s[b]` with `good[b]` of 40 requests good."""
    blocks = tuple(range(len(tokens_per_s)))
    hits = list(good) if good is not None else [PER_BLOCK] * len(blocks)
    n = PER_BLOCK * len(blocks)
    mean = sum(tokens_per_s) / len(blocks)
    return Cell(
        candidate=what or candidate(engine),
        workload=where or workload(users),
        run_ids=tuple(f"{engine}-{block}" for block in blocks),
        blocks=blocks,
        n=n,
        n_ok=n,
        n_failed=0,
        n_censored=0,
        metrics={
            "attainment_ratio": Estimate(value=sum(hits) / n, n=n),
            "good_tokens_per_s": Estimate(
                value=mean, ci_low=min(tokens_per_s), ci_high=max(tokens_per_s), n=len(blocks)
            ),
            "output_tokens_per_s": Estimate(value=mean, n=len(blocks)),
            "ttft_p50_s": Estimate(value=0.4, n=n),
            "ttft_p90_s": Estimate(value=1.0, n=n),
            "e2e_p90_s": Estimate(value=e2e_s, n=n),
        },
        per_run={
            "attainment_ratio": tuple(hit / PER_BLOCK for hit in hits),
            "good_tokens_per_s": tuple(tokens_per_s),
            "output_tokens_per_s": tuple(tokens_per_s),
            "e2e_p90_s": tuple(e2e_s * (1 + block / 100) for block in blocks),
        },
        measured_at="2026-11-30T10:00:00+00:00",
    )


def summary(
    *cells: Cell,
    failed: Iterable[FailedRun] = (),
    verdicts: Iterable[Verdict] = (),
    runs: Iterable[RunInfo] = (),
) -> Summary:
    return Summary(
        title="test",
        cells=cells,
        verdicts=tuple(verdicts),
        failed=tuple(failed),
        doubts=(),
        runs={run.run_id: run for run in runs},
    )


def info(run_id: str, *, outcome: Outcome = Outcome.OK, ready_s: float | None = None) -> RunInfo:
    return RunInfo(
        schema_version=1,
        run_id=run_id,
        engine=run_id.split("-", maxsplit=1)[0],
        model="m",
        emulated=False,
        outcome=outcome,
        started_at="2026-11-30T10:00:00+00:00",
        config={},
        facts={"machine": {"cpu_model": "Test CPU", "cpu_cores": 2}},
        plan_hash="p",
        content_hash=run_id,
        block=0,
        time_to_ready_s=ready_s,
    )


FAST = [100.0, 104.0, 98.0]
SLOW = [80.0, 84.0, 78.0]


def test_the_better_one_is_chosen_with_its_runner_up() -> None:
    decision = recommend(summary(cell("llamacpp", SLOW), cell("vllm", FAST)), slo=SLO)
    assert decision.status is Status.CHOICE
    assert decision.best is not None
    assert (decision.best.candidate, decision.best.level) == ("vllm", "users=8")
    assert decision.best.value.value == pytest.approx(302 / 3)
    assert (decision.best.value.ci_low, decision.best.value.ci_high) == (98.0, 104.0)
    assert decision.p_best is not None
    assert decision.p_best > 0.99
    assert decision.blocks == 3
    assert decision.runner_up is not None
    assert decision.runner_up.candidate == "llamacpp"
    assert decision.question.objective == "throughput"
    assert [step.test for step in decision.path] == [
        "measured",
        "one_question",
        "slo_met",
        "objective",
        "contenders",
        "comparable",
        "blocks",
        "significance",
    ]
    assert decision.flips[0].variable == "slo.attainment_ratio"


def test_the_slo_decides_before_speed() -> None:
    """The faster one misses the SLO: 20 of 40 good in each block."""
    fast = cell("vllm", FAST, good=[20, 20, 20])
    decision = recommend(summary(cell("llamacpp", SLOW), fast), slo=SLO)
    assert decision.best is not None
    assert decision.best.candidate == "llamacpp"
    assert [(out.candidate, out.test) for out in decision.excluded] == [("vllm", "slo_met")]
    assert decision.excluded[0].run_ids == ("vllm-0", "vllm-1", "vllm-2")
    assert "only one" in decision.reasons[0]
    assert decision.p_best is None


def test_the_level_is_the_highest_that_meets_the_slo() -> None:
    cells = (
        cell("vllm", SLOW, users=4),
        cell("vllm", FAST, users=8),
        cell("vllm", [150.0] * 3, users=16, good=[10, 10, 10]),
        cell("llamacpp", [60.0, 62.0, 61.0], users=4),
        cell("llamacpp", [60.0, 62.0, 61.0], users=8, good=[0, 0, 0]),
    )
    decision = recommend(summary(*cells), slo=replace(SLO, attainment_ratio=0.95))
    assert decision.best is not None
    assert decision.runner_up is not None
    assert (decision.best.candidate, decision.best.level) == ("vllm", "users=8")
    assert (decision.runner_up.candidate, decision.runner_up.level) == ("llamacpp", "users=4")
    flip = next(flip for flip in decision.flips if flip.variable == "load in users")
    assert (flip.now, flip.flip_at, flip.pct) == (8, 16, 100)
    assert decision.next_measurement is not None
    assert "load.users=11" in decision.next_measurement.command
    cited = {(row.candidate, row.level) for row in decision.evidence if row.cited}
    assert cited == {
        ("vllm", "users=8"),
        ("vllm", "users=16"),
        ("llamacpp", "users=4"),
        ("llamacpp", "users=8"),
    }


def test_feasible_goes_by_the_lower_bound() -> None:
    """39 of 40 is 97.5 %, but 86.8 % by its lower bound: not shown at 90 %, shown at 80 %."""
    one = summary(cell("vllm", [100.0], good=[39]))
    decision = recommend(one, slo=SLO)
    assert decision.status is Status.REFUSED
    assert decision.evidence[0].fit is Fit.UNKNOWN
    assert decision.evidence[0].attainment.ci_low == pytest.approx(0.8684, abs=1e-4)
    assert decision.refusal is not None
    assert "Too few requests" in decision.refusal
    assert decision.next_measurement is not None
    needed = int(decision.next_measurement.command.split("load.requests=")[1])
    assert 60 < needed < 90
    lenient = recommend(one, slo=replace(SLO, attainment_ratio=0.8))
    assert lenient.status is Status.CHOICE


def test_clustered_misses_count_by_their_effective_number() -> None:
    sure = cell("vllm", FAST, good=[40, 38, 40])
    share = replace(sure.metrics["attainment_ratio"], n_eff=20.0)
    clustered = replace(sure, metrics={**sure.metrics, "attainment_ratio": share})
    assert recommend(summary(sure), slo=SLO).status is Status.CHOICE
    assert recommend(summary(clustered), slo=SLO).status is Status.REFUSED


def test_nothing_fits_names_the_nearest_miss() -> None:
    cells = (cell("vllm", FAST, good=[24, 24, 24]), cell("llamacpp", SLOW, good=[8, 8, 8]))
    decision = recommend(summary(*cells), slo=SLO)
    assert decision.status is Status.REFUSED
    assert decision.best is None
    assert decision.refusal is not None
    assert decision.refusal.startswith(
        "Nothing meets the SLO cpu_small (TTFT <= 5.00 s, TPOT <= 150 ms): the nearest is vllm at "
        "users=8 with 60.0 % of 120 requests good"
    )
    assert "30.0 % short of 90.0 %" in decision.refusal
    assert decision.next_measurement is not None
    assert "load.users=4" in decision.next_measurement.command


def test_every_request_failed_is_a_miss() -> None:
    dead = replace(cell("vllm", FAST), n_ok=0, n_failed=120, metrics={}, per_run={})
    decision = recommend(summary(dead), slo=SLO)
    assert decision.evidence[0].fit is Fit.MISSED
    assert decision.status is Status.REFUSED


def test_one_candidate_fits_but_is_not_compared() -> None:
    decision = recommend(summary(cell("vllm", FAST)), slo=SLO)
    assert decision.status is Status.CHOICE
    assert decision.p_best is None
    assert decision.reasons == ("vllm fits, but it was not compared: no other was measured.",)
    assert decision.next_measurement is not None
    assert decision.next_measurement.command == (
        "bakeoff run engine=vllm,llamacpp scenario=chat load=users load.users=8 repeats=5"
    )


def test_one_block_is_too_few() -> None:
    decision = recommend(summary(cell("a", [100.0]), cell("b", [50.0])), slo=SLO)
    assert decision.status is Status.REFUSED
    assert decision.refusal == (
        "a and b meet the SLO, but share 1 block; at least 2 are needed to tell a difference "
        "from luck, 5 are usual."
    )
    assert decision.next_measurement is not None
    assert "engine=a,b" in decision.next_measurement.command
    assert "repeats=5" in decision.next_measurement.command


def test_blocks_that_are_not_shared_do_not_count() -> None:
    other = replace(cell("b", SLOW), blocks=(7, 8, 9))
    decision = recommend(summary(cell("a", FAST), other), slo=SLO)
    assert decision.blocks == 0
    assert decision.status is Status.REFUSED


def test_blocks_of_two_sweeps_are_not_the_same_blocks() -> None:
    one = replace(cell("a", FAST), sweeps=("monday",) * 3)
    two = replace(cell("b", SLOW), sweeps=("tuesday",) * 3)
    assert recommend(summary(one, two), slo=SLO).path[-1].test == "blocks"
    same = replace(two, sweeps=("monday",) * 3)
    assert recommend(summary(one, same), slo=SLO).status is Status.CHOICE


def test_doubts_of_the_cited_cells_are_handed_on() -> None:
    doubt = Doubt(code="not_steady", what="drifts", advice="warmup.mode=steady")
    decision = recommend(summary(replace(cell("a", FAST), doubts=(doubt,))), slo=SLO)
    assert decision.doubts == (replace(doubt, where="a, users=8"),)


def test_noise_is_not_a_choice() -> None:
    noisy = summary(cell("a", [100.0, 80.0, 120.0]), cell("b", [90.0, 100.0, 95.0]))
    decision = recommend(noisy, slo=SLO)
    assert decision.status is Status.REFUSED
    assert decision.best is None
    assert decision.path[-1].answer == "open"
    assert decision.next_measurement is not None
    assert "repeats=" in decision.next_measurement.command


def test_a_tie_is_said_and_broken_by_how_it_runs() -> None:
    cells = (cell("a", [100.0, 101.0, 99.0, 100.0]), cell("b", [101.0, 100.0, 100.0, 99.0]))
    runs = [info(f"a-{i}", ready_s=9.0) for i in range(4)]
    runs += [info(f"b-{i}", ready_s=2.0) for i in range(4)]
    decision = recommend(summary(*cells, runs=runs), slo=SLO)
    assert decision.status is Status.TIE
    assert sorted(decision.tied) == ["a", "b"]
    assert decision.best is not None
    assert decision.best.candidate == "b"
    assert "ready in 2.00 s" in decision.reasons[0]
    assert decision.p_within_5 is not None
    assert decision.p_within_5 > 0.9


def priced(engine: str, per_hour: float | None) -> Candidate:
    return candidate(engine, price_per_hour=per_hour, currency="EUR")


def test_cost_is_the_default_where_there_is_a_price() -> None:
    cells = (
        cell("vllm", FAST, what=priced("vllm", 3.6)),
        cell("llamacpp", SLOW, what=priced("llamacpp", 1.8)),
    )
    decision = recommend(summary(*cells), slo=SLO)
    assert decision.question.objective == "cost"
    assert decision.best is not None
    assert decision.best.candidate == "llamacpp"
    assert decision.best.value.value == pytest.approx(1.8 / (3600 * 242 / 3) * 1e6)
    assert decision.best.value.ci_low == pytest.approx(1.8 / (3600 * 84) * 1e6)
    assert decision.best.currency == "EUR"


def test_cost_without_a_price_is_not_made_up() -> None:
    cells = (cell("vllm", FAST), cell("llamacpp", SLOW))
    decision = recommend(summary(*cells), slo=SLO, objective="cost")
    assert decision.question.objective == "throughput"
    assert [doubt.code for doubt in decision.doubts] == ["no_price"]
    assert decision.best is not None
    assert decision.best.currency is None


def test_latency_is_judged_at_the_lowest_load() -> None:
    cells = (
        cell("vllm", SLOW, users=1, e2e_s=2.0),
        cell("vllm", FAST, users=8, e2e_s=2.0),
        cell("llamacpp", SLOW, users=1, e2e_s=1.0),
        cell("tgi", SLOW, users=8, e2e_s=0.5),
    )
    decision = recommend(summary(*cells), slo=SLO, objective="latency")
    assert decision.best is not None
    assert (decision.best.candidate, decision.best.level) == ("llamacpp", "users=1")
    assert decision.best.metric == "e2e_p90_s"
    assert [out.candidate for out in decision.excluded] == ["tgi"]


def test_a_load_may_be_required() -> None:
    cells = (cell("a", FAST, users=4), cell("a", SLOW, users=8), cell("b", FAST, users=4))
    decision = recommend(summary(*cells), slo=SLO, users=8)
    assert decision.best is not None
    assert (decision.best.candidate, decision.best.level) == ("a", "users=8")
    too_much = recommend(summary(*cells), slo=SLO, users=64)
    assert too_much.refusal == (
        "The question cannot be answered: nothing was measured at 64 users or more."
    )


def test_emulated_and_invalid_runs_are_never_evidence() -> None:
    emulated = replace(cell("emu", [900.0] * 3), emulated=True)
    doubt = Doubt(code="client_late", what="late", advice="-", severity=Severity.INVALID)
    late = replace(cell("late", [800.0] * 3), doubts=(doubt,))
    decision = recommend(
        summary(
            emulated,
            late,
            cell("a", FAST),
            cell("b", SLOW),
            runs=[info("bad-1", outcome=Outcome.INVALID)],
        ),
        slo=SLO,
    )
    assert decision.best is not None
    assert decision.best.candidate == "a"
    assert [(out.candidate, out.fact) for out in decision.excluded] == [
        ("emu", "emulated runs are never evidence"),
        ("late", "measured, but not valid"),
        ("bad", "measured, but not valid"),
    ]
    assert {row.candidate for row in decision.evidence} == {"a", "b"}
    only_emulated = recommend(summary(emulated), slo=SLO)
    assert only_emulated.status is Status.REFUSED
    assert "emulated runs are never evidence" in (only_emulated.refusal or "")


def test_a_failed_run_is_an_exclusion_with_its_diagnosis() -> None:
    failed = FailedRun(
        run_id="tgi-0",
        candidate=candidate("tgi"),
        scenario="chat",
        outcome=Outcome.NOT_READY,
        reason="out of memory: lower engine.max_running",
    )
    decision = recommend(summary(cell("a", FAST), failed=[failed]), slo=SLO)
    (out,) = decision.excluded
    assert out.fact == "not_ready: out of memory: lower engine.max_running"
    assert out.run_ids == ("tgi-0",)


def test_an_empty_summary_is_refused() -> None:
    decision = recommend(summary(), slo=SLO)
    assert decision.status is Status.REFUSED
    assert decision.refusal == ("There is no valid measurement to answer from (no run at all).")


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (cell("b", SLOW, where=workload(scenario="code")), "scenario"),
        (cell("b", SLOW, where=workload(output_tokens=512)), "output_tokens"),
        (cell("b", SLOW, what=candidate("b", model="other")), "model"),
        (cell("b", SLOW, what=candidate("b", hardware="H200")), "hardware"),
    ],
)
def test_several_questions_are_refused_with_the_choices(other: Cell, key: str) -> None:
    decision = recommend(summary(cell("a", FAST), other), slo=SLO)
    assert decision.status is Status.REFUSED
    assert decision.path[-1].test == "one_question"
    assert key in (decision.refusal or "")


def test_a_length_class_may_be_named() -> None:
    cells = (cell("a", FAST), cell("b", SLOW, where=workload(output_tokens=512)))
    decision = recommend(summary(*cells), slo=SLO, output_tokens=512)
    assert decision.best is not None
    assert decision.best.candidate == "b"
    wrong = recommend(summary(*cells), slo=SLO, output_tokens=99)
    assert "output_tokens=99" in (wrong.refusal or "")
    assert "16-24, 16-512" in (wrong.refusal or "")


def test_an_unknown_scenario_names_the_measured_ones() -> None:
    decision = recommend(summary(cell("a", FAST)), slo=SLO, scenario="rag")
    assert "scenario=rag" in (decision.refusal or "")
    assert "chat" in (decision.refusal or "")


def test_an_unknown_objective_is_an_error() -> None:
    with pytest.raises(ConfigError, match="objective=speed"):
        recommend(summary(), slo=SLO, objective="speed")


def test_unlike_runs_are_not_ranked() -> None:
    verdict = Verdict(
        kind=VerdictKind.NOT_COMPARABLE,
        metric="good_tokens_per_s",
        a="key-a",
        b="key-b",
        workload=workload().key,
        reason="prefix cache: true against false",
    )
    decision = recommend(summary(cell("a", FAST), cell("b", SLOW), verdicts=[verdict]), slo=SLO)
    assert decision.status is Status.REFUSED
    assert "prefix cache" in (decision.refusal or "")


def test_without_limits_the_load_with_the_most_tokens_is_taken() -> None:
    cells = (cell("a", FAST, users=4), cell("a", SLOW, users=8), cell("b", SLOW, users=4))
    decision = recommend(summary(*cells), slo=SloConf())
    assert decision.best is not None
    assert (decision.best.candidate, decision.best.level) == ("a", "users=4")
    assert not any(flip.variable.startswith("slo.") for flip in decision.flips)


def test_old_evidence_is_doubted() -> None:
    decision = recommend(summary(cell("a", FAST)), slo=SLO, today=date(2027, 11, 30))
    assert [doubt.code for doubt in decision.doubts] == ["old_evidence"]
    fresh = recommend(summary(cell("a", FAST)), slo=SLO, today=date(2026, 12, 1))
    assert fresh.doubts == ()


def test_rules_stand_beside_the_measurement() -> None:
    cells = (cell("vllm_cpu", FAST), cell("llamacpp", SLOW))
    runs = [info(f"{engine}-{i}") for engine in ("vllm_cpu", "llamacpp") for i in range(3)]
    decision = recommend(summary(*cells, runs=runs), slo=SLO)
    assert "A17" in {note.rule for note in decision.rules_agree}
    overridden = {note.rule: note.why for note in decision.rules_overridden}
    assert overridden["B11"] == "llamacpp was measured here and is not the best"


def test_a_decision_survives_json() -> None:
    decision = recommend(summary(cell("a", FAST), cell("b", SLOW)), slo=SLO)
    text = msgspec.json.encode(decision)
    assert msgspec.json.decode(text, type=Decision) == decision


def without_run(whole: Summary, run_id: str) -> Summary:
    """The summary as it would be had this run never been made."""
    cells = []
    for one in whole.cells:
        if run_id not in one.run_ids:
            cells.append(one)
            continue
        keep = [i for i, run in enumerate(one.run_ids) if run != run_id]
        if keep:
            figures = [one.per_run["good_tokens_per_s"][i] for i in keep]
            hits = [round((one.per_run["attainment_ratio"][i] or 0) * PER_BLOCK) for i in keep]
            assert None not in figures
            rebuilt = cell(
                one.candidate.engine,
                [figure for figure in figures if figure is not None],
                good=hits,
                where=one.workload,
            )
            cells.append(
                replace(
                    rebuilt,
                    run_ids=tuple(one.run_ids[i] for i in keep),
                    blocks=tuple(one.blocks[i] for i in keep),
                )
            )
    return replace(whole, cells=tuple(cells))


def certainty(decision: Decision) -> object:
    """Answer and certainty, without the names of the runs."""
    rows = [
        (row.candidate, row.level, row.fit, row.n, row.attainment.ci_low)
        for row in decision.evidence
        if row.cited
    ]
    best = decision.best
    return decision.status, best, decision.p_best, decision.runner_up, rows


HITS = st.lists(st.integers(30, 40), min_size=3, max_size=3)
RATES = st.lists(st.floats(50, 150), min_size=3, max_size=3)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rates=st.tuples(RATES, RATES, RATES), hits=st.tuples(HITS, HITS, HITS))
def test_every_cited_run_carries_the_answer(
    rates: tuple[list[float], ...], hits: tuple[list[int], ...]
) -> None:
    cells = [cell("a", rates[0], good=hits[0], users=4), cell("b", rates[1], good=hits[1], users=4)]
    cells.append(cell("a", rates[2], good=hits[2], users=8))
    whole = summary(*cells)
    decision = recommend(whole, slo=SLO)
    cited = {run for row in decision.evidence if row.cited for run in row.run_ids}
    assert cited
    for run_id in cited:
        assert certainty(recommend(without_run(whole, run_id), slo=SLO)) != certainty(decision)


@given(order=st.permutations(range(4)))
def test_the_order_of_the_cells_does_not_matter(order: list[int]) -> None:
    cells = [cell("a", FAST), cell("b", SLOW), cell("c", [70.0] * 3), cell("a", FAST, users=4)]
    shuffled = summary(*(cells[i] for i in order))
    assert recommend(shuffled, slo=SLO) == recommend(summary(*cells), slo=SLO)


def rendered(*things: object) -> str:
    console = Console(width=100, record=True, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        for thing in things:
            console.print(thing)
    return capture.get()


def test_the_verdict_comes_first_in_three_sentences() -> None:
    decision = recommend(summary(cell("llamacpp", SLOW), cell("vllm", FAST)), slo=SLO)
    lines = decision_lines(decision)
    assert len(lines) == 3
    assert lines[0] == (
        "Run vllm for chat at users=8: 101 tokens/s [98.0 tokens/s, 104 tokens/s]; keeps "
        "TTFT <= 5.00 s, TPOT <= 150 ms for 90.0 % of requests."
    )
    assert lines[1].startswith("vllm is highest in throughput with P ")
    assert lines[2].startswith("Second is llamacpp at users=8: 80.7 tokens/s")
    assert lines[2].endswith("19.9 % less.")


def test_a_refusal_says_what_to_do() -> None:
    decision = recommend(summary(cell("a", [100.0]), cell("b", [50.0])), slo=SLO)
    lines = decision_lines(decision)
    assert lines[0] == decision.refusal
    assert lines[1].startswith("Measure next: bakeoff run engine=a,b")


def test_table_and_tree_fit_a_hundred_columns() -> None:
    long = candidate("vllm", label="vllm max_running=256 prefix_cache=false [x] threads=16")
    cells = (cell("vllm", FAST, what=long), cell("llamacpp", SLOW), cell("c", FAST, good=[1, 2, 3]))
    decision = recommend(summary(*cells), slo=SLO)
    table = rendered(evidence_table(decision))
    tree = rendered(path_tree(decision))
    assert max(len(line) for line in (table + tree).splitlines()) <= 100
    assert "[x]" in table.replace("\n", "")
    assert "2026-11-30" in table
    for step in decision.path:
        assert step.test in tree
    assert "not taken: tie, open" in tree.replace("\n", " ")
