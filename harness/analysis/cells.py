"""From stored runs to the summary that report, recommender and comparison read.

Everything is computed once, here; readers get plain values and no frames.
"""

import re
from collections.abc import Sequence

from harness.analysis.candidates import candidate_of, label_apart
from harness.analysis.cell_doubts import cell_doubts, is_invalid
from harness.analysis.compare import compare_all
from harness.analysis.engine_memory import engine_memory
from harness.analysis.estimates import cell_figures
from harness.analysis.found_rates import found_rates
from harness.analysis.model import Candidate, Cell, EngineMemory, FailedRun, Summary, Workload
from harness.analysis.pieces import Piece, measures_of, pieces_of, request_timeout_s
from harness.analysis.selection import MEASURED, damaged, newest
from harness.config import SloConf
from harness.errors import StoreFormatError
from harness.store import StoredRun
from harness.types import Doubt, Severity


def summarise(
    runs: Sequence[StoredRun], *, slo: SloConf | None = None, doubts: Sequence[Doubt] = ()
) -> Summary:
    """Summarise runs: cells, verdicts, failures and doubts.

    `slo`: judge all runs by it; None: each by the one it was configured with. `doubts`: what
    opening the store found. Of runs with equal content the newest that was measured counts.
    A run that is not valid is left out of its cell if others are; a cell without a valid run
    keeps an INVALID doubt and gets no verdict.
    """
    kept, notes = newest(runs)
    labelled = label_apart([candidate_of(run.info) for run in kept])
    pieces: list[Piece] = []
    failed: list[FailedRun] = []
    for run in kept:
        candidate = labelled[candidate_of(run.info).key]
        if run.info.outcome not in MEASURED or not run.info.levels:
            failed.append(_failed(run, candidate))
            continue
        try:
            pieces += pieces_of(run, slo)
        except StoreFormatError as error:
            notes.append(damaged(run, error))
    cells = _cells(pieces, labelled)
    infos = {run.info.run_id: run.info for run in kept}
    workloads = dict.fromkeys(cell.workload.key for cell in cells)
    verdicts = [
        verdict
        for key in workloads
        for verdict in compare_all([c for c in cells if c.workload.key == key], runs=infos)
    ]
    return Summary(
        title=", ".join(sorted({run.folder.parent.name for run in kept})),
        cells=tuple(cells),
        verdicts=tuple(verdicts),
        failed=tuple(failed),
        doubts=(*doubts, *notes),
        runs=infos,
        measures=measures_of(pieces, labelled),
        found=found_rates(list(infos.values()), labelled),
        memory=_memory(pieces, labelled),
    )


def _memory(pieces: Sequence[Piece], labelled: dict[str, Candidate]) -> tuple[EngineMemory, ...]:
    """The memory of each candidate with a measured level, in the order of their cells' labels."""
    runs: dict[str, dict[str, StoredRun]] = {}
    for piece in pieces:
        key = candidate_of(piece.run.info).key
        runs.setdefault(key, {})[piece.run.info.run_id] = piece.run
    found = [engine_memory(labelled[key], list(own.values())) for key, own in runs.items()]
    return tuple(sorted(found, key=lambda one: _by_number(one.candidate.label)))


def _failed(run: StoredRun, candidate: Candidate) -> FailedRun:
    info = run.info
    invalid = [doubt.what for doubt in info.doubts if doubt.severity is Severity.INVALID]
    reason = info.diagnosis or "; ".join(invalid) or f"the run ended as {info.outcome.value}"
    scenario = info.config.get("scenario") or {}
    return FailedRun(
        run_id=info.run_id,
        candidate=candidate,
        scenario=str(scenario.get("name", "")),
        outcome=info.outcome,
        reason=reason,
    )


def _cells(pieces: Sequence[Piece], labelled: dict[str, Candidate]) -> list[Cell]:
    groups: dict[tuple[str, str], list[Piece]] = {}
    for piece in pieces:
        key = candidate_of(piece.run.info).key
        groups.setdefault((key, piece.workload.key), []).append(piece)
    cells = [_cell(labelled[key], group) for (key, _), group in groups.items()]
    return sorted(cells, key=lambda cell: (_order(cell.workload), _by_number(cell.candidate.label)))


def _by_number(label: str) -> list[tuple[str, float]]:
    """Sort key by which `max_running=8` comes before `max_running=16`."""
    pieces = re.findall(r"(\D*)(\d*)", label)
    return [(text, float(digits or 0)) for text, digits in pieces]


def _order(workload: Workload) -> tuple[str, tuple[int, int], tuple[int, int], bool, float, str]:
    load = workload.users if workload.closed else workload.rate_rps
    lengths = workload.input_tokens, workload.output_tokens
    return workload.scenario, *lengths, not workload.closed, float(load or 0), workload.level


def _cell(candidate: Candidate, group: Sequence[Piece]) -> Cell:
    ordered = sorted(group, key=lambda p: (p.run.folder.parent.name, p.run.info.block))
    valid = [piece for piece in ordered if not is_invalid(piece.doubts)]
    used = valid or ordered
    figures = cell_figures([piece.view for piece in used])
    measured = [piece.view.measured for piece in used]
    estimates = {name: estimate for name, (estimate, _) in figures.items()}
    return Cell(
        candidate=candidate,
        workload=used[0].workload,
        run_ids=tuple(piece.run.info.run_id for piece in used),
        blocks=tuple(piece.run.info.block for piece in used),
        sweeps=tuple(piece.run.folder.parent.name for piece in used),
        n=sum(len(rows) for rows in measured),
        n_ok=sum(int(rows["is_ok"].sum()) for rows in measured),
        n_failed=sum(int(rows["is_failed"].sum()) for rows in measured),
        n_censored=sum(int(rows["is_censored"].sum()) for rows in measured),
        metrics=estimates,
        per_run={name: per_run for name, (_, per_run) in figures.items()},
        doubts=cell_doubts(
            {piece.run.info.run_id: piece.doubts for piece in used},
            left_out={p.run.info.run_id: p.doubts for p in ordered if p not in used},
            metrics=estimates,
            rates=figures["output_tokens_per_s"][1],
        ),
        emulated=used[0].run.info.emulated,
        measured_at=max(piece.run.info.started_at for piece in used),
        n_timed_out=sum(piece.achieved.timed_out for piece in used),
        request_timeout_s=request_timeout_s(used[0]),
        achieved=tuple(piece.achieved for piece in used),
    )
