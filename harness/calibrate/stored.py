"""The user's calibrations: one file a machine, in the cache; a stale one is not used, and why."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from harness.calibrate.capacity import RouteResult
from harness.calibrate.identity import Identity, identify, machine_name
from harness.errors import StoreWriteError
from harness.paths import cache_dir

_FORMAT = 1
_REFRESH = "run: bakeoff calibrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured on a machine, by the name of the route."""

    identity: Identity
    routes: Mapping[str, RouteResult]
    format: int = _FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A calibration of this very machine and version, or the reason why there is none."""

    calibration: Calibration | None
    reason: str = ""


def calibration_path(identity: Identity) -> Path:
    """Where this machine's calibration is kept."""
    return cache_dir() / "calibration" / f"{machine_name(identity)}.json"


def find_calibration(machine: Mapping[str, Any] | None = None) -> Found:
    """What is stored for this machine. `machine`: `machine_facts`, if they are at hand.

    Nothing is raised: a missing, damaged or stale file is a reason.
    """
    now = identify(machine)
    path = calibration_path(now)
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except FileNotFoundError:
        return Found(calibration=None, reason=f"this machine is not calibrated; {_REFRESH}")
    except (OSError, msgspec.DecodeError) as error:
        return Found(calibration=None, reason=f"{path}: cannot be read ({error}); {_REFRESH}")
    changed = stored.identity.differences(now)
    if stored.format != _FORMAT:
        changed.append(f"format {stored.format} then, {_FORMAT} now")
    if changed:
        why = f"the calibration of this machine is stale ({'; '.join(changed)}); {_REFRESH}"
        return Found(calibration=None, reason=why)
    return Found(calibration=stored)


def read_calibration(machine: Mapping[str, Any] | None = None) -> Calibration | None:
    """The calibration of this very machine and version of bakeoff; None if there is none."""
    return find_calibration(machine).calibration


def write_calibration(calibration: Calibration) -> Path:
    """Store it, keeping what was measured of other routes if it still holds; returns the file.

    StoreWriteError if the disk refuses.
    """
    before = read_calibration()
    if before is not None and before.identity == calibration.identity:
        routes = {**before.routes, **calibration.routes}
        calibration = Calibration(identity=calibration.identity, routes=routes)
    path = calibration_path(calibration.identity)
    part = path.with_name(f".{path.name}.part")
    text = msgspec.json.format(msgspec.json.encode(calibration), indent=2)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(text + b"\n")
        part.replace(path)
    except OSError as error:
        raise StoreWriteError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def to_facts(calibration: Calibration) -> dict[str, Any]:
    """By route, what a run says of the calibration it was measured under; plain JSON values.

    Keys as the fields of `RouteResult` without the route's name; each point has its `finding`.
    """
    facts = {}
    for name, result in calibration.routes.items():
        plain = asdict(result)
        plain.pop("route")
        plain["points"] = [{**asdict(p), "finding": p.finding.value} for p in result.points]
        facts[name] = plain
    return facts
