"""The adapter inside the load: only for sessions, and for workers, which decode their journals."""

import msgspec

from harness.adapter import Adapter
from harness.config import EngineConf, LaunchMode, ModelConf
from harness.load.job import LoadJob
from harness.registry import open_adapter


def open_job_adapter(job: LoadJob) -> Adapter:
    """The adapter of a job's configuration; ConfigError if there is none."""
    engine = msgspec.convert(job.engine, EngineConf)
    model = msgspec.convert(job.model, ModelConf)
    return open_adapter(engine, model, LaunchMode(job.mode))
