"""Hydra's side of the configuration: schemas registered, a composed config made into RunConf."""

from typing import Any, cast

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from harness.config import LaunchMode, RunConf
from harness.errors import ConfigError
from harness.sweep.messages import clean_message


def register_schemas() -> None:
    """Register the root schema under which `conf/config.yaml` and all groups are merged.

    With it the two words that YAML may compute with: `${by:NAME,{A: x, default: y}}` is the value
    for a name, and `${mode_for:IMAGE}` is docker where there is an image, else process.
    """
    ConfigStore.instance().store(name="schema_run", node=RunConf)
    OmegaConf.register_new_resolver("by", _by, replace=True)
    OmegaConf.register_new_resolver("mode_for", _mode_for, replace=True)


def _by(name: str, table: DictConfig) -> Any:
    """What the table has for a name, or for `default`; ConfigError if it has neither."""
    for key in (name, "default"):
        if key in table:
            return table[key]
    raise ConfigError(f"{name}: this experiment knows {', '.join(map(str, table))}")


def _mode_for(image: str) -> str:
    return (LaunchMode.DOCKER if image else LaunchMode.PROCESS).value


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
