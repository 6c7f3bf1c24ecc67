import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from adapters import ADAPTERS, Entry
from adapters.openai import OpenAIAdapter
from harness import registry
from harness.config import EngineConf, LaunchMode, ModelConf
from harness.errors import ConfigError
from harness.registry import (
    adapter_class,
    adapter_entry,
    adapter_names,
    check_adapters_package,
    open_adapter,
)


def installed(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    found = [EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in points]

    def entry_points(**_: Any) -> list[EntryPoint]:
        return found

    monkeypatch.setattr(registry, "entry_points", entry_points)


def test_every_adapter_of_the_table_can_be_imported_and_knows_its_name() -> None:
    assert {"llamacpp", "openai", "tgi"} <= set(ADAPTERS)
    for name in ADAPTERS:
        assert adapter_class(name).name == name
        assert set(ADAPTERS[name].launch) <= {mode.value for mode in LaunchMode}
        assert ADAPTERS[name].summary


def test_an_adapter_is_imported_only_when_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("adapters."):
            monkeypatch.delitem(sys.modules, name)
    adapter_names()
    adapter_entry("tgi")
    assert not [name for name in sys.modules if name.startswith("adapters.")]
    adapter_class("openai")
    assert "adapters.openai" in sys.modules
    assert "adapters.llamacpp" not in sys.modules


def test_an_unknown_engine_is_refused_with_the_choices() -> None:
    with pytest.raises(
        ConfigError, match=r"engine=vlm: not known; choose one of: deepspeed_mii, llamacpp, open"
    ):
        adapter_class("vlm")


def test_an_installed_package_adds_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, ("zeta", "adapters.openai:OpenAIAdapter"))
    assert adapter_names() == tuple(sorted({*ADAPTERS, "zeta"}))
    assert adapter_class("zeta").__name__ == "OpenAIAdapter"
    assert adapter_entry("zeta").launch == ("process", "docker", "attach", "emulate")


def test_an_installed_package_may_not_take_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, ("tgi", "other:Tgi"))
    with pytest.raises(ConfigError, match=r"engine=tgi: the entry point 'other:Tgi'"):
        adapter_names()


def test_a_broken_package_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, ("zeta", "no_such_module:Zeta"), ("eta", "adapters.openai:Nothing"))
    with pytest.raises(ConfigError, match=r"engine=zeta: no_such_module:Zeta"):
        adapter_class("zeta")
    with pytest.raises(ConfigError, match=r"engine=eta: adapters.openai:Nothing"):
        adapter_class("eta")


def test_another_package_named_adapters_is_found_out() -> None:
    check_adapters_package()
    with pytest.raises(ConfigError, match=r"adapters: /env/adapters/__init__.py is another"):
        check_adapters_package("/home/bakeoff/harness/__init__.py", "/env/adapters/__init__.py")


def test_a_launch_mode_that_the_engine_has_not_is_refused() -> None:
    engine, model = EngineConf(name="openai"), ModelConf(name="m")
    adapter = open_adapter(engine, model, LaunchMode.ATTACH)
    assert type(adapter).__name__ == OpenAIAdapter.__name__
    with pytest.raises(ConfigError, match=r"launch.mode=process: engine=openai can only be used"):
        open_adapter(engine, model, LaunchMode.PROCESS)


def test_only_an_engine_with_a_wire_can_be_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = open_adapter(EngineConf(name="openai"), ModelConf(name="m"), LaunchMode.EMULATE)
    assert adapter.name == "openai"
    entry = Entry(target="adapters.tgi:TgiAdapter", summary="without a wire", launch=("attach",))
    monkeypatch.setattr(registry, "ADAPTERS", {**ADAPTERS, "tgi": entry})
    refused = r"launch.mode=emulate: engine=tgi can only be used .* these can be emulated: .*openai"
    with pytest.raises(ConfigError, match=refused):
        open_adapter(EngineConf(name="tgi"), ModelConf(name="m"), LaunchMode.EMULATE)
