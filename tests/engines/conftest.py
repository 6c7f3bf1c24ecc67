"""Real engines from their own environments, one at a time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from harness.adapter import Adapter
from harness.config import RunConf
from harness.engine.lock import machine_lock
from harness.engine.ports import choose_port
from harness.engine.probe import Endpoint
from harness.engine.ready import Readiness, wait_ready
from harness.paths import conf_dir
from harness.run.preflight import prepare
from harness.run.serving import serving
from harness.run.starting import started
from harness.sweep.compose import register_schemas, to_run_conf


class Running(NamedTuple):
    """A real engine that has answered."""

    adapter: Adapter
    endpoint: Endpoint
    readiness: Readiness
    name: str


Start = Callable[..., AbstractContextManager[Running]]


def composed(*overrides: str) -> RunConf:
    GlobalHydra.instance().clear()
    register_schemas()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        conf = to_run_conf(compose("config", overrides=list(overrides)))
    GlobalHydra.instance().clear()
    return conf


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts an engine as a run does: environment, model, command, readiness."""

    @contextmanager
    def begin(engine: str, *overrides: str) -> Iterator[Running]:
        folder: Path = tmp_path_factory.mktemp(engine)
        conf = composed(f"engine={engine}", f"store={folder}", *overrides)
        prepared = prepare(conf, print)
        assert prepared.environment is not None
        how = serving(
            conf,
            prepared.adapter,
            port=choose_port(None),
            python=prepared.environment.python,
            model_path=prepared.model_path,
            folder=folder,
            gpu_count=0,
        )
        log_path = folder / "engine.log"
        with (
            machine_lock(f"a test of {engine}", wait_s=600, progress=print) as lock,
            started(how, engine, log_path=log_path, lock=lock, progress=print) as process,
        ):
            endpoint = Endpoint(how.base_url)
            timeout_s = conf.engine.ready_timeout_s
            readiness = wait_ready(process, prepared.adapter, endpoint, timeout_s=timeout_s)
            name = conf.model.served_name or conf.model.name
            yield Running(prepared.adapter, endpoint, readiness, name)

    return begin
