"""The types that travel between the rooms: frozen values, units in their names.

Times are float seconds on the run's own monotonic clock, whose zero is the start of the load
(`RunInfo.started_at` says when that was on the wall clock). Missing is None, never 0.
This module imports nothing of ours.
"""

from harness.types.engines import (
    Capabilities,
    Determinism,
    Diagnosis,
    EngineIdentity,
    EngineSample,
    HostSample,
    LogFacts,
    Provenance,
    StartTimes,
)
from harness.types.requests import (
    Chunk,
    ChunkKind,
    Clock,
    ErrorClass,
    HttpCall,
    Phase,
    Record,
    Request,
    ResponseHead,
    TokensSource,
    Turn,
    Wire,
)
from harness.types.runs import (
    ClientFacts,
    Level,
    Outcome,
    Probe,
    ProbeEnd,
    RunInfo,
    SearchResult,
)
from harness.types.verdicts import (
    Doubt,
    Estimate,
    Severity,
    Verdict,
    VerdictKind,
)

__all__ = [
    "Capabilities",
    "Chunk",
    "ChunkKind",
    "ClientFacts",
    "Clock",
    "Determinism",
    "Diagnosis",
    "Doubt",
    "EngineIdentity",
    "EngineSample",
    "ErrorClass",
    "Estimate",
    "HostSample",
    "HttpCall",
    "Level",
    "LogFacts",
    "Outcome",
    "Phase",
    "Probe",
    "ProbeEnd",
    "Provenance",
    "Record",
    "Request",
    "ResponseHead",
    "RunInfo",
    "SearchResult",
    "Severity",
    "StartTimes",
    "TokensSource",
    "Turn",
    "Verdict",
    "VerdictKind",
    "Wire",
]
