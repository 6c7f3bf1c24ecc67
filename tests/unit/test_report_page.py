"""The page: offline, true to the Parquet, complete, and readable without anything else."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.analysis.cells import summarise
from harness.analysis.model import Summary
from harness.config import SloConf
from harness.errors import StoreWriteError
from harness.recommend.model import Decision, NextMeasurement, Pick, Question, Status
from harness.report.columns import column_of
from harness.report.samples import curve
from harness.report.write import write_report
from harness.store import StoredRun, finish_run, new_run_folder, open_runs, read_run, write_tables
from harness.types import (
    Clock,
    EngineIdentity,
    EngineSample,
    ErrorClass,
    Estimate,
    HostSample,
    Level,
    Outcome,
    Phase,
    Provenance,
    Record,
    RunInfo,
    StartTimes,
    TokensSource,
)
from harness.units import number

ENGINES = {"llamacpp": (0.060, 0.011, 4), "vllm": (0.045, 0.012, 24)}  # TTFT, step, slots
LEVELS = ((1, 12), (4, 30), (16, 48))  # users, requests
BLOCKS = 4
TOKENS = 24
PRICE = {"currency": "EUR", "date": "2026-11-30", "source": "invoice"}
SLO = SloConf(name="chat", ttft_s=0.35, tpot_s=0.05, attainment_ratio=0.9)


class Maker:
    """Writes runs of a made-up engine: TTFT grows when users exceed its slots."""

    def __init__(self, sweep: Path, *, price_per_hour: float | None = None) -> None:
        self._sweep = sweep
        self._price = price_per_hour

    def run(self, engine: str, block: int, *, outcome: Outcome = Outcome.OK) -> StoredRun:
        rng = np.random.default_rng([len(engine), block])
        speed = rng.normal(1.0, 0.02)
        records: list[Record] = []
        samples: list[EngineSample] = []
        levels: list[Level] = []
        start = 1.0
        for index, (users, requests) in enumerate(LEVELS if outcome is Outcome.OK else ()):
            rows, end = _level(rng, engine, block, index, users, requests, start, speed)
            records += rows
            samples += _samples(engine, users, start, end)
            levels.append(
                Level(
                    index=index,
                    name=f"users={users}",
                    shape="users",
                    users=users,
                    window_start_s=start,
                    window_end_s=end,
                    drained_s=end,
                    planned=requests,
                )
            )
            start = end + 0.5
        run_id = f"{engine}-b{block}" if outcome is Outcome.OK else f"{engine}-{outcome.value}"
        folder = new_run_folder(self._sweep, run_id)
        host = [
            HostSample(t_s=s.t_s, cpu_total_ratio=0.7, engine_rss_bytes=1 << 30) for s in samples
        ]
        write_tables(folder, records=records, engine=samples, host=host)
        info = _info(run_id, engine, block, tuple(levels), outcome, self._price)
        return read_run(finish_run(folder, info))


def _level(
    rng: np.random.Generator,
    engine: str,
    block: int,
    level: int,
    users: int,
    requests: int,
    start: float,
    speed: float,
) -> tuple[list[Record], float]:
    ttft, step, slots = ENGINES[engine]
    busy = min(users, slots)
    step *= (1 + 0.04 * busy) * speed
    free_at = [start] * users
    rows: list[Record] = []
    for i in range(requests):
        user = int(np.argmin(free_at))
        due = free_at[user]
        queue = max(0.0, users / slots - 1) * TOKENS * step
        first = due + 1e-4 + (ttft * speed + queue) * float(rng.lognormal(0, 0.25))
        gaps = step * rng.lognormal(0, 0.15, TOKENS - 1)
        chunks = (first, *(first + np.cumsum(gaps)).tolist())
        is_failed = engine == "llamacpp" and users == 16 and i == 7 and block == 2
        is_cut = engine == "llamacpp" and users == 16 and i == requests - 1 and block == 3
        free_at[user] = chunks[-1]
        rows.append(
            Record(
                request_id=f"{level}-{i}",
                index=i,
                level=level,
                block=block,
                phase=Phase.WARMUP if i < min(2, users) else Phase.MEASURE,
                due_s=due,
                connect_s=None,
                sent_s=due + 1e-4,
                chunk_s=() if is_failed or is_cut else chunks,
                chunk_tokens=() if is_failed or is_cut else (1,) * TOKENS,
                stream_end_s=None if is_failed or is_cut else chunks[-1] + 1e-4,
                prompt_tokens=None if is_failed else 32,
                output_tokens=None if is_failed or is_cut else TOKENS,
                tokens_source=None if is_failed or is_cut else TokensSource.USAGE,
                planned_input_tokens=32,
                planned_output_tokens=TOKENS,
                clock=Clock.KERNEL,
                error=ErrorClass.HTTP_5XX if is_failed else None,
                http_status=500 if is_failed else 200,
                censored_s=5.0 if is_cut else None,
                user=user,
            )
        )
    return rows, max(free_at)


def _samples(engine: str, users: int, start: float, end: float) -> list[EngineSample]:
    slots = ENGINES[engine][2]
    has_kv = engine == "vllm"
    return [
        EngineSample(
            t_s=float(t),
            running=float(min(users, slots)),
            waiting=float(max(0, users - slots)),
            kv_usage_ratio=min(1.0, users * 0.03) * float(0.5 + (t % 1) / 2) if has_kv else None,
            kv_provenance=Provenance.MEASURED if has_kv else Provenance.NOT_EXPOSED,
        )
        for t in np.arange(start, end, 0.1)
    ]


def _info(
    run_id: str,
    engine: str,
    block: int,
    levels: tuple[Level, ...],
    outcome: Outcome,
    price: float | None,
) -> RunInfo:
    return RunInfo(
        schema_version=1,
        run_id=run_id,
        engine=engine,
        model="smollm2-135m",
        emulated=False,
        outcome=outcome,
        started_at=f"2026-11-{20 + block:02d}T10:00:00Z",
        config=_config(engine, block, price),
        facts={
            "machine": {"cpu_model": "Xeon", "cpu_cores": 2, "gpus": []},
            "model": {"sha256": "ab" * 32},
        },
        plan_hash="cd" * 32,
        content_hash=f"{engine}{block}",
        block=block,
        levels=levels,
        identity=EngineIdentity(version="1.2.3"),
        time_to_ready_s=2.5 + block,
        start=StartTimes(up_s=2.0 + block, first_answer_s=0.5),
        diagnosis=None if outcome is Outcome.OK else "out of memory while loading the model",
        ended_at=f"2026-11-{20 + block:02d}T10:05:00Z",
    )


def _config(engine: str, block: int, price: float | None) -> dict[str, Any]:
    return {
        "engine": {
            "name": engine,
            "route": "completions",
            "max_running": ENGINES.get(engine, (0, 0, 8))[2],
            "env": {"HF_TOKEN": "hf_do_not_show"},
        },
        "model": {"name": "smollm2-135m"},
        "scenario": {"name": "chat", "input_tokens": 32, "output_tokens": TOKENS},
        "load": {"shape": "levels", "levels": [{"shape": "users", "users": u} for u, _ in LEVELS]},
        "hardware": {"name": "auto", "price": PRICE | {"per_hour": price}},
        "block": block,
    }


@dataclass(frozen=True)
class World:
    store: Path
    runs: Sequence[StoredRun]
    summary: Summary
    page: str


def make_world(store: Path, *, price_per_hour: float | None = None) -> World:
    maker = Maker(store, price_per_hour=price_per_hour)
    runs = [maker.run(engine, block) for block in range(BLOCKS) for engine in ENGINES]
    runs.append(maker.run("tgi", 0, outcome=Outcome.FAILED))
    summary = summarise(runs, slo=SLO)
    path = write_report(summary, runs, store / "page.html", slo=SLO)
    return World(store=store, runs=runs, summary=summary, page=path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("sweep"))


class Reader(HTMLParser):
    """Collects every tag with its attributes and the text right after it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def numbers(self) -> list[dict[str, str]]:
        return [
            {name: value or "" for name, value in attrs.items()}
            for _, attrs in self.tags
            if "data-value" in attrs
        ]


