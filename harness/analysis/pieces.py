"""One level of one run on its way into a cell: its frames, its doubts, what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.achieved import achieved
from harness.analysis.candidates import candidate_of, not_reached, workload_of
from harness.analysis.cell_doubts import is_invalid, run_level_doubts
from harness.analysis.doubts_load import RATE_NOT_REACHED
from harness.analysis.facts import setting
from harness.analysis.frame import request_frame, sample_frame
from harness.analysis.model import Achieved, Candidate, Workload
from harness.analysis.scenario_measures.collect import scenario_measures
from harness.analysis.scenario_measures.runs import PlayedRun
from harness.analysis.scenario_measures.table import Measure
from harness.analysis.validity import view_doubts
from harness.analysis.views import LevelView, level_view, slo_of
from harness.config import Shape, SloConf
from harness.store import StoredRun
from harness.types import Doubt, EngineSample, HostSample, Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One level of one run, on its way into a cell."""

    run: StoredRun
    workload: Workload
    view: LevelView
    doubts: tuple[Doubt, ...]
    achieved: Achieved


def pieces_of(run: StoredRun, slo: SloConf | None) -> list[Piece]:
    """The levels of a run; StoreFormatError if its tables cannot be read.

    `slo`: judge it by this one; None: by the one it was configured with.
    """
    info = run.info
    frame = request_frame(run)
    engine = sample_frame(run.engine_samples(), EngineSample)
    host = sample_frame(run.host_samples(), HostSample)
    candidate = candidate_of(info)
    views = [
        level_view(
            frame,
            level,
            engine=engine,
            host=host,
            slo=slo if slo is not None else slo_of(info),
            price_per_hour=candidate.price_per_hour,
            info=info,
        )
        for level in info.levels
        if level.shape != Shape.SEARCH  # its probes end when they are decided: found_rates
    ]
    # judged when it was measured; only a run that was stored without doubts is judged again
    found = run_level_doubts(info, info.doubts or view_doubts(info, frame, views))
    warmup = int((frame["phase"] == Phase.WARMUP.value).sum())
    return [_piece(run, view, found, warmup) for view in views]


def _piece(run: StoredRun, view: LevelView, found: Sequence[Doubt], warmup: int) -> Piece:
    doubts = tuple(one for one in found if one.where in ("", view.level.name))
    workload = workload_of(run.info, view.level)
    if any(one.code == RATE_NOT_REACHED and is_invalid([one]) for one in doubts):
        workload = not_reached(workload)
    return Piece(
        run=run,
        workload=workload,
        view=view,
        doubts=doubts,
        achieved=achieved(run.info, view, warmup=warmup),
    )


def request_timeout_s(piece: Piece) -> float | None:
    """The limit in force for each request; None if the run does not say."""
    limit_s = setting(piece.run.info, "load.request_timeout_s")
    return None if limit_s is None else float(limit_s)


def measures_of(pieces: Sequence[Piece], labelled: Mapping[str, Candidate]) -> tuple[Measure, ...]:
    """What each candidate's scenarios are about, from the runs with a valid level."""
    played: dict[tuple[str, str], dict[str, list[Piece]]] = {}
    for piece in pieces:
        if not is_invalid(piece.doubts):
            key = piece.workload.scenario, candidate_of(piece.run.info).key
            runs = played.setdefault(key, {})
            runs.setdefault(piece.run.info.run_id, []).append(piece)
    found: list[Measure] = []
    for (_, candidate), runs in played.items():
        each = [
            PlayedRun(info=group[0].run.info, views=tuple(piece.view for piece in group))
            for group in runs.values()
        ]
        label = labelled[candidate].label
        found += scenario_measures(each, candidate=candidate, label=label)
    return tuple(found)
