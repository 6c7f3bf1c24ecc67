"""Plays a job's load on a server that is ready, with telemetry beside it, and decodes it."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.config import LaunchMode, RunConf, Shape
from harness.engine.probe import Endpoint
from harness.engine.process import EngineProcess
from harness.engine.telemetry import Telemetry
from harness.load.calls import Planned, PlannedCalls
from harness.load.decode import Decoded, JournalDecoder, PlayedLevel
from harness.load.driver import LoadProcess
from harness.load.gather import gather
from harness.load.job import LoadJob
from harness.run.load_calls import Written, write_levels, write_warmup
from harness.run.load_job import load_job
from harness.run.outcome import Measured
from harness.run.preflight import Prepared
from harness.run.search_player import SearchPlayer
from harness.run.search_run import SearchRun


@dataclass(slots=True, kw_only=True)
class Playing:
    """One job's load. `folder`: where its journal and calls go; `process`: None if not ours.

    `levels`, `calls`: what has been handed to the load process so far, in order.
    """

    prepared: Prepared
    endpoint: Endpoint
    process: EngineProcess | None
    load: LoadProcess
    folder: Path
    progress: Callable[[str], None]
    levels: list[PlayedLevel] = field(default_factory=list)
    calls: list[PlannedCalls] = field(default_factory=list)

    def play(self, measured: Measured) -> None:
        """Play everything; whatever comes, what was measured until then is in `measured`.

        Raises:
            BakeoffError: the load could not be played to its end.
            KeyboardInterrupt: as it came.
        """
        prepared = self.prepared
        wire = prepared.adapter.capabilities.wire
        job = load_job(prepared.conf, self.endpoint.base_url, self.folder, wire)
        telemetry = Telemetry(
            prepared.adapter,
            self.endpoint,
            self.process,
            zero_s=job.zero_s,
            gpu_indices=_gpus_of(prepared.conf),
        )
        telemetry.watch_client(self.load.pid)
        telemetry.start()
        try:
            self.load.open(job, self.folder / "job.json")
            self._play(job, measured)
            self.load.close()
        finally:
            measured.engine, measured.host = telemetry.stop()
            measured.telemetry = telemetry.facts()
            measured.decoded = self._decoded(job)
            for calls in self.folder.glob("**/calls.bin"):  # the plan makes them again
                calls.unlink()
        status = self.process.poll() if self.process else None
        if self.process is not None and status is not None:
            raise self.process.died_error(status, zero_s=job.zero_s)

    def _play(self, job: LoadJob, measured: Measured) -> None:
        prepared, base_url = self.prepared, self.endpoint.base_url
        plan, adapter = prepared.plan, prepared.adapter
        warm_up = write_warmup(
            prepared.conf,
            prepared.tokenizer,
            adapter,
            self.folder / "warm-up",
            base_url=base_url,
            first_index=plan.count,
        )
        self._play_written(warm_up)
        if prepared.conf.load.shape is Shape.SEARCH:
            player = SearchPlayer(
                prepared=prepared,
                base_url=base_url,
                folder=self.folder,
                journal=Path(job.journal),
                levels=self.levels,
                calls=self.calls,
                play_written=self._play_written,
                planned=self._planned,
            )
            search = SearchRun(
                conf=prepared.conf,
                player=player,
                should_abort=self._has_died,
                progress=self.progress,
            )
            try:
                search.play()
            finally:
                measured.search = search.result()
            return
        written = write_levels(
            prepared.conf,
            plan.levels,
            adapter,
            self.folder / "levels",
            base_url=base_url,
            first_number=len(self.levels),
        )
        self._play_written(written)

    def _play_written(
        self, written: Written, should_stop: Callable[[], bool] | None = None
    ) -> None:
        folder = Path(written.job.calls)
        self.levels += written.rows
        self.calls.append(PlannedCalls(folder))
        self.load.play(
            written.job,
            folder / "levels.json",
            on_event=self._tell,
            should_abort=self._has_died,
            should_stop=should_stop,
        )

    def _has_died(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def _tell(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "level":
            self.progress(f"  {self.levels[int(event['level'])].name}")
        elif "message" in event:
            self.progress(f"  {event['message']}")

    def _planned(self, index: int) -> Planned:
        return next(calls.planned(index) for calls in self.calls if index in calls)

    def _decoded(self, job: LoadJob) -> Decoded | None:
        conf = self.prepared.conf
        if conf.load.workers > 1 or conf.load.remote_workers:
            with suppress(OSError):  # the workers did not come: nothing was measured
                return gather(
                    self.folder,
                    levels=self.levels,
                    block=conf.block,
                    count_tokens=self._count_tokens,
                    decoder=self._decoder,
                )
            return None
        journal = Path(job.journal)
        return self._decoder(None).decode(journal) if journal.exists() else None

    def _decoder(self, worker: int | None) -> JournalDecoder:
        return JournalDecoder(
            adapter=self.prepared.adapter,
            block=self.prepared.conf.block,
            planned=self._planned,
            levels=self.levels,
            count_tokens=self._count_tokens,
            worker=worker,
        )

    @property
    def _count_tokens(self) -> Callable[[str], int] | None:
        tokenizer = self.prepared.tokenizer
        return tokenizer.count if tokenizer.exact else None


def _gpus_of(conf: RunConf) -> list[int] | None:
    """The GPUs that an engine of ours runs on, in their driver's order.

    None, which is all of them, for a server that is not ours, or where CUDA is told otherwise.
    """
    engine = conf.engine
    is_told = "CUDA_VISIBLE_DEVICES" in {**os.environ, **engine.env}
    if conf.launch.mode is LaunchMode.ATTACH or is_told:
        return None
    return engine.gpus if engine.gpus is not None else list(range(engine.tp * engine.pp))
