"""Settings as flat rows, looks of candidates, and figures as SVG for a page."""

import matplotlib as mpl
import pytest

from harness.analysis.model import Candidate, Cell, Summary, Workload
from harness.report.columns import column_of, interval_text, value_text
from harness.report.palette import style_of
from harness.report.settings import HIDDEN, differences, flat
from harness.report.svg import drawing, new_figure, to_svg
from harness.types import Estimate, Severity

MS = column_of("ttft_p50_s")


def test_settings_are_flat_and_absence_is_said() -> None:
    value = {
        "a": {"b": 1, "c": None, "d": [], "e": ""},
        "f": [{"g": True}, {"g": 0.5}],
        "h": [1, 2],
    }
    assert list(flat(value)) == [
        ("a.b", "1"),
        ("a.c", "not set"),
        ("a.d", "none"),
        ("a.e", "(empty)"),
        ("f[0].g", "true"),
        ("f[1].g", "0.5"),
        ("h", "1, 2"),
    ]


@pytest.mark.parametrize("name", ["HF_TOKEN", "api_key", "OPENAI_API_KEY", "password", "secret"])
def test_credentials_are_hidden(name: str) -> None:
    assert list(flat({"env": {name: "x"}})) == [(f"env.{name}", HIDDEN)]


@pytest.mark.parametrize("name", ["input_tokens", "tokenizer", "key_value_cache", "max_tokens"])
def test_what_only_sounds_like_a_credential_is_shown(name: str) -> None:
    assert list(flat({name: "x"})) == [(name, "x")]


def test_enums_are_shown_by_value() -> None:
    assert list(flat({"s": Severity.WARN})) == [("s", "warn")]


def test_only_settings_that_differ_are_listed() -> None:
    def one(key: str, **settings: object) -> Cell:
        candidate = Candidate(
            key=key, engine=key, label=key, model="m", hardware="h", settings=settings
        )
        workload = Workload(
            key="w",
            scenario="chat",
            level="users=1",
            closed=True,
            input_tokens=(1, 1),
            output_tokens=(1, 1),
        )
        return Cell(
            candidate=candidate,
            workload=workload,
            run_ids=(),
            blocks=(),
            n=0,
            n_ok=0,
            n_failed=0,
            n_censored=0,
            metrics={},
            per_run={},
        )

    cells = (one("a", same=1, slots=4), one("b", same=1, threads=2))
    found = differences(Summary(title="", cells=cells, verdicts=(), failed=(), doubts=(), runs={}))
    assert [(row.name, row.values) for row in found] == [
        ("slots", ("4", "not set")),
        ("threads", ("not set", "2")),
    ]


def test_figures_read_in_their_unit() -> None:
    estimate = Estimate(value=0.1234, ci_low=0.1, ci_high=0.2, n=9)
    assert value_text(estimate, MS) == "123"
    assert interval_text(estimate, MS) == "100–200"
    assert value_text(Estimate(value=2.0, censored=True, n=9), MS) == ">= 2,000"
    assert value_text(Estimate(value=None, n=44, needed=368), MS) == "needs 368, has 44"
    assert value_text(Estimate(value=None), MS) == "-"
    assert interval_text(Estimate(value=0.0, ci_low=0.0, ci_high=0.0), MS) == ""


def test_no_two_of_twenty_candidates_look_alike() -> None:
    looks = {(s.color, s.marker, s.dash) for s in map(style_of, range(20))}
    assert len(looks) == 20
    first = [style_of(i) for i in range(7)]
    assert len({s.marker for s in first}) == len({s.dash for s in first}) == 7


def draw(key: str) -> str:
    with drawing():
        figure, (axes,) = new_figure()
        axes.plot([0, 1], [1, 2], color=style_of(0).color, marker="o")
        axes.set_title("a < b & $c$")
        return to_svg(figure, key=key, title='It says "a < b"')


def test_an_svg_is_bare_reproducible_and_unique_in_its_page() -> None:
    svg = draw("one")
    assert svg == draw("one")
    assert svg.startswith('<svg class="figure" viewBox="0 0 309.6 216"')
    assert 'aria-label="It says &quot;a &lt; b&quot;"' in svg
    assert "a &lt; b &amp; $c$" in svg
    assert "var(--c1)" in svg
    assert "<style" not in svg
    assert "http" not in svg
    assert 'id="one-' in svg
    assert 'id="figure_1"' not in svg


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    before = dict(mpl.rcParams)
    draw("x")
    assert dict(mpl.rcParams) == before
