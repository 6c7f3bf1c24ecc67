"""Hydra's side of the configuration: schemas registered, a composed config made into RunConf."""

from typing import cast

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from harness.config import RunConf
from harness.errors import ConfigError
from harness.sweep.messages import clean_message


def register_schemas() -> None:
    """Register the root schema under which `conf/config.yaml` and all groups are merged."""
    ConfigStore.instance().store(name="schema_run", node=RunConf)


def to_run_conf(config: DictConfig) -> RunConf:
    """The typed configuration of a composed one; ConfigError for a value that is not allowed."""
    content = OmegaConf.to_container(config, resolve=True)
    assert isinstance(content, dict)
    content.pop("hydra", None)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(RunConf), content)
        return cast("RunConf", OmegaConf.to_object(merged))
    except MissingMandatoryValue as error:
        key = str(error.full_key or error).strip()
        raise ConfigError(f"{key}: not given; say {key}=VALUE") from error
    except OmegaConfBaseException as error:
        raise ConfigError(clean_message(error)) from error
