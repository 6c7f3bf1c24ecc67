"""The three sentences and the terminal's table, on hand-made summaries."""

import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from harness.analysis.model import Candidate, Cell, FailedRun, Summary, Workload
from harness.config import SloConf
from harness.report.answer import keeps_slo
from harness.report.doubts import doubt_groups
from harness.report.text import comparison_table, verdict_lines
from harness.report.winners import decided, leaders
from harness.types import Doubt, Estimate, Outcome, Severity, Verdict, VerdictKind

A = Candidate(key="a", engine="vllm", label="vllm", model="m", hardware="h")
B = Candidate(key="b", engine="tgi", label="tgi", model="m", hardware="h")
SLO = SloConf(name="chat", ttft_s=0.2, attainment_ratio=0.9)


def load(users: int) -> Workload:
    return Workload(
        key=f"w{users}",
        scenario="chat",
        level=f"users={users}",
        closed=True,
        input_tokens=(32, 32),
        output_tokens=(24, 24),
        users=users,
    )


def cell(candidate: Candidate, users: int, **metrics: Estimate) -> Cell:
    return Cell(
        candidate=candidate,
        workload=load(users),
        run_ids=("r1", "r2"),
        blocks=(0, 1),
        n=50,
        n_ok=50,
        n_failed=0,
        n_censored=0,
        metrics=metrics,
        per_run={},
    )


def verdict(
    kind: VerdictKind,
    users: int,
    metric: str = "ttft_p50_s",
    *,
    ratio: float = 0.8,
    ci_low: float = 0.7,
    ci_high: float = 0.9,
) -> Verdict:
    return Verdict(
        kind=kind,
        metric=metric,
        a="a",
        b="b",
        workload=f"w{users}",
        ratio=ratio,
        ci_low=ci_low,
        ci_high=ci_high,
        blocks=4,
    )


def summary(*verdicts: Verdict, doubts: tuple[Doubt, ...] = ()) -> Summary:
    cells = tuple(cell(c, users) for users in (1, 8) for c in (A, B))
    return Summary(title="t", cells=cells, verdicts=verdicts, failed=(), doubts=doubts, runs={})


def test_the_winner_its_lead_and_the_other_loads_it_wins_at_are_named() -> None:
    lines = verdict_lines(summary(verdict(VerdictKind.BETTER, 1), verdict(VerdictKind.BETTER, 8)))
    assert lines[0] == (
        "vllm is better at chat, users=8: TTFT P50 20 % lower (95 % interval 10 % to 30 %), "
        "against tgi; likewise at chat, users=1."
    )
    assert lines[1] == "All 2 comparisons are decided."
    assert lines[2] == "Nothing speaks against these figures (0 runs, 200 measured requests)."


def test_worse_is_told_as_the_others_win_and_large_factors_as_times() -> None:
    rate = verdict(VerdictKind.WORSE, 8, "output_tokens_per_s", ratio=0.25, ci_low=0.2, ci_high=0.4)
    (win,) = decided([rate])
    assert (win.winner, win.loser) == ("b", "a")
    assert win.text() == "output tokens/s 4 times as high (95 % interval 2.5 to 5)"
    assert verdict_lines(summary(rate))[0].startswith("tgi is better at chat, users=8")


def test_a_much_lower_latency_is_told_as_times_lower() -> None:
    (win,) = decided([verdict(VerdictKind.BETTER, 8, ratio=0.05, ci_low=0.04, ci_high=0.1)])
    assert win.text() == "TTFT P50 20 times lower (95 % interval 10 to 25)"


def test_a_load_where_each_wins_something_is_a_trade() -> None:
    both = summary(
        verdict(VerdictKind.BETTER, 8),
        verdict(VerdictKind.WORSE, 8, "tpot_p50_s", ratio=1.25, ci_low=1.2, ci_high=1.3),
    )
    assert leaders(both) == {"w8": None}
    assert verdict_lines(both)[0] == (
        "At chat, users=8 it is a trade: vllm has TTFT P50 20 % lower (95 % interval 10 % to "
        "30 %), tgi has TPOT P50 20 % lower (17 % to 23 %)."
    )


def test_what_is_open_says_what_it_needs() -> None:
    open_one = replace(verdict(VerdictKind.INCONCLUSIVE, 8), runs_needed=9)
    lines = verdict_lines(summary(open_one, verdict(VerdictKind.EQUIVALENT, 1)))
    assert lines[0] == "No winner: of 2 comparisons 1 are equivalent and none shows a difference."
    assert lines[1] == (
        "1 of 2 comparisons are inconclusive (TTFT P50 at chat, users=8); the nearest to an "
        "answer, TTFT P50 at chat, users=8, takes about 9 blocks instead of 4: repeats=9. 1 of 2 "
        "comparisons are equivalent within the margin."
    )


def test_where_no_number_of_blocks_is_known_the_reason_is_told() -> None:
    reason = "one block in common: an interval needs repeats=4 or more"
    lines = verdict_lines(summary(replace(verdict(VerdictKind.INCONCLUSIVE, 8), reason=reason)))
    assert lines[1] == f"1 of 1 comparisons are inconclusive (TTFT P50 at chat, users=8): {reason}."


