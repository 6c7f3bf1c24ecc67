import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.engine.pip_settings import pip_settings, uv_settings


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user with settings in every place that pip looks at."""
    (tmp_path / "xdg/pip").mkdir(parents=True)
    (tmp_path / "user/pip").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "simple").mkdir()
    (tmp_path / "xdg/pip/pip.conf").write_text(
        "[global]\nconstraint = /c/one.txt /c/two.txt\nindex-url = https://weak/simple\n"
        "cert = /weak.pem\n"
    )
    (tmp_path / "user/pip/pip.conf").write_text(
        f"[global]\nextra_index_url =\n    file://{tmp_path}/simple\n    file:///nowhere/simple\n"
        "    https://more/simple\ncert = /strong.pem\n[install]\nindex-url = https://strong/simple\n"
    )
    return {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_DIRS": str(tmp_path / "xdg"),
        "XDG_CONFIG_HOME": str(tmp_path / "user"),
        "PIP_FIND_LINKS": f"{tmp_path}/wheels /nowhere/wheels https://links/",
        "PIP_DEFAULT_TIMEOUT": "180",
    }


def test_files_and_variables_become_flags(env: dict[str, str], tmp_path: Path) -> None:
    found = uv_settings(env)
    assert found.flags == (
        *("--default-index", "https://strong/simple"),
        *("--extra-index-url", f"file://{tmp_path}/simple"),
        *("--extra-index-url", "https://more/simple"),
        *("--index-strategy", "unsafe-best-match"),
        *("--find-links", f"{tmp_path}/wheels"),
        *("--find-links", "https://links/"),
        *("--constraint", "/c/one.txt"),
        *("--constraint", "/c/two.txt"),
    )
    assert found.env == {"SSL_CERT_FILE": "/strong.pem", "UV_HTTP_TIMEOUT": "180"}


def test_what_the_user_said_to_uv_itself_is_kept(env: dict[str, str]) -> None:
    own = {"UV_DEFAULT_INDEX": "https://uv/simple", "SSL_CERT_FILE": "/uv.pem"}
    found = uv_settings(env | own)
    assert "--default-index" not in found.flags
    assert "SSL_CERT_FILE" not in found.env


def test_no_index_leaves_only_the_links(env: dict[str, str]) -> None:
    flags = uv_settings(env | {"PIP_NO_INDEX": "1"}).flags
    assert flags[0] == "--no-index"
    assert not any("simple" in flag for flag in flags)
    assert flags.count("--find-links") == 2
    assert "--no-index" not in uv_settings(env | {"PIP_NO_INDEX": "0"}).flags


def test_a_config_file_of_its_own_puts_out_the_users(env: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("[global]\nindex-url = https://own/simple\n")
    assert pip_settings(env | {"PIP_CONFIG_FILE": str(own)})["index-url"] == "https://own/simple"
    assert "index-url" not in pip_settings(env | {"PIP_CONFIG_FILE": os.devnull})


def test_a_broken_file_gives_nothing(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "user/pip/pip.conf").write_text("no section\n")
    assert pip_settings(env)["index-url"] == "https://weak/simple"


@pytest.mark.skipif(find_spec("pip") is None, reason="pip is not installed here")
def test_pip_itself_sees_the_same(env: dict[str, str]) -> None:
    path = {"PATH": os.environ["PATH"]}
    for key in ("global.cert", "install.index-url", ":env:.default-timeout"):
        argv = [sys.executable, "-m", "pip", "config", "get", key]
        told = subprocess.run(argv, env=env | path, capture_output=True, text=True, check=True)
        assert told.stdout.strip() == pip_settings(env)[key.rpartition(".")[2]]
