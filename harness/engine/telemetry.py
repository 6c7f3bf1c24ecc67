"""Samples of engine and machine beside a load, in two threads that stay out of its way.

Never in the load's own process. A probe that costs the engine time is asked less often, a probe
that fails leaves no sample, and nothing here ends a measurement. Times are on the run's clock.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from harness.adapter import Adapter
from harness.engine.gpu import Gpus
from harness.engine.host_meter import CpuMeter, TreeMeter, tree_of
from harness.engine.probe import Answer, Endpoint, ProbeConnection
from harness.engine.process import EngineProcess
from harness.types import EngineSample, HostSample

INTERVAL_S = 0.5
PROBE_TIMEOUT_S = 2.0
MOST_SHARE = 0.05  # of the time that probes may take; slower ones are asked less often
LONGEST_PAUSE_S = 5.0


class _Loop:
    """Calls `step` at an interval in a thread until told to stop, and once more then."""

    def __init__(self, name: str, step: Callable[[], None], interval_s: float) -> None:
        self._step = step
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{name}", daemon=True)
        self.own_cpu_s = 0.0
        self.problems: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=2 * PROBE_TIMEOUT_S + 1.0)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._stop.is_set()
            start_s = time.monotonic()
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 (whatever it is, the load must go on)
                if repr(error) not in self.problems:
                    self.problems.append(repr(error))
            self.own_cpu_s = time.thread_time()
            took_s = time.monotonic() - start_s
            pause_s = min(max(self._interval_s - took_s, took_s / MOST_SHARE), LONGEST_PAUSE_S)
            self._stop.wait(pause_s)


class Telemetry:
    """What engine and machine did during a load.

    `zero_s`: the run's zero on `time.monotonic`. `process` is None for a server not ours; its
    CPU and memory then stay None. `gpu_indices`: the GPUs to watch; None: all.
    """

    def __init__(
        self,
        adapter: Adapter,
        endpoint: Endpoint,
        process: EngineProcess | None,
        *,
        zero_s: float,
        interval_s: float = INTERVAL_S,
        gpu_indices: Sequence[int] | None = None,
    ) -> None:
        self._adapter = adapter
        self._connection = ProbeConnection(endpoint)
        self._zero_s = zero_s
        self._gpus = Gpus(gpu_indices)
        self._cpu = CpuMeter()
        self._engine_tree = TreeMeter(process.tree_pids if process else list)
        self._client_pid: int | None = None
        self._client_tree = TreeMeter(lambda: tree_of(self._client_pid) if self._client_pid else [])
        self._engine_samples: list[EngineSample] = []
        self._host_samples: list[HostSample] = []
        self.failed_probes = 0
        self._started_s = self._stopped_s = 0.0
        self._loops = [_Loop("host", self._sample_host, interval_s)]
        if adapter.sample_probes:
            self._loops.append(_Loop("engine", self._sample_engine, interval_s))

    def start(self) -> None:
        """Begin to sample."""
        self._started_s = time.monotonic()
        for loop in self._loops:
            loop.start()

    def watch_client(self, pid: int) -> None:
        """Say which process plays the load; it and its descendants are watched from now on."""
        self._client_pid = pid

    def stop(self) -> tuple[list[EngineSample], list[HostSample]]:
        """Take a last sample and give all of them, in the order of their times."""
        for loop in self._loops:
            loop.stop()
        self._stopped_s = time.monotonic()
        self._connection.close()
        self._gpus.close()
        return self._engine_samples, self._host_samples

    @property
    def own_cpu_s(self) -> float:
        """CPU that the sampling itself has cost, in seconds of one core."""
        return sum(loop.own_cpu_s for loop in self._loops)

    def facts(self) -> dict[str, Any]:
        """What the sampling cost and what went wrong in it, for the record; JSON-able.

        `cpu_ratio`: of one core, over `span_s`.
        """
        span_s = self._stopped_s - self._started_s
        return {
            "span_s": span_s,
            "cpu_ratio": self.own_cpu_s / span_s if span_s > 0 else None,
            "engine_samples": len(self._engine_samples),
            "failed_probes": self.failed_probes,
            "problems": self.problems,
        }

    @property
    def problems(self) -> list[str]:
        """What went wrong inside the sampling, to be reported and never to be fatal."""
        return [problem for loop in self._loops for problem in loop.problems]

    def _sample_host(self) -> None:
        cpu_total_ratio = self._cpu.read()
        engine_cpu_ratio, engine_rss_bytes = self._engine_tree.read()
        client_cpu_ratio, client_rss_bytes = self._client_tree.read()
        gpu = self._gpus.read()
        if cpu_total_ratio is None:
            return
        self._host_samples.append(
            HostSample(
                t_s=time.monotonic() - self._zero_s,
                cpu_total_ratio=cpu_total_ratio,
                engine_cpu_ratio=engine_cpu_ratio,
                engine_rss_bytes=engine_rss_bytes,
                client_cpu_ratio=client_cpu_ratio,
                client_rss_bytes=client_rss_bytes,
                **gpu.columns(),
            )
        )

    def _sample_engine(self) -> None:
        start_s = time.monotonic()
        bodies: dict[str, bytes] = {}
        for name in self._adapter.sample_probes:
            answer = self._connection.call(self._adapter.probes[name], PROBE_TIMEOUT_S)
            if isinstance(answer, Answer) and answer.is_ok:
                bodies[name] = answer.body
            else:
                self.failed_probes += 1
        end_s = time.monotonic()
        if not bodies:
            return
        sample = self._adapter.engine_sample(bodies)
        t_s = end_s - self._zero_s
        self._engine_samples.append(replace(sample, t_s=t_s, scrape_s=end_s - start_s))
