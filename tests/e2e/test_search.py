"""A search through the real command line, on an emulated server whose capacity is known."""

from pathlib import Path

from harness.store import open_runs
from harness.testing.command_line import CommandLine
from harness.types import ProbeEnd

# One slot, 8 steps of 10 ms an answer and little else: about 12 requests/s.
SERVER = ["engine=openai", "launch=emulate", "launch.emulate.slots=1", "launch.emulate.step_ms=10"]
LOAD = ["scenario=fixed", "scenario.input_tokens=8", "scenario.output_tokens=8", "load=search"]
SEARCH = [
    "slo.name=quick",
    "slo.ttft_s=0.5",
    "slo.attainment_ratio=0.9",
    "load.search.attainment_low_ratio=0.7",
    "load.search.ratio=1.6",
    "load.search.probe_min_s=3",
    "load.search.confirm_runs=1",
]


def test_a_search_finds_what_the_server_carries(bakeoff: CommandLine, tmp_path: Path) -> None:
    store = tmp_path / "results"
    ended = bakeoff("run", *SERVER, *LOAD, *SEARCH, f"store={store}", "name=s", "warmup.max_s=5")
    assert "Traceback" not in ended.err
    assert ended.code == 0, ended.err
    runs = {run.info.run_id: run.info for run in open_runs(store).runs}
    (search,) = [i for i in runs.values() if i.search is not None and not i.search.confirms]
    fresh = [i for i in runs.values() if i.search is not None and i.search.confirms]
    assert search.search is not None
    assert len(fresh) >= 1
    assert {i.search.confirms for i in fresh if i.search} == {search.run_id}
    assert all(info.emulated for info in runs.values())
    low, high = search.search.low_rps, search.search.high_rps
    assert low is not None
    assert high is not None
    assert 3 < low < high < 30
    assert high / low <= 1.6 * (1 + 1e-9)
    decided = [p for p in search.search.probes if p.end in {ProbeEnd.DECIDED, ProbeEnd.DIVERGED}]
    assert len(decided) >= 2
    assert all(probe.n >= 8 for probe in decided)
    names = [level.name for level in search.levels]
    assert names[:2] == ["one request alone", "burst, users=8"]
    said = " ".join(ended.out.split())
    assert "openai at fixed" in said
    assert "its requests within quick" in said
    assert "emulated, no evidence about a real engine" in said
    reported = bakeoff("report", f"{store}/s", "--out", f"{tmp_path}/s.html")
    assert reported.code == 0, reported.err
    page = (tmp_path / "s.html").read_text()
    assert "Highest rate within the SLO" in page
    assert f'data-rate="{low!r}"' in page
