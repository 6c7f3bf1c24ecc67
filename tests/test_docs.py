"""The documents keep up with the code: commands, options, exit codes, overrides, links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from harness import errors
from harness.cli.app import app
from harness.config import RunConf
from harness.sweep.compose import register_schemas, to_run_conf

ROOT = Path(__file__).parent.parent
CLI = (ROOT / "docs" / "cli.md").read_text()
README = (ROOT / "README.md").read_text()
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {".venv", "node_modules", "shared"} & set(path.relative_to(ROOT).parts)
    and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)
PLACEHOLDERS = {"URL": "http://127.0.0.1:8000", "{...}": "{}"}


def commands(group: Any, before: str = "bakeoff") -> Iterator[tuple[str, Any]]:
    """Every command with its full name; typer carries a click of its own, so nothing is typed."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before} {name}")
        else:
            yield f"{before} {name}", command


def all_commands() -> dict[str, Any]:
    return dict(commands(typer.main.get_command(app)))


def row(command: str) -> str:
    lines = [line for line in CLI.splitlines() if line.startswith(f"| `{command}")]
    assert lines, f"docs/cli.md: no row for {command}"
    return lines[0]


def test_every_command_has_a_row() -> None:
    found = all_commands()
    assert len(found) >= 10
    for name in found:
        assert row(name)


def test_every_option_is_in_the_row_of_its_command() -> None:
    options = [
        (name, option)
        for name, command in all_commands().items()
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--") and option != "--help"
    ]
    missing = [(name, option) for name, option in options if option not in row(name)]
    assert options
    assert missing == []


def test_no_row_is_about_a_command_that_is_gone() -> None:
    rows = re.findall(r"^\| `(bakeoff(?: [a-z]+)+)", CLI, re.MULTILINE)
    assert sorted(rows) == sorted(all_commands())


def test_every_exit_code_is_in_the_table_and_no_other() -> None:
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", CLI, re.MULTILINE)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    codes = {kind.exit_code for kind in kinds if issubclass(kind, errors.BakeoffError)}
    assert table == codes | {0}


def test_commands_in_the_documents_exist() -> None:
    known = {name.split()[1] for name in all_commands()}
    for page in PAGES:
        for word in re.findall(r"(?:`|bin/)bakeoff ([a-z]+)", page.read_text()):
            assert word in known, f"{page}: bakeoff {word}"


def documented_overrides() -> list[str]:
    """The first column of the table of overrides, and the runs of the README."""
    table = CLI.partition("| override | meaning |")[2]
    rows = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    runs = re.findall(r"^\.venv/bin/bakeoff (?:run|plan) (.+)$", README, re.MULTILINE)
    assert len(rows) > 20
    assert runs
    return [*rows, *runs]


def first_of_a_sweep(override: str) -> str:
    """`a=1,8` as `a=1`: composing takes one job."""
    key, _, value = override.partition("=")
    is_sweep = "," in value and not re.search(r"[\[{]", value)
    return f"{key}={value.split(',')[0]}" if is_sweep else override


@pytest.fixture(scope="module", autouse=True)
def _hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    register_schemas()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


@pytest.mark.parametrize("line", documented_overrides())
def test_documented_overrides_compose(line: str) -> None:
    for placeholder, value in PLACEHOLDERS.items():
        line = line.replace(placeholder, value)
    words = [first_of_a_sweep(word) for word in shlex.split(line) if "=" in word]
    assert words
    to_run_conf(compose("config", overrides=words))


def test_keys_named_in_the_documents_exist() -> None:
    schema = OmegaConf.structured(RunConf)
    groups = "engine|model|scenario|load|slo|hardware|launch|warmup|validity"
    pattern = rf"(?<![\w./])(?:{groups})\.[a-z_]+(?:\.[a-z_]+)*"
    found = [
        (page, key)
        for page in PAGES
        for code in re.findall(r"`[^`\n]+`", page.read_text())
        for key in re.findall(pattern, code)
        if key.rpartition(".")[2] not in {"log", "md", "parquet", "py", "yaml"}
    ]
    assert len(found) > 20
    for page, key in found:
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(schema, parent)
        assert node is not None, f"{page}: {key}"
        assert name in list(node.keys()) or parent in {"engine.args", "engine.env"}, (
            f"{page}: {key}"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:|#", target):
            continue
        path = (page.parent / target.partition("#")[0]).resolve()
        assert path.is_relative_to(ROOT), f"{page}: {target} leads out of the project"
        assert path.exists(), f"{page}: {target} does not exist"


def test_the_documents_are_found() -> None:
    names = {str(path.relative_to(ROOT)) for path in PAGES}
    assert {"README.md", "docs/cli.md", "docs/glossary.md"} <= names


def test_folders_named_in_the_readme_exist() -> None:
    rows = re.findall(r"^\| (`[a-z]+/`(?:, `[a-z]+/`)*) \|", README, re.MULTILINE)
    folders = [name for cell in rows for name in re.findall(r"`([a-z]+)/`", cell)]
    assert len(folders) >= 8
    for folder in folders:
        assert (ROOT / folder).is_dir(), folder


def test_every_word_of_the_glossary_is_explained_once() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)
    assert len(words) > 25
    assert len(set(words)) == len(words)
