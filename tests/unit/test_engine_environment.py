import base64
import hashlib
import shutil
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest

from harness.config import RecipeConf
from harness.engine import environment
from harness.engine.environment import ensure_environment, installed, list_environments, remove
from harness.engine.installer import failure_reason
from harness.errors import ConfigError, EnvironmentInstallError


def write_wheel(folder: Path, name: str, version: str, requires: str = "") -> None:
    """A wheel with one module `NAME.py` that knows its version."""
    info = f"{name}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": about + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
            record += f"{path},sha256={digest.decode()},{len(text)}\n"
        own = f"{info}/RECORD"
        wheel.writestr(own, record + f"{own},,\n")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A closed network: nothing but a folder of wheels, told by pip's own variables."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheel(folder, "toyengine", "1.0", requires="toydep")
    write_wheel(folder, "toydep", "1.0")
    write_wheel(folder, "toydep", "2.0")
    write_wheel(folder, "toymodel", "0.1", requires="never-there")
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


TOY = RecipeConf(packages=["toyengine==1.0"], model_packages=["toymodel==0.1"])


def run_in(python: Path, code: str) -> str:
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_an_environment_is_made_once_and_found_again(wheels: Path, tmp_path: Path) -> None:
    said: list[str] = []
    assert installed("toy", TOY) is None
    made = ensure_environment("toy", TOY, progress=said.append)
    assert made.folder == tmp_path / "cache/engines" / f"toy-{environment.recipe_hash(TOY)}"
    assert said[0] == f"installing engine=toy into {made.folder}"
    assert any(line.startswith("Resolved 2 packages") for line in said)
    code = "import toyengine, toydep, toymodel; print(toydep.VERSION, toyengine.__file__)"
    assert run_in(made.python, code) == f"2.0 {made.site_packages}/toyengine.py"
    assert list((made.site_packages / "__pycache__").glob("toyengine.*.pyc"))
    said.clear()
    assert ensure_environment("toy", TOY, progress=said.append) == made == installed("toy", TOY)
    assert said == []
    assert [(e.name, e.packages) for e in list_environments()] == [
        ("toy", ("toyengine==1.0", "toymodel==0.1"))
    ]
    assert made.size_bytes() > 0


def test_overrides_go_over_what_packages_want(wheels: Path) -> None:
    recipe = RecipeConf(packages=["toyengine==1.0"], overrides=["toydep<2"])
    made = ensure_environment("toy", recipe, progress=print)
    assert run_in(made.python, "import toydep; print(toydep.VERSION)") == "1.0"
    assert environment.recipe_hash(recipe) != environment.recipe_hash(TOY)


def test_a_half_made_environment_is_made_again(wheels: Path) -> None:
    made = ensure_environment("toy", TOY, progress=print)
    (made.folder / environment.MARKER).unlink()
    (made.site_packages / "toyengine.py").unlink()
    assert installed("toy", TOY) is None
    assert list_environments() == []
    ensure_environment("toy", TOY, progress=print)
    assert (made.site_packages / "toyengine.py").exists()


def test_two_makers_at_once_make_one(wheels: Path) -> None:
    said: list[str] = []
    found: list[environment.Environment] = []

    def make() -> None:
        found.append(ensure_environment("toy", TOY, progress=said.append))

    threads = [threading.Thread(target=make) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert sum(line.startswith("installing") for line in said) == 1


def test_a_package_that_is_not_there_is_named_with_the_way_out(wheels: Path) -> None:
    recipe = RecipeConf(packages=["toyengine==9"])
    with pytest.raises(EnvironmentInstallError) as caught:
        ensure_environment("toy", recipe, progress=print)
    text = str(caught.value)
    assert text.startswith("engine=toy: its environment cannot be installed: No solution found")
    assert "toyengine==9" in text
    assert text.endswith("; mend that, then run: bakeoff engines install toy")
    assert "\n" not in text
    assert caught.value.exit_code == 2
    assert installed("toy", recipe) is None


def test_an_empty_recipe_and_an_unwritable_cache(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EnvironmentInstallError, match=r"engine=openai: .* is empty.*launch=attach"):
        ensure_environment("openai", RecipeConf(), progress=print)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentInstallError, match=r"engine=toy: .*Not a directory"):
        ensure_environment("toy", TOY, progress=print)
    with pytest.raises(ConfigError, match="without slashes"):
        installed("../toy", TOY)


def test_remove_takes_all_of_an_engine_and_only_its_own(wheels: Path) -> None:
    first = ensure_environment("toy", TOY, progress=print)
    other = environment.environments_dir() / f"toy-other-{environment.recipe_hash(TOY)}"
    shutil.copytree(first.folder, other, symlinks=True)
    assert remove("toy") == [first.folder]
    assert other.exists()
    with pytest.raises(ConfigError) as caught:
        remove("toy")
    assert str(caught.value) == "engine=toy: no environment is installed; installed are: toy"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            [
                "Using Python 3.11.7 environment at: e",
                "error: Request failed after 3 retries in 6.6s",
                "  cause: Failed to fetch: http://127.0.0.1:9/simple/idna/",
                "  cause: client error (Connect)",
                "  cause: Connection refused (os error 111)",
            ],
            (
                "Request failed after 3 retries in 6.6s: Failed to fetch: "
                "http://127.0.0.1:9/simple/idna/: Connection refused (os error 111)"
            ),
        ),
        (
            [
                "\x1b[31m×\x1b[0m No solution found when resolving dependencies:",
                "  ╰─▶ Because a was not found in the package registry and you require",
                "      a==1, we can conclude that your requirements are unsatisfiable.",
                "",
                "hint: look elsewhere",
            ],
            (
                "No solution found when resolving dependencies: Because a was not found in the "
                "package registry and you require a==1, we can conclude that your requirements "
                "are unsatisfiable"
            ),
        ),
        (["one", "two"], "two"),
        ([], "uv said nothing"),
    ],
)
def test_the_reason_in_uvs_output(output: list[str], reason: str) -> None:
    assert failure_reason(output) == reason
