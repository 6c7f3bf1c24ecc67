"""The SLO presets of `conf/slo`, by name, for commands that do not compose a whole run."""

from typing import cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config import SloConf
from harness.errors import ConfigError
from harness.paths import conf_dir


def load_slo(name: str) -> SloConf:
    """One preset; ConfigError with the choices for an unknown name."""
    folder = conf_dir() / "slo"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        choices = ", ".join(sorted(preset.stem for preset in folder.glob("*.yaml")))
        raise ConfigError(f"slo={name}: not known; choose one of: {choices}")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(SloConf), OmegaConf.load(path))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {str(error).splitlines()[0]}") from error
    return cast("SloConf", OmegaConf.to_object(merged))
