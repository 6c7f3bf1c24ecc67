"""Adapters translate bytes: clock, socket, process and thread belong to others."""

import ast
from pathlib import Path

import pytest

ADAPTERS = Path(__file__).parent.parent.parent / "adapters"
FILES = [p for p in sorted(ADAPTERS.rglob("*.py")) if p.parent.name != "servers"]
BANNED = {"socket", "time", "datetime", "threading", "subprocess", "asyncio", "gevent", "select"}
BANNED |= {"http", "urllib", "requests", "httpx", "multiprocessing", "random", "os"}
OPENAI = ("llamacpp", "openai", "sglang", "tensorrt_llm", "tgi", "transformers", "vllm")
OURS = ("adapters", "harness.types", "harness.errors", "harness.config", "harness.adapter")


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_adapter_has_no_clock_socket_or_thread(path: Path) -> None:
    assert {name for name in imports(path) if name.split(".")[0] in BANNED} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_adapter_imports_only_the_base_of_the_harness(path: Path) -> None:
    ours = {name for name in imports(path) if name.startswith(("harness", "scenarios"))}
    assert {name for name in ours if name not in OURS} == set()


def test_the_table_imports_nothing_of_ours() -> None:
    assert len(FILES) > 10
    ours = {n for n in imports(ADAPTERS / "__init__.py") if n.startswith(("adapters", "harness"))}
    assert ours == set()


def test_an_engine_with_the_openai_wire_stays_small() -> None:
    for name in OPENAI:
        assert len((ADAPTERS / f"{name}.py").read_text().splitlines()) < 100
