"""What `bakeoff run` and `bakeoff plan` do under Hydra: prepare all, then measure or only show."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from harness.config import LaunchMode, RunConf, SloConf
from harness.engine.facts import machine_facts
from harness.errors import BakeoffError, ConfigError, InterruptedRunError, StoreWriteError
from harness.run.checks import check
from harness.run.job import measure
from harness.run.outcome import JobResult
from harness.run.preflight import Prepared, can_prepare, check_gpus, prepare, trace_lines
from harness.run.preview import preview
from harness.sweep.blocks import BlockJob, Schedule, finished_runs, schedule
from harness.sweep.compose import to_run_conf
from harness.sweep.confirm import confirming
from harness.types import Outcome

_MINUTE_S = 60.0


@dataclass(slots=True, kw_only=True)
class SweepPlan:
    """A whole sweep before it starts. `confs`: every job of every block that will be launched."""

    folder: Path
    slo: SloConf
    confs: list[RunConf] = field(default_factory=list)
    schedule: Schedule = field(default_factory=lambda: Schedule(blocks=(), stored=()))


class RunTask:
    """Measures a sweep: every job of every block. `is_preview`: only look, install nothing.

    `results` holds what was measured so far, also when the sweep is interrupted.
    An interrupt or a full disk ends the sweep, whatever a launcher would still start.
    """

    def __init__(self, progress: Callable[[str], None], *, is_preview: bool = False) -> None:
        self._progress = progress
        self._is_preview = is_preview
        self._prepared: dict[str, Prepared] = {}
        self._swept: dict[str, str] = {}  # by content hash: what sets a job apart
        self._took_s: list[float] = []
        self._end: BakeoffError | None = None
        self.sweep: SweepPlan | None = None
        self.results: list[JobResult] = []

    def prepare(
        self, jobs: Sequence[Sequence[str]], configs: Sequence[DictConfig]
    ) -> list[list[list[str]]]:
        """Check every job, plan it, and put the blocks in order; returns override lists."""
        confs = [to_run_conf(config) for config in configs]
        first = confs[0]
        if any((conf.repeats, conf.store) != (first.repeats, first.store) for conf in confs):
            raise ConfigError("repeats and store cannot be swept; give each one value")
        for conf in confs:
            check(conf, is_preview=self._is_preview)
        if not self._is_preview:
            _check_starts(confs)
        for line in dict.fromkeys(line for conf in confs for line in trace_lines(conf)):
            self._progress(line)
        name = first.name or datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        self.sweep = SweepPlan(folder=Path(first.store) / name, slo=first.slo)
        blocks = [
            [
                self._block_job(replace(conf, name=name, block=number), overrides, swept)
                for conf, overrides, swept in zip(confs, jobs, _swept(jobs), strict=True)
            ]
            for number in range(first.repeats)
        ]
        finished: dict[str, Path] = {}
        if not _is_measured_anew(confs):
            finished, doubts = finished_runs(Path(first.store))
            for doubt in doubts:
                self._progress(doubt.what)
        self.sweep.schedule = schedule(blocks, finished, seed=first.seed)
        launched = [[list(job.overrides) for job in block] for block in self.sweep.schedule.blocks]
        self.sweep.confs = [job.conf for block in self.sweep.schedule.blocks for job in block]
        return [] if self._is_preview else launched

    def _block_job(self, conf: RunConf, overrides: Sequence[str], swept: str) -> BlockJob:
        digest = ""  # nothing is stored under it
        if not self._is_preview or can_prepare(conf):
            prepared = prepare(conf, self._progress)
            digest = prepared.content_hash
            self._prepared[digest] = prepared
            self._swept[digest] = swept
        own = [item for item in overrides if item.partition("=")[0] not in {"name", "block"}]
        return BlockJob(
            conf=conf,
            overrides=(*own, f"name={conf.name}", f"block={conf.block}"),
            content_hash=digest,
        )

    def __call__(self, config: DictConfig) -> JobResult:
        """Measure one job; called by Hydra's launcher."""
        if self._end is not None:
            raise self._end  # a launcher goes on after a failed job
        try:
            return self._measure(to_run_conf(config))
        except (InterruptedRunError, StoreWriteError) as error:
            self._end = error
            raise

    def _measure(self, conf: RunConf) -> JobResult:
        folder = Path(conf.store) / conf.name
        prepared = self._find(conf)
        swept = self._swept.get(prepared.content_hash)
        label = f"{conf.engine.name} {conf.scenario.name} block {conf.block}"
        label += f" ({swept})" if swept else ""
        self._progress(f"{self._place()} {label}")
        start_s = time.monotonic()
        result = self._run(prepared, folder, label)
        result = self._confirm(conf, result, folder, label)
        self._took_s.append(time.monotonic() - start_s)
        return result

    def _confirm(self, conf: RunConf, result: JobResult, folder: Path, label: str) -> JobResult:
        """Fresh runs for the answer of a search; the worst of their outcomes is the job's."""
        fresh_runs = confirming(conf, result)
        fresh = next(fresh_runs, None)
        while fresh is not None:
            title = f"{label}, fresh run {fresh.load.search.confirm_number}"
            self._progress(f"  confirming: {title}")
            ended = self._run(prepare(fresh, self._progress), folder, title)
            if ended.exit_code:
                return replace(ended, run_id=result.run_id, folder=result.folder)
            try:
                fresh = fresh_runs.send(ended)
            except StopIteration:
                break
        return result

    def _run(self, prepared: Prepared, folder: Path, label: str) -> JobResult:
        """One engine start; InterruptedRunError if it was interrupted."""
        result = replace(measure(prepared, folder, self._progress), label=label)
        self.results.append(result)
        if result.outcome is Outcome.INTERRUPTED:
            raise InterruptedRunError(
                f"interrupted; {len(self.results) - 1} finished runs and what was measured of this "
                f"one are kept in {folder}; the same command goes on from there"
            )
        return result

    def _place(self) -> str:
        """Which job of how many, and how long the rest may take, judged by those before it."""
        done, total = len(self._took_s), len(self.sweep.confs) if self.sweep else 1
        left = ""
        if done:
            left_s = sum(self._took_s) / done * (total - done)
            left = f", about {left_s / 60:.0f} min left" if left_s >= _MINUTE_S else ", nearly done"
        return f"[{done + 1}/{total}{left}]"

    def _find(self, conf: RunConf) -> Prepared:
        for prepared in self._prepared.values():
            if prepared.conf == conf:
                return prepared
        return prepare(conf, self._progress)  # on another machine, behind a remote launcher

    def finish(self, results: Sequence[Any]) -> int:
        """The sweep's exit code: 0, the one code that all failed with, or 3 for a mixture."""
        codes = {result.exit_code for result in results}
        if codes <= {0}:
            return 0
        return codes.pop() if len(codes) == 1 else 3


def _check_starts(confs: Sequence[RunConf]) -> None:
    """ConfigError for a server that this machine cannot start, before anything is installed."""
    gpus = machine_facts()["gpus"]
    for conf in confs:
        check_gpus(conf, gpus)
        preview(conf, gpu_count=len(gpus))


def _swept(jobs: Sequence[Sequence[str]]) -> list[str]:
    """For each job the overrides that not all jobs share."""
    shared = set(jobs[0]).intersection(*map(set, jobs[1:]))
    return [", ".join(item.lstrip("+") for item in job if item not in shared) for job in jobs]


def _is_measured_anew(confs: Sequence[RunConf]) -> bool:
    """Asked for, or a server that is not ours: it may have changed since."""
    return confs[0].rerun or any(conf.launch.mode is LaunchMode.ATTACH for conf in confs)
