"""Which machine and which bakeoff a calibration belongs to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from harness.engine.facts import hardware_label, machine_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What must be the same for a calibration to hold; None: the machine does not say."""

    cpu_model: str | None
    cores: int | None
    kernel: str | None
    python: str | None
    bakeoff: str | None

    def differences(self, other: "Identity") -> list[str]:
        """Such as `kernel 6.8.0 then, 6.12.1 now`: `self` was then, `other` is now."""
        pairs = ((f.name, getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return [f"{name} {then} then, {now} now" for name, then, now in pairs if then != now]


def identify(machine: Mapping[str, Any] | None = None) -> Identity:
    """This machine's identity. `machine`: the facts of `machine_facts`, if they are at hand."""
    facts = machine_facts() if machine is None else machine
    return Identity(
        cpu_model=facts.get("cpu_model"),
        cores=facts.get("cores_logical"),
        kernel=facts.get("kernel"),
        python=facts.get("python"),
        bakeoff=facts.get("bakeoff"),
    )


def machine_name(identity: Identity) -> str:
    """The identity's machine as a file name, such as `intel-xeon-8488c-2-cores`.

    Machines of one CPU model and number of cores share it.
    """
    label = hardware_label({"cpu_model": identity.cpu_model, "cores_logical": identity.cores})
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
