"""Doubts about how a run was set up, from its run.json alone."""

from typing import Any

import pandas as pd

from harness.analysis.doubts_setup import setup_doubts
from harness.testing.records import make_info
from harness.types import Determinism, EngineIdentity

NO_REQUESTS = pd.DataFrame({"is_measured": [], "is_ok": []}, dtype=bool)


def codes(**info: Any) -> list[str]:
    return [doubt.code for doubt in setup_doubts(make_info("x", **info), NO_REQUESTS)]


def test_several_texts_are_a_note_and_one_is_none() -> None:
    usual = {"requests": 4, "output_tokens": 8, "alone": 1}
    code = "output_not_deterministic"
    assert code not in codes(determinism=None)
    assert code not in codes(determinism=Determinism(**usual, crowd=1, together=1))
    assert code in codes(determinism=Determinism(**usual, crowd=1, together=2))


def test_a_server_that_takes_any_name_is_doubted_if_it_serves_another() -> None:
    def is_doubted(mode: str, asked: str, served: str | None) -> bool:
        config = {"launch": {"mode": mode}, "model": {"served_name": asked}}
        return "other_model" in codes(config=config, identity=EngineIdentity(model=served))

    assert is_doubted("attach", "mine", "other")
    assert not is_doubted("attach", "mine", "mine")
    assert not is_doubted("attach", "", "other")
    assert not is_doubted("attach", "mine", None)
    assert not is_doubted("process", "mine", "/models/mine")
