"""The arrows between the rooms, read from the imports of every module."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("harness", "adapters", "scenarios")
PLAIN = ("harness.types", "harness.errors", "harness.config")
LEFT = ("engine", "load", "run", "plan", "sweep", "calibrate", "emulate")
RIGHT = ("analysis", "recommend", "report")
HEAVY = {"pandas", "matplotlib", "scipy", "sklearn"}

MAY_IMPORT_OF_OURS: Mapping[str, tuple[str, ...]] = {
    "adapters": ("adapters", "harness.adapter", *PLAIN),
    "scenarios": ("scenarios", *PLAIN),
    "harness/types": ("harness.types",),
    "harness/errors.py": (),
    "harness/units.py": ("harness.types",),
    "harness/config": ("harness.config", "harness.errors"),
    "harness/adapter.py": ("harness.types", "harness.config"),
    "harness/answer.py": ("harness.types", "harness.adapter"),
    "harness/store.py": ("harness.store_format", "harness.types", "harness.errors"),
    "harness/store_format.py": ("harness.types",),
    "harness/paths.py": (),
    "harness/grpc": (
        "harness.grpc",
        "harness.adapter",
        "harness.answer",
        "harness.errors",
        "harness.types",
    ),
    "harness/search": (
        "harness.search",
        "harness.analysis.intervals",
        "harness.analysis.stats",
        "harness.config",
        "harness.types",
    ),
    "harness/emulate": (
        "harness.emulate",
        "harness.adapter",
        "harness.calibrate.server",  # its connections and its reading of requests
        "adapters.openai_compatible.EMULATOR",  # the mark that adapters know an emulator by
        "adapters.mii_wire",  # the messages of the engine that speaks gRPC
        "adapters.protobuf",
        "harness.grpc.frames",
        *PLAIN,
    ),
    "harness/calibrate": (
        "adapters.mii_wire",  # the same for the messages of the engine that speaks gRPC
        "adapters.protobuf",
        "harness.calibrate",
        "harness.engine.facts",
        "harness.grpc.call",  # frames and messages: one spelling of the protocol for both ends
        "harness.grpc.frames",
        "harness.errors",
        "harness.paths",
        "harness.store",
        "harness.sweep.hydra_app",  # only the client, in a process of its own
        "harness.sweep.run_task",
        "harness.types",
    ),
}
MUST_NOT_IMPORT: Mapping[str, tuple[str, ...]] = {
    **{
        f"harness/{room}": (
            *(f"harness.{left}" for left in (*LEFT, "cli")),
            "harness.registry",
            "adapters",
            "locust",
            "gevent",
        )
        for room in RIGHT
    },
    **{f"harness/{room}": ("harness.cli",) for room in (*LEFT, "testing")},
    "harness/analysis": ("harness.engine", "harness.load", "harness.run", "harness.sweep"),
    "harness/engine": ("harness.run", "harness.sweep", "harness.load", "harness.cli"),
    "harness/plan": ("harness.run", "harness.sweep", "harness.load", "harness.engine"),
    "harness/load": ("harness.run", "harness.sweep", "harness.engine", "harness.plan"),
}


def modules(folder: str) -> list[Path]:
    """One module, or all below a folder; never none."""
    path = ROOT / folder
    found = [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))
    assert found, folder
    return found


@cache
def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    """Full names that a module imports; `from a import b` gives `a.b`."""
    names: set[str] = set()
    for node in _statements(ast.parse(path.read_text()), top_level_only=top_level_only):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _statements(tree: ast.Module, *, top_level_only: bool) -> Iterator[ast.AST]:
    if not top_level_only:
        yield from ast.walk(tree)
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("folder", MAY_IMPORT_OF_OURS)
def test_only_these_of_ours_are_imported(folder: str) -> None:
    allowed = MAY_IMPORT_OF_OURS[folder]
    for path in modules(folder):
        ours = {name for name in imports(path) if name.split(".")[0] in PACKAGES}
        assert {n for n in ours if not any(is_below(n, a) for a in allowed)} == set(), path


@pytest.mark.parametrize("folder", MUST_NOT_IMPORT)
def test_these_are_never_imported(folder: str) -> None:
    forbidden = MUST_NOT_IMPORT[folder]
    for path in modules(folder):
        assert {n for n in imports(path) if any(is_below(n, f) for f in forbidden)} == set(), path


def importers(package: str) -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for folder in PACKAGES
        for path in modules(folder)
        if any(is_below(name, package) for name in imports(path))
    }


def test_one_module_imports_locust() -> None:
    assert importers("locust") == {"harness/load/play/locust_users.py"}


# Tests play with the client in a process that is theirs alone.
IN_A_PROCESS_OF_ITS_OWN = {"harness/testing/loopback.py", "harness/testing/grpc_sender.py"}


def test_gevent_stays_in_the_load() -> None:
    found = importers("gevent") - IN_A_PROCESS_OF_ITS_OWN
    assert found
    assert {path for path in found if not path.startswith("harness/load/")} == set()


def test_what_imports_gevent_is_imported_inside_the_load_only() -> None:
    """The parent must not be patched: it may run pandas, threads and Hydra."""
    graph = module_graph()
    inner = {path.removesuffix(".py").replace("/", ".") for path in importers("gevent")}
    while more := {name for name, used in graph.items() if used & inner} - inner:
        inner |= more
    assert {"harness.load.child", "harness.load.distributed.master"} <= inner
    own = {path.removesuffix(".py").replace("/", ".") for path in IN_A_PROCESS_OF_ITS_OWN}
    outside = {name for name in inner if not name.startswith("harness.load.")} - own
    assert outside == set()
    assert "harness.load.driver" not in inner
    assert "harness.load.gather" not in inner


def test_the_command_line_is_imported_by_nobody() -> None:
    outside = {path for path in importers("harness.cli") if not path.startswith("harness/cli/")}
    assert outside == set()


@pytest.mark.parametrize("folder", ["adapters", "scenarios", *(f"harness/{r}" for r in LEFT)])
def test_left_of_the_wall_nothing_heavy_is_imported(folder: str) -> None:
    for path in modules(folder):
        heavy = {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY
        assert heavy == set(), path


def test_the_store_and_the_contracts_import_nothing_heavy() -> None:
    for path in sorted((ROOT / "harness").glob("*.py")):
        roots = {name.split(".")[0] for name in imports(path)}
        assert roots & (HEAVY | {"gevent", "locust"}) == set(), path


def test_adapters_and_scenarios_hold_no_clock_socket_or_process() -> None:
    outer = {"socket", "asyncio", "threading", "subprocess", "time", "requests", "httpx"}
    for folder in ("adapters", "scenarios"):
        for path in modules(folder):
            if "servers" not in path.parts:  # they run inside an engine's own environment
                assert {name.split(".")[0] for name in imports(path)} & outer == set(), path


def module_graph() -> dict[str, set[str]]:
    """Which module of ours imports which at its top level, by full name."""
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in PACKAGES
        for path in modules(folder)
    }
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        targets = set()
        for target in imports(path, top_level_only=True):
            module = target if target in names else target.rpartition(".")[0]
            if module in names and module != name:
                targets.add(module)
        graph[name] = targets
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Strongly connected components of more than one module (Tarjan 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for target in graph.get(name, ()):
            if target not in order:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], order[target])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(members := set(stack[at:])) > 1:
                found.append(members)
            del stack[at:]

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return found


def test_the_search_for_circles_finds_them() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}
    assert sorted(sorted(circle) for circle in circles(graph)) == [["a", "b", "c"], ["e", "f"]]


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = module_graph()
    assert len(graph) > 80
    assert "harness.types" in graph["harness.store"]
    assert circles(graph) == []
