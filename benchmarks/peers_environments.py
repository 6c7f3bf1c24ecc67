"""Environments of the other tools: one folder each, pinned; and a tokenizer that needs no hub.

None of them is a dependency of ours. They are installed only when asked for, by `uv`, from
wherever pip would install.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import uv

from harness.engine.installer import failure_reason
from harness.engine.pip_settings import uv_settings
from harness.errors import EnvironmentInstallError

_INSTALL_S = 600.0
_NUMBERS = 2000  # words of the tokenizer; the reference server's answers are numbers too


def install(folder: Path, packages: Sequence[str], *, left_out: Sequence[str] = ()) -> None:
    """Make an environment in this folder with these packages, in place of what is there.

    `left_out`: packages that are asked for and not needed. EnvironmentInstallError with uv's
    reason; a half-made folder is removed.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    settings = uv_settings(os.environ)
    python = str(folder / "bin" / "python")
    pip = ["pip", "install", "--python", python, *settings.flags]
    try:
        _uv(["venv", "--clear", "--python", sys.executable, str(folder)], folder.parent)
        if left_out:
            overrides = folder / "overrides.txt"
            lines = [f"{name} ; sys_platform == 'never'\n" for name in left_out]
            overrides.write_text("".join(lines), encoding="utf-8")
            pip += ["--override", str(overrides)]
        _uv([*pip, "--", *packages], folder.parent)
    except EnvironmentInstallError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _uv(arguments: Sequence[str], where: Path) -> None:
    env = dict(os.environ) | dict(uv_settings(os.environ).env) | {"UV_NO_PROGRESS": "1"}
    env.pop("VIRTUAL_ENV", None)
    argv = [uv.find_uv_bin(), "--color", "never", *arguments]
    try:
        done = subprocess.run(
            argv,
            env=env,
            cwd=where,
            capture_output=True,
            text=True,
            timeout=_INSTALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentInstallError(f"not done after {_INSTALL_S:.0f} s") from error
    if done.returncode != 0:
        raise EnvironmentInstallError(failure_reason((done.stdout + done.stderr).splitlines()))


def version_in(folder: Path, distribution: str) -> str | None:
    """The version of a distribution in an environment, by the name of its metadata's folder."""
    name = distribution.replace("-", "_")
    found = next(folder.glob(f"lib/python*/site-packages/{name}-*.dist-info"), None)
    return None if found is None else found.name.removesuffix(".dist-info").rpartition("-")[2]


def write_tokenizer(folder: Path) -> Path:
    """Write a tokenizer of whole words that Transformers loads from the folder; returns it.

    Its words are numbers, and `unk` for all others, so that every text of n words is n tokens
    and stays so when it is decoded and encoded again.
    """
    words = ["unk", "<s>", "</s>", *map(str, range(_NUMBERS))]
    model = {
        "type": "WordLevel",
        "vocab": {word: number for number, word in enumerate(words)},
        "unk_token": "unk",
    }
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": 8192,
        "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder
