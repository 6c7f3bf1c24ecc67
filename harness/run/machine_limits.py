"""What this machine cannot carry, found before anything starts: exit 2 with both numbers.

`load.force=true` plays it all the same; the doubts of the run then say what came of it.
"""

import shutil
from pathlib import Path

import psutil

from harness.calibrate.stored import Calibration, read_calibration
from harness.config import RunConf
from harness.errors import ConfigError, StoreWriteError
from harness.load.wire.open_files import check_connections
from harness.plan.capacity import (
    calls_bytes,
    offered_tokens_per_s,
    peak_connections,
    plan_memory_bytes,
)
from harness.plan.estimate import estimate
from harness.types import Wire

SPARE_DISK_BYTES = 200 * 1024 * 1024
_MEMORY_SHARE = 0.5  # of what is free now: the engine wants the rest
_CAPACITY_SHARE = 0.8
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FORCE = "; load.force=true plays it all the same"


def check_limits(conf: RunConf, wire: Wire = Wire.HTTP) -> None:
    """Raise ConfigError for a load beyond this machine's sockets, ports, memory or capacity.

    `wire`: how the engine's calls travel.
    """
    if conf.load.force:
        return
    connections = -(-peak_connections(conf) // conf.load.workers)
    check_connections(connections)
    _check_ports(peak_connections(conf))
    _check_memory(conf)
    _check_capacity(conf, read_calibration(), wire.route(conf.launch.base_url or ""))


def _check_ports(connections: int) -> None:
    """Connections to one server need a local port each."""
    try:
        first, last = (int(word) for word in _PORT_RANGE.read_text().split())
    except (OSError, ValueError):  # no Linux: the system says it when a port is missing
        return
    ports = last - first + 1
    if connections > ports:
        raise ConfigError(
            f"load: up to {connections} connections at once, but this machine has {ports} local "
            f"ports; widen them (sysctl net.ipv4.ip_local_port_range) or lower the load{_FORCE}"
        )


def _check_memory(conf: RunConf) -> None:
    need, free = plan_memory_bytes(conf), psutil.virtual_memory().available
    if need > _MEMORY_SHARE * free:
        raise ConfigError(
            f"load: its plan needs {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free; "
            f"give the load fewer requests or shorter levels{_FORCE}"
        )


def _check_capacity(conf: RunConf, calibration: Calibration | None, name: str) -> None:
    """Against what `bakeoff calibrate` found for one worker; nothing is known without it."""
    offered = offered_tokens_per_s(conf)
    route = calibration.routes.get(name) if calibration else None
    capacity = route.capacity_tokens_per_s if route else None
    if route is None or capacity is None or offered is None or route.is_lower_bound:
        return
    limit = _CAPACITY_SHARE * capacity * conf.load.workers
    if offered > limit:
        raise ConfigError(
            f"load: offers {offered:.0f} tokens/s, but the client is true up to {limit:.0f} on "
            f"this machine (80 % of what bakeoff calibrate found, {conf.load.workers} worker); "
            f"lower the load or raise load.workers{_FORCE}"
        )


def check_disk(conf: RunConf) -> None:
    """StoreWriteError if the store cannot be written; ConfigError if the journal would not fit."""
    store = Path(conf.store)
    try:
        store.mkdir(parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(store).free
    except OSError as error:
        raise StoreWriteError(f"store={conf.store}: {error.strerror or error}") from error
    need_bytes = estimate([conf]).disk_bytes.high + calls_bytes(conf) + SPARE_DISK_BYTES
    if free_bytes < need_bytes and not conf.load.force:
        raise ConfigError(
            f"store={conf.store}: {free_bytes / 1e9:.1f} GB free, this run may need "
            f"{need_bytes / 1e9:.1f} GB; free some, or choose another store=DIR{_FORCE}"
        )