def test_equal_candidates_are_called_equal() -> None:
    lines = verdict_lines(summary(verdict(VerdictKind.EQUIVALENT, 1)))
    assert lines[0] == "No difference that matters: all 1 comparisons are equivalent."


def test_a_refused_comparison_gives_its_reason_and_no_winner() -> None:
    refused = replace(verdict(VerdictKind.NOT_COMPARABLE, 1), reason="model: x against y")
    assert verdict_lines(summary(refused))[0] == "Nothing may be compared: model: x against y."


def test_the_slo_is_judged_on_the_interval_not_on_the_value() -> None:
    sure = cell(A, 1, attainment_ratio=Estimate(value=0.99, ci_low=0.95, ci_high=1.0))
    unsure = cell(A, 8, attainment_ratio=Estimate(value=0.95, ci_low=0.85, ci_high=0.99))
    missed = cell(B, 1, attainment_ratio=Estimate(value=0.5, ci_low=0.4, ci_high=0.6))
    assert [keeps_slo(c, SLO) for c in (sure, unsure, missed, cell(B, 8))] == [
        True,
        None,
        False,
        None,
    ]
    judged = replace(summary(), cells=(sure, missed, unsure))
    assert verdict_lines(judged, SLO)[0].endswith(
        "The SLO chat is met for 90 % of requests by vllm up to users=1, by tgi at no level for "
        "certain."
    )


def test_a_single_candidate_is_told_without_comparing() -> None:
    only = cell(A, 8, output_tokens_per_s=Estimate(value=250.0), ttft_p50_s=Estimate(value=0.05))
    lines = verdict_lines(replace(summary(), cells=(only,)))
    assert lines[0] == (
        "Only vllm gave figures, so nothing is compared; at chat, users=8 it gives 250 output "
        "tokens/s with a median TTFT of 50.0 ms."
    )
    assert lines[1].startswith("No comparison was made")


def test_no_cell_at_all_is_said_and_not_hidden() -> None:
    failed = FailedRun(
        run_id="r", candidate=A, scenario="chat", outcome=Outcome.DIED, reason="out of memory"
    )
    lines = verdict_lines(
        Summary(title="", cells=(), verdicts=(), failed=(failed,), doubts=(), runs={})
    )
    assert lines[0] == "No run gave figures: 1 failed; the reasons stand below."
    assert "out of memory" in lines[2]


def test_the_weightiest_doubt_is_told_with_its_advice() -> None:
    note = Doubt(code="n", what="small thing", advice="look", severity=Severity.NOTE)
    warn = Doubt(code="w", what="host is noisy", advice="close programs", severity=Severity.WARN)
    bad = Doubt(code="i", what="client was late", advice="add workers", severity=Severity.INVALID)
    told = summary(doubts=(note, warn, bad, warn))
    assert [g.code for g in doubt_groups(told)] == ["i", "w", "n"]
    assert verdict_lines(told)[2] == (
        "What limits trust (0 runs, 200 measured requests): client was late: add workers (and 1 "
        "more kinds of doubt)."
    )


def test_emulated_figures_are_never_told_as_evidence() -> None:
    emulated = replace(summary(), cells=tuple(replace(c, emulated=True) for c in summary().cells))
    assert "no evidence about real ones" in verdict_lines(emulated)[2]


def test_the_table_fits_a_hundred_columns_and_carries_intervals() -> None:
    figures = {
        "ttft_p50_s": Estimate(value=0.1234, ci_low=0.12, ci_high=0.13, n=50),
        "ttft_p90_s": Estimate(value=None, n=50, needed=80),
        "output_tokens_per_s": Estimate(value=12345.6, ci_low=12000.0, ci_high=13000.0, n=4),
        "error_ratio": Estimate(value=0.0, n=50),
    }
    cells = tuple(cell(c, users, **figures) for users in (1, 8) for c in (A, B))
    console = Console(width=100)
    with console.capture() as capture:
        console.print(comparison_table(replace(summary(), cells=cells)))
    lines = capture.get().splitlines()
    text = "\n".join(lines)
    assert max(len(line) for line in lines) <= 100
    assert text.count("123") >= 4
    assert "120–130" in text
    assert "12,346" in text
    assert text.count("chat, users=8") == 1


@pytest.mark.parametrize("heavy", ["pandas", "matplotlib", "jinja2", "scipy", "numpy", "pyarrow"])
def test_the_words_need_nothing_heavy(heavy: str) -> None:
    code = f"import sys, harness.report.text; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_lone_candidate_whose_requests_all_failed_has_no_figures() -> None:
    failed = replace(summary().cells[0], metrics={}, n=3, n_ok=0, n_failed=3)
    line = verdict_lines(replace(summary(), cells=(failed,), verdicts=()))[0]
    assert line.startswith(f"{failed.candidate.label} gave no figures at {failed.workload.label}")
    assert line.endswith("3 of 3 requests failed.")
