"""The shape of a configuration: schema dataclasses under the YAML files of `conf/`.

YAML chooses, the dataclass constrains: `RunConf` is what every room gets, made once by
`OmegaConf.to_object`, which runs each `__post_init__`. Nothing here touches the environment, a
GPU or the network. Units are in the names; what a value may be is said by the check beside it.
"""

from harness.config.emulate import EmulateConf
from harness.config.engine import (
    SETTINGS,
    EngineConf,
    ImageConf,
    RecipeConf,
    Route,
    SpeculationConf,
)
from harness.config.launch import LaunchConf, LaunchMode
from harness.config.level import LevelConf, Shape, TimeUnit, TraceConf, TraceFormat
from harness.config.limits import HardwareConf, PriceConf, ProbeConf, SloConf, ValidityConf
from harness.config.load import LoadConf, SearchConf, WarmupConf, WarmupMode
from harness.config.model import ModelConf, ModelFormat
from harness.config.run import RawMode, RunConf
from harness.config.scenario import GroupConf, Lengths, LognormalConf, ScenarioConf

__all__ = [
    "SETTINGS",
    "EmulateConf",
    "EngineConf",
    "GroupConf",
    "HardwareConf",
    "ImageConf",
    "LaunchConf",
    "LaunchMode",
    "Lengths",
    "LevelConf",
    "LoadConf",
    "LognormalConf",
    "ModelConf",
    "ModelFormat",
    "PriceConf",
    "ProbeConf",
    "RawMode",
    "RecipeConf",
    "Route",
    "RunConf",
    "ScenarioConf",
    "SearchConf",
    "Shape",
    "SloConf",
    "SpeculationConf",
    "TimeUnit",
    "TraceConf",
    "TraceFormat",
    "ValidityConf",
    "WarmupConf",
    "WarmupMode",
]
