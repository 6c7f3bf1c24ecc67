from pathlib import Path

import pytest

from harness.paths import cache_dir, conf_dir, reference_dir

ROOT = Path(__file__).parents[2]


def test_in_a_checkout_the_folders_are_the_trees() -> None:
    assert conf_dir() == ROOT / "conf"
    assert (conf_dir() / "config.yaml").is_file()
    assert reference_dir() in {
        ROOT / "results" / "reference",
        ROOT / "harness" / "_results" / "reference",
    }


def test_elsewhere_they_are_inside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "harness"
    monkeypatch.setattr("harness.paths._PACKAGE", package)
    assert conf_dir() == package / "_conf"
    assert reference_dir() == package / "_results" / "reference"


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKEOFF_CACHE", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/own")
    monkeypatch.delenv("BAKEOFF_CACHE")
    assert cache_dir() == Path("/xdg/bakeoff")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_dir() == Path("/home/somebody/.cache/bakeoff")
