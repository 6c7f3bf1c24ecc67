"""The page that `bakeoff report` writes: every number on it is found again in the Parquet files."""

from html.parser import HTMLParser
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.analysis.cells import summarise
from harness.cli.slo import load_slo
from harness.store import open_runs
from harness.units import number

pytestmark = pytest.mark.timeout(300)  # runs wait for one another on a machine


class Numbers(HTMLParser):
    """The attributes of every tag that carries a figure, and the text in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self._is_open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "data-value" in values:
            self.found.append({**values, "text": ""})
            self._is_open = True

    def handle_data(self, data: str) -> None:
        if self._is_open and data.strip():
            self.found[-1]["text"] = data.strip()
            self._is_open = False


@pytest.fixture(scope="module")
def numbers(sweep: Any) -> list[dict[str, str]]:
    ended = sweep.bakeoff("report", "store/base", "--slo", "chat", "--out", "truth/page.html")
    assert ended.code == 0, ended.err
    assert "report: truth/page.html" in ended.out
    page = (sweep.bakeoff.cwd / "truth" / "page.html").read_text(encoding="utf-8")
    assert "3.60 EUR an hour" in page
    return Numbers(page).found


def test_every_number_is_computed_again_from_the_store(
    numbers: list[dict[str, str]], sweep: Any
) -> None:
    again = summarise(open_runs(sweep.folder).runs, slo=load_slo("chat"))
    cells = {f"{c.candidate.key}|{c.workload.key}": c for c in again.cells}
    ratios = {(f"{v.a}|{v.b}|{v.workload}", v.metric): v.ratio for v in again.verdicts}
    for shown in numbers:
        if "data-pair" in shown:
            expected: float | None = ratios[shown["data-pair"], shown["data-metric"]]
        elif shown["data-metric"] == "n":
            expected = cells[shown["data-cell"]].n
        else:
            estimate = cells[shown["data-cell"]].metrics[shown["data-metric"]]
            expected = estimate.value
            if "data-low" in shown:
                ends = repr(estimate.ci_low), repr(estimate.ci_high)
                assert (shown["data-low"], shown["data-high"]) == ends
        assert shown["data-value"] == repr(expected), shown
    assert len(numbers) > 60
    assert {shown["data-cell"] for shown in numbers if "data-cell" in shown} == set(cells)
    assert any("data-pair" in shown for shown in numbers)
    assert any(shown["data-metric"] == "cost_per_mtok" for shown in numbers)


def rows_of(folder: Path, slots: int) -> list[dict[str, Any]]:
    """Measured requests of the closed level of one setting, both blocks, by pyarrow alone."""
    runs = [r for r in open_runs(folder).runs if r.info.config["engine"]["max_running"] == slots]
    tables = [pq.read_table(run.folder / "requests.parquet").to_pylist() for run in runs]
    return [r for rows in tables for r in rows if (r["level"], r["phase"]) == (0, "measure")]


@pytest.mark.parametrize("slots", [1, 4])
def test_numbers_counted_by_hand_from_the_parquet(
    slots: int, numbers: list[dict[str, str]], sweep: Any
) -> None:
    rows = rows_of(sweep.folder, slots)
    assert len(rows) == 64
    ttft_s = sorted(row["chunk_s"][0] - row["due_s"] for row in rows)
    tpot_s = sorted((row["chunk_s"][-1] - row["chunk_s"][0]) / 7 for row in rows)
    hand = {"n": 64, "error_ratio": 0.0, "ttft_p50_s": ttft_s[31], "tpot_p50_s": tpot_s[31]}
    hand["ttft_p90_s"] = ttft_s[ceil(64 * 0.9) - 1]
    summary = summarise(open_runs(sweep.folder).runs, slo=load_slo("chat"))
    (cell,) = [
        f"{c.candidate.key}|{c.workload.key}"
        for c in summary.cells
        if c.workload.users == 4 and f"max_running={slots}" in c.candidate.label
    ]
    shown = {n["data-metric"]: n for n in numbers if n.get("data-cell") == cell}
    assert shown.keys() >= {"n", "error_ratio", "ttft_p50_s", "tpot_p50_s"}
    for metric in hand.keys() & shown.keys():  # a queue's P90 may need more samples than these
        assert float(shown[metric]["data-value"]) == pytest.approx(hand[metric]), metric
    assert shown["ttft_p50_s"]["text"] == number(hand["ttft_p50_s"] * 1e3)
