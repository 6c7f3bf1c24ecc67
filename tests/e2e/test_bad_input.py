"""What a user gets wrong: a clear sentence with the value, what is allowed, the exit code."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.store_format import SCHEMA_VERSION
from harness.testing.command_line import CommandLine, Ended

pytestmark = pytest.mark.timeout(300)  # runs wait for one another on a machine


@dataclass(frozen=True)
class Wrong:
    """A command that cannot work. `says`: words that its message must hold."""

    id: str
    arguments: tuple[str, ...]
    says: tuple[str, ...]
    code: int = 2


PRICE = ("hardware.price.date=2026-11-30", "hardware.price.source=invoice")
WRONG = [
    Wrong("unknown engine", ("run", "engine=vlm"), ("engine=vlm: not known", "llamacpp")),
    Wrong("unknown scenario", ("run", "scenario=chatt"), ("scenario=chatt", "chat", "prefill")),
    Wrong("unknown model", ("plan", "model=gpt"), ("model=gpt: not known", "smollm2_135m")),
    Wrong("unknown override", ("run", "load.user=2"), ("load.user: not known", "load.users")),
    Wrong("unknown group", ("run", "lod=users"), ("lod: not known", "load")),
    Wrong("unknown objective of reports", ("report", "--slo", "fast"), ("slo=fast", "chat")),
    Wrong("wrong type", ("run", "load.users=many"), ("load.users=many", "must be an integer")),
    Wrong(
        "a unit",
        ("run", "load.duration_s=10s"),
        ("load.duration_s=10s", "must be a number, without a unit"),
    ),
    Wrong("wrong word", ("run", "engine.route=chats"), ("engine.route=chats", "completions, chat")),
    Wrong("no users", ("run", "load.users=0"), ("load.users=0", "must be an integer >= 1")),
    Wrong(
        "endless rate",
        ("run", "load=poisson", "load.rate_rps=inf"),
        ("load.rate_rps=inf", "a finite number > 0 requests per second"),
    ),
    Wrong(
        "no rate",
        ("run", "load=poisson", "load.rate_rps=0"),
        ("load.rate_rps=0", "> 0 requests per second"),
    ),
    Wrong(
        "backward rate",
        ("run", "load=poisson", "load.rate_rps=-1"),
        ("load.rate_rps=-1", "> 0 requests per second"),
    ),
    Wrong(
        "one bad job of a sweep (C73)",
        ("run", "load.users=1,0,2"),
        ("load.users=0", "must be an integer >= 1"),
    ),
    Wrong(
        "a price without a currency",
        ("run", "hardware.price.per_hour=2.5", *PRICE),
        ("hardware.price.currency", "per_hour=2.5", "hardware.price.currency=EUR"),
    ),
    Wrong(
        "a percentage", ("run", "slo.attainment_ratio=99"), ("slo.attainment_ratio=99", "(0, 1]")
    ),
    Wrong("a path for a name", ("run", "name=a/b"), ("name=a/b", "plain folder name")),
    Wrong(
        "too long for the engine",
        ("run", "scenario.input_tokens=600"),
        ("scenario.input_tokens=600", "engine.max_model_len=512"),
    ),
    Wrong(
        "no such model", ("run", "model=file", "model.path=no.gguf"), ("no.gguf", "no such file")
    ),
    Wrong(
        "not a model",
        ("run", "model=file", "model.path=notes.txt"),
        ("notes.txt", "not a GGUF file", "begins with b'# notes"),
    ),
    Wrong(
        "no such server program",
        ("run", "model=file", "model.path={model}", "engine.program=/nowhere/llama-server"),
        ("engine.program=/nowhere/llama-server", "no such program"),
    ),
    Wrong(
        "an equals sign (C71)",
        ("run", "model=file", "model.path=ckpt/epoch=9-step=90.bin"),
        ("model.path=ckpt/epoch=9-step=90.bin", "'model.path=\"ckpt/epoch=9-step=90.bin\"'"),
    ),
    Wrong(
        "attached to nothing",
        ("run", "launch=attach"),
        ("launch.base_url", "http://127.0.0.1:8000"),
    ),
    Wrong(
        "somebody else's server",
        ("run", "engine=openai", "launch=attach", "launch.base_url=http://192.0.2.7:8000"),
        ("http://192.0.2.7:8000", "launch.allow_remote=true"),
    ),
    Wrong(
        "no folder", ("report", "nowhere"), ("nowhere: no such folder", "run, a sweep or a store")
    ),
    Wrong("an empty folder", ("recommend", "empty"), ("empty: holds no run", "bakeoff run")),
    Wrong("damaged run", ("report", "damaged"), ("damaged/run.json", "not valid JSON", "measure")),
    Wrong(
        "newer run",
        ("report", "newer"),
        (f"schema_version={SCHEMA_VERSION + 1}", f"reads up to {SCHEMA_VERSION}", "update bakeoff"),
    ),
    Wrong("engine of no kind", ("engines", "install", "vlm"), ("vlm", "llamacpp")),
    Wrong("nothing to remove", ("engines", "remove", "llamacpp"), ("llamacpp", "no environment")),
    Wrong("no such command", ("runn",), ("runn", "bakeoff --help")),
]


def check(ended: Ended, wrong: Wrong) -> None:
    assert "Traceback" not in ended.err
    for words in wrong.says:
        assert words in ended.err
    assert ended.code == wrong.code
    assert len(ended.lines) <= 3  # a sentence, not a page


def make_folder(folder: Path) -> list[Path]:
    """What the commands find where they are run; gives every path in it."""
    for name in ("empty", "damaged", "newer"):
        (folder / name).mkdir(parents=True)
    (folder / "notes.txt").write_text("# notes\n")
    (folder / "damaged" / "run.json").write_text('{"schema_version": 1, "run_id": "a",\n "eng')
    newer = json.dumps({"schema_version": SCHEMA_VERSION + 1})
    (folder / "newer" / "run.json").write_text(newer)
    return sorted(folder.rglob("*"))


@pytest.fixture(scope="module")
def endings(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    cache: Path,
    toy_model: Path,
) -> Iterator[dict[str, Future[Ended]]]:
    """All the commands that were selected, two at a time: each takes a second to start."""
    with ThreadPoolExecutor(max_workers=2) as pool:

        def submit(wrong: Wrong) -> Future[Ended]:
            folder = tmp_path_factory.mktemp("wrong")
            before = make_folder(folder)
            bakeoff = CommandLine(cwd=folder, env={"BAKEOFF_CACHE": str(cache)})
            arguments = [argument.format(model=toy_model) for argument in wrong.arguments]

            def run() -> Ended:
                ended = bakeoff(*arguments)
                assert sorted(folder.rglob("*")) == before  # nothing measured, nothing left
                return ended

            return pool.submit(run)

        specs = [getattr(item, "callspec", None) for item in request.session.items]
        chosen = [spec.params["wrong"] for spec in specs if spec and "wrong" in spec.params]
        yield {wrong.id: submit(wrong) for wrong in chosen}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.id)
def test_a_mistake_is_named_with_what_helps(
    wrong: Wrong, endings: dict[str, Future[Ended]]
) -> None:
    check(endings[wrong.id].result(timeout=280), wrong)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(1)
        yield sock.getsockname()[1]


def test_a_port_in_use_is_named_with_who_holds_it(
    bakeoff: CommandLine, fake: list[str], taken_port: int
) -> None:
    ended = bakeoff("run", *fake, f"launch.port={taken_port}")
    says = (f"launch.port={taken_port}: in use by process", "leave launch.port out")
    check(ended, Wrong("port", (), says))


def test_an_environment_that_cannot_be_installed(bakeoff: CommandLine, tmp_path: Path) -> None:
    """No network, no index and an empty cache."""
    env = {
        "BAKEOFF_CACHE": str(tmp_path / "cache"),
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "UV_OFFLINE": "1",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "",
        "PIP_CONFIG_FILE": "/dev/null",
    }
    ended = bakeoff("run", "load.users=1", "load.requests=1", env=env)
    says = (
        "engine=llamacpp: its environment cannot be installed",
        "xllamacpp",
        "run: bakeoff engines install llamacpp",
    )
    check(ended, Wrong("install", (), says))
    assert not (tmp_path / "results").exists()
