"""The page that `bakeoff report` writes: every number on it is found again in the Parquet files."""

import json
import re
from html.parser import HTMLParser
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from harness.analysis.candidates import candidate_of
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
def page(sweep: Any) -> str:
    ended = sweep.bakeoff("report", "store/base", "--slo", "chat", "--out", "truth/page.html")
    assert ended.code == 0, ended.err
    assert "report: truth/page.html" in ended.out
    text = (sweep.bakeoff.cwd / "truth" / "page.html").read_text(encoding="utf-8")
    assert "3.60 EUR an hour" in text
    return str(text)


@pytest.fixture(scope="module")
def numbers(page: str) -> list[dict[str, str]]:
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


def exact(page: str, kind: str) -> dict[tuple[str, str], str]:
    """The stored value of every cell of an Engines table, by its candidate and column."""
    found = re.findall(
        rf'data-{kind}="([^"]*)" data-candidate="([^"]*)" data-exact="([^"]*)"', page
    )
    return {(candidate, name): value for name, candidate, value in found}


def test_how_the_engines_started_is_found_in_each_run_json(page: str, sweep: Any) -> None:
    stored: dict[str, list[dict[str, Any]]] = {}
    for run in open_runs(sweep.folder).runs:
        said = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
        stored.setdefault(candidate_of(run.info).key, []).append(said)
    shown = exact(page, "start")
    assert {key for key, _ in shown} == stored.keys()
    places = {"load_s": "log", "compile_s": "log", "time_to_ready_s": ""}
    for (key, name), value in shown.items():
        place = places.get(name, "start")
        found = [(run[place] if place else run).get(name) for run in stored[key]]
        known = sorted(one for one in found if one is not None)
        assert value == (repr(known[(len(known) - 1) // 2]) if known else ""), (key, name)
    for name in ("up_s", "first_answer_s", "time_to_ready_s"):
        assert all(shown[key, name] for key in stored)


def test_memory_is_computed_again_from_the_store(page: str, sweep: Any) -> None:
    again = summarise(open_runs(sweep.folder).runs, slo=load_slo("chat")).memory
    shown = exact(page, "memory")
    for one in again:
        peaks = [
            row["engine_rss_bytes"] or 0
            for run in open_runs(sweep.folder).runs
            if run.info.run_id in one.run_ids
            for row in pq.read_table(run.folder / "host.parquet").to_pylist()
        ]
        assert shown[one.candidate.key, "Peak, processes"] == str(max(peaks))
        amounts = {"Weights": one.weights.value_bytes, "KV pool": one.kv_pool.value_bytes}
        for name, value in {**amounts, "KV capacity": one.kv_capacity_tokens}.items():
            assert shown[one.candidate.key, name] == ("" if value is None else str(value))
    assert {key for key, _ in shown} == {one.candidate.key for one in again}
    assert len(again) == 2