def test_every_number_is_found_again_in_the_parquet(world: World) -> None:
    again = summarise(open_runs(world.store).runs, slo=SLO)
    cells = {f"{c.candidate.key}|{c.workload.key}": c for c in again.cells}
    ratios = {(f"{v.a}|{v.b}|{v.workload}", v.metric): v.ratio for v in again.verdicts}
    numbers = Reader(world.page).numbers()
    checked = 0
    for shown in numbers:
        if "data-pair" in shown:
            expected = ratios[shown["data-pair"], shown["data-metric"]]
        elif shown["data-metric"] == "n":
            expected = cells[shown["data-cell"]].n
        else:
            estimate = cells[shown["data-cell"]].metrics[shown["data-metric"]]
            expected = estimate.value
            if "data-low" in shown:
                ends = repr(estimate.ci_low), repr(estimate.ci_high)
                assert (shown["data-low"], shown["data-high"]) == ends
        assert shown["data-value"] == repr(expected), shown
        checked += 1
    assert checked > 90
    assert {n["data-cell"] for n in numbers if "data-cell" in n} == set(cells)


def test_times_of_the_start_and_memory_are_found_again_in_the_store(world: World) -> None:
    again = summarise(open_runs(world.store).runs, slo=SLO)
    ready = {
        engine: sorted(
            json.loads((folder / "run.json").read_text())["time_to_ready_s"]
            for folder in world.store.glob(f"{engine}-*")
        )
        for engine in (*ENGINES, "tgi")
    }
    keys = {one.candidate.key: one.candidate.engine for one in (*again.cells, *again.failed)}
    tags = [attrs for _, attrs in Reader(world.page).tags if "data-exact" in attrs]
    shown = {
        keys[one["data-candidate"] or ""]: one["data-exact"]
        for one in tags
        if one.get("data-start") == "time_to_ready_s"
    }
    assert shown == {engine: repr(found[(len(found) - 1) // 2]) for engine, found in ready.items()}
    peaks = {one.candidate.key: one.rss_peak.value_bytes for one in again.memory}
    assert peaks == {
        one["data-candidate"]: int(one["data-exact"] or "")
        for one in tags
        if one.get("data-memory") == "Peak, processes"
    }
    assert len(peaks) == len(ENGINES)


def test_a_number_equals_one_counted_by_hand_from_the_parquet_alone(world: World) -> None:
    ttft = sorted(
        row["chunk_s"][0] - row["due_s"]
        for block in range(BLOCKS)
        for row in pq.read_table(world.store / f"vllm-b{block}" / "requests.parquet").to_pylist()
        if (row["level"], row["phase"]) == (1, "measure")
    )
    assert len(ttft) == 112
    median = ttft[56 - 1]
    cell = next(
        c for c in world.summary.cells if (c.candidate.engine, c.workload.users) == ("vllm", 4)
    )
    key = f"{cell.candidate.key}|{cell.workload.key}"
    shown = [
        n["data-value"]
        for n in Reader(world.page).numbers()
        if n.get("data-cell") == key and n["data-metric"] == "ttft_p50_s"
    ]
    assert shown == [repr(median)]
    assert f'<span class="v">{number(median * 1e3)}</span>' in world.page


def test_a_percentile_that_the_sample_does_not_carry_says_what_it_needs(world: World) -> None:
    assert "needs 368, has 44" in Reader(world.page).text


def test_the_page_needs_nothing_from_outside(world: World) -> None:
    tags = Reader(world.page).tags
    assert len(tags) > 1000
    for tag, attrs in tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert "src" not in attrs
        for name in ("href", "xlink:href"):
            assert (attrs.get(name) or "#").startswith("#"), attrs
    assert "@import" not in world.page
    assert re.findall(r"url\((?!#)", world.page) == []
    assert "http://" not in world.page
    assert "https://" not in world.page


def test_ids_are_unique_and_every_reference_has_its_target(world: World) -> None:
    tags = Reader(world.page).tags
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    references = [(attrs.get("href") or "")[1:] for _, attrs in tags if attrs.get("href")]
    references += re.findall(r"url\(#([^)]+)\)", world.page)
    assert len(references) > 20
    assert set(references) <= set(ids)


def test_equal_inputs_give_equal_bytes(world: World, tmp_path: Path) -> None:
    again = write_report(world.summary, world.runs, tmp_path / "deep" / "b.html", slo=SLO)
    assert again.read_text(encoding="utf-8") == world.page
    assert [p.name for p in again.parent.iterdir()] == ["b.html"]


def test_figures_are_named_captioned_and_follow_the_colour_scheme(world: World) -> None:
    figures = re.findall(r"<figure>(.*?)</figure>", world.page, flags=re.DOTALL)
    assert len(figures) == 2 + len(LEVELS) * 2 + len(ENGINES)
    for figure in figures:
        assert re.search(r'<svg[^>]* role="img" aria-label="[^"]{10,}"', figure)
        assert re.search(r"<figcaption>[^<]{30,}</figcaption>", figure)
        assert "var(--c" in figure
        assert re.findall(r"#[0-9a-f]{6}\b", figure) == []
        assert "<metadata" not in figure
        assert "DejaVu" not in figure


def test_the_candidate_keeps_its_marker_and_dash_in_every_figure(world: World) -> None:
    legend = re.findall(r'<ul class="legend".*?</ul>', world.page, flags=re.DOTALL)
    assert len(legend) == 3
    assert len(set(legend)) == 1
    dashes = re.findall(r'stroke-dasharray="([^"]*)"', legend[0])
    assert dashes == ["", "6 3"]


def test_failures_doubts_settings_and_definitions_are_all_there(world: World) -> None:
    text = Reader(world.page).text
    assert "out of memory while loading the model" in text
    assert "cut off at the end of the drain" in text
    assert "raise load.drain_timeout_s" in text.lower()
    for run in world.runs:
        assert text.count(run.info.run_id) >= 1
    assert text.count("engine.max_running") == len(world.runs) + 1
    assert "first token chunk - due" in text
    assert "INCONCLUSIVE" in text


def test_a_credential_in_a_run_is_not_published(world: World) -> None:
    assert "hf_do_not_show" not in world.page
    assert "(hidden)" in world.page


def test_without_a_price_the_page_says_how_to_give_one(world: World) -> None:
    assert "hardware.price.per_hour=" in world.page
    assert 'data-metric="cost_per_mtok"' not in world.page


def test_with_a_price_the_cost_is_price_over_tokens_of_an_hour(tmp_path: Path) -> None:
    world = make_world(tmp_path, price_per_hour=3.6)
    shown = [n for n in Reader(world.page).numbers() if n["data-metric"] == "cost_per_mtok"]
    cells = {f"{c.candidate.key}|{c.workload.key}": c for c in world.summary.cells}
    assert len(shown) == len(cells) + len(ENGINES)
    for one in shown:
        rate = cells[one["data-cell"]].metrics["output_tokens_per_s"].value
        assert rate is not None
        assert float(one["data-value"]) == pytest.approx(3.6 / (3600 * rate) * 1e6)
    assert "3.60 EUR an hour" in Reader(world.page).text


def test_what_users_typed_is_escaped(world: World, tmp_path: Path) -> None:
    title = "<script>alert(1)</script> & $x$"
    summary = replace(world.summary, title=title)
    page = write_report(summary, world.runs, tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; $x$" in page


def test_labels_with_markup_dollars_and_chinese_are_drawn_as_they_are(
    world: World, tmp_path: Path
) -> None:
    cells = tuple(
        replace(c, candidate=replace(c.candidate, label=f"<b> $a$ 引擎 {c.candidate.engine}"))
        for c in world.summary.cells
    )
    summary = replace(world.summary, cells=cells)
    page = write_report(summary, world.runs, tmp_path / "a.html").read_text(encoding="utf-8")
    assert "&lt;b&gt; $a$ 引擎 vllm" in page
    assert "<b> $a$" not in page


def test_a_sweep_that_only_failed_still_gives_a_page(tmp_path: Path) -> None:
    run = Maker(tmp_path).run("tgi", 0, outcome=Outcome.FAILED)
    path = write_report(summarise([run]), [run], tmp_path / "a.html")
    text = Reader(path.read_text(encoding="utf-8")).text
    assert "No run gave figures" in text
    assert "out of memory while loading the model" in text


def test_a_decision_is_told_with_its_next_measurement(world: World, tmp_path: Path) -> None:
    pick = Pick(
        candidate="vllm",
        engine="vllm",
        level="users=16",
        metric="output_tokens_per_s",
        unit="tokens/s",
        value=Estimate(value=754.0, ci_low=723.0, ci_high=786.0, n=4),
    )
    question = Question(
        scenario="chat", slo="chat", limits="TTFT 350 ms", attainment_ratio=0.9, objective="rate"
    )
    decision = Decision(
        question=question,
        status=Status.CHOICE,
        reasons=("it alone keeps the SLO at users=16",),
        best=pick,
        p_best=0.98,
        p_within_5=1.0,
        blocks=4,
        next_measurement=NextMeasurement(command="bakeoff run engine=vllm", why="tells more"),
    )
    path = write_report(world.summary, world.runs, tmp_path / "a.html", decision=decision)
    text = Reader(path.read_text(encoding="utf-8")).text
    assert "Choose vllm at users=16: Output 754 tokens/s [723 tokens/s, 786 tokens/s]." in text
    assert "it alone keeps the SLO at users=16" in text
    assert "bakeoff run engine=vllm" in text


def test_a_page_that_cannot_be_written_says_so(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreWriteError, match="cannot be written"):
        write_report(world.summary, world.runs, tmp_path / "file" / "a.html")


def test_a_curve_keeps_small_samples_whole_and_leaves_out_what_never_came() -> None:
    x, share = curve(np.array([1.0, 2.0, 4.0, np.inf]))
    assert x.tolist() == [1.0, 2.0, 4.0]
    assert share.tolist() == [0.25, 0.5, 0.75]


def test_a_curve_of_many_samples_keeps_its_ends_and_its_tail() -> None:
    x, share = curve(np.arange(1.0, 100_001.0))
    assert (x[0], x[-1], share[-1]) == (1.0, 100_000.0, 1.0)
    assert x.size <= 240
    assert np.count_nonzero(share > 0.9) >= 100
    assert np.allclose(x / 100_000, share)


def test_a_curve_of_nothing_is_empty() -> None:
    assert curve(np.empty(0))[0].size == 0


def test_a_metric_without_a_column_is_shown_by_its_own_title() -> None:
    assert column_of("fluidity_ratio").title == "Fluidity"
    assert column_of("fluidity_ratio").unit == "%"
