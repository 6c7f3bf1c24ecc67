"""What a search and its fresh runs say together."""

import re
from io import StringIO

from rich.console import Console

from harness.analysis.candidates import candidate_of, label_apart
from harness.analysis.found_rates import found_rates
from harness.analysis.model import FoundRate, Summary
from harness.report.found import found_lines, found_tables
from harness.report.page import render
from harness.report.text import found_table, verdict_lines
from harness.testing.records import make_info
from harness.types import Probe, ProbeEnd, RunInfo, SearchResult


def probe(rate_rps: float, *, good: int, n: int = 100) -> Probe:
    passed = good >= 95
    return Probe(
        rate_rps=rate_rps, level=0, has_passed=passed, end=ProbeEnd.DECIDED, n=n, good=good
    )


def run(name: str, *probes: Probe, confirms: str | None = None) -> RunInfo:
    search = SearchResult(
        slo="chat",
        attainment_ratio=0.95,
        low_ratio=0.9,
        error_ratio=0.05,
        probes=probes,
        confirms=confirms,
    )
    return make_info("a", run_id=name, search=search)


def found(*infos: RunInfo) -> FoundRate:
    (one,) = found_rates(infos, label_apart([candidate_of(info) for info in infos]))
    return one


SEARCH = run(
    "s", probe(1.0, good=99), probe(4.0, good=10), probe(2.0, good=97), probe(2.5, good=80)
)


def again(number: int, low: int, high: int | None) -> RunInfo:
    probes = [probe(2.0, good=low)] + ([] if high is None else [probe(2.5, good=high)])
    return run(f"c{number}", *probes, confirms="s")


def test_a_search_alone_is_not_confirmed() -> None:
    one = found(SEARCH)
    assert (one.low_rps, one.high_rps, one.fresh_runs) == (2.0, 2.5, 0)
    assert (one.is_confirmed, one.is_noisy) == (False, False)
    assert [rate.attainment_ratio for rate in one.tried] == [0.99, 0.97, 0.8, 0.1]


def test_fresh_runs_that_agree_confirm_both_ends() -> None:
    one = found(SEARCH, *(again(k, 98, 70) for k in (1, 2, 3)))
    assert (one.low_rps, one.high_rps) == (2.0, 2.5)
    assert (one.low_confirmed, one.high_confirmed, one.fresh_runs) == (3, 3, 3)
    assert one.is_confirmed
    assert one.run_ids == ("s", "c1", "c2", "c3")


def test_a_fresh_run_that_fails_at_the_pass_widens_the_interval_downwards() -> None:
    one = found(SEARCH, again(1, 98, 70), again(2, 60, None))
    assert (one.low_rps, one.low_confirmed) == (1.0, 0)
    assert (one.high_rps, one.is_noisy, one.is_confirmed) == (2.5, True, False)


def test_a_fresh_run_that_passes_at_the_fail_leaves_the_upper_end_higher() -> None:
    one = found(SEARCH, again(1, 98, 70), again(2, 98, 97))
    assert (one.low_rps, one.low_confirmed) == (2.0, 2)
    assert (one.high_rps, one.high_confirmed, one.is_noisy) == (4.0, 0, True)


def test_nothing_passed() -> None:
    one = found(run("s", probe(1.0, good=10), probe(0.5, good=20)))
    assert (one.low_rps, one.high_rps) == (None, 0.5)


def test_runs_without_a_search_give_nothing() -> None:
    info = make_info("a")
    assert found_rates([info], label_apart([candidate_of(info)])) == ()


def summary(*infos: RunInfo) -> Summary:
    labelled = label_apart([candidate_of(info) for info in infos])
    return Summary(
        title="t",
        cells=(),
        verdicts=(),
        failed=(),
        doubts=(),
        runs={info.run_id: info for info in infos},
        found=found_rates(infos, labelled),
    )


def test_the_answer_is_a_sentence_with_who_confirms_it() -> None:
    confirmed = summary(SEARCH, *(again(k, 98, 70) for k in (1, 2, 3)))
    (said,) = found_lines(confirmed)
    assert said == (
        "a at chat keeps 95.0 % of its requests within chat up to between 2 requests/s and "
        "2.5 requests/s (confirmed by all 3 fresh runs)."
    )
    assert verdict_lines(confirmed)[0] == said
    assert "7 runs" not in verdict_lines(confirmed)[2]
    assert "4 runs, 1,000 measured requests" in verdict_lines(confirmed)[2]
    (alone,) = found_lines(summary(run("s", probe(1.0, good=10))))
    assert alone == (
        "a at chat: no rate keeps 95.0 % of its requests within chat, not even 1 requests/s (one "
        "server start, not confirmed by fresh runs)."
    )


def test_runs_that_do_not_agree_limit_trust() -> None:
    noisy = summary(SEARCH, again(1, 98, 70), again(2, 98, 97))
    assert "1 of 1 searches met rates on which its runs do not agree" in verdict_lines(noisy)[2]


def test_the_page_of_a_search_alone_has_no_empty_rooms() -> None:
    page = render(summary(SEARCH, again(1, 98, 70)), [])
    linked = set(re.findall(r'<a href="#(\w+)"', page))
    assert linked == {"verdict", "found", "engines", "doubts", "settings", "definitions"}
    assert linked <= set(re.findall(r'<section id="(\w+)"', page))
    assert "Candidates <b>1</b>" in page
    assert "Requests <b>600</b>" in page
    for empty in ("timeline", "client", "cost", "comparable"):
        assert f'id="{empty}"' not in page


def test_every_rate_stands_in_the_table() -> None:
    (table,) = found_tables(summary(SEARCH, again(1, 98, 70)))
    assert [(row.exact, row.outcome, row.attainment, row.n) for row in table.rows] == [
        ("1.0", "passes", "99.0 %", "100"),
        ("2.0", "passes in 2 of 2 runs", "97.5 %", "200"),
        ("2.5", "passes in 0 of 2 runs", "75.0 %", "200"),
        ("4.0", "fails", "10.0 %", "100"),
    ]
    console = Console(width=80, file=StringIO())
    console.print(found_table(summary(SEARCH, again(1, 98, 70))))
    printed = console.file.getvalue()
    assert "passes in 2 of 2 runs" in printed
    assert max(map(len, printed.splitlines())) <= 80
