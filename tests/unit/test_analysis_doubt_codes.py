"""Every doubt that the code can raise is explained in docs/doubts.md, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "doubts.md").read_text()
ROW = r"^\| `([a-z0-9_]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$"
ROWS = re.findall(ROW, PAGE, re.MULTILINE)


def codes_of(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    named = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "Doubt"
        ):
            given = {one.arg: one.value for one in node.keywords}
            assert "code" in given, f"{path}:{node.lineno}: a doubt without its code by name"
            yield from (str(code) for code in values(given["code"], named, path))


def values(node: ast.expr, named: dict[str, object], path: Path) -> list[object]:
    if isinstance(node, ast.Constant):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return values(node.body, named, path) + values(node.orelse, named, path)
    assert isinstance(node, ast.Name), f"{path}:{node.lineno}: a code that cannot be looked up"
    return [named[node.id]]


def codes() -> set[str]:
    return {code for path in sorted((ROOT / "harness").rglob("*.py")) for code in codes_of(path)}


def test_every_code_is_in_the_page_and_no_other() -> None:
    found = codes()
    assert len(found) > 40
    assert found == {row[0] for row in ROWS}


def test_every_code_is_explained_once_with_limit_source_and_advice() -> None:
    assert len(ROWS) == len({row[0] for row in ROWS})
    assert len(ROWS) == len(re.findall(r"^\| `", PAGE, re.MULTILINE))
    assert all(cell.strip() for row in ROWS for cell in row)
