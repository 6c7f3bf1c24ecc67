"""What to measure next, as a `bakeoff` command line with its reason.

The value of a measurement is that it may change the answer; so what is open comes first (no
blocks, no requests, nobody to compare with), then the load that nobody has tried yet.
"""

from collections.abc import Iterable

from harness.analysis.intervals import blocks_needed
from harness.analysis.model import Candidate
from harness.recommend.case import Case, Scored
from harness.recommend.model import Fit, NextMeasurement
from harness.recommend.slo import needed

USUAL_REPEATS = 5
OTHER_ENGINES = ("llamacpp", "vllm", "vllm_cpu", "transformers")


def command(case: Case, scored: Iterable[Scored], *extra: str) -> str:
    """`bakeoff run` for the candidates of these cells, with further arguments."""
    candidates = list(dict.fromkeys(item.key for item in scored))
    known = {item.key: item.cell.candidate for item in case.scored}
    chosen = [known[key] for key in candidates]
    engines = ",".join(dict.fromkeys(candidate.engine for candidate in chosen))
    parts = ["bakeoff", "run", f"engine={engines}", *_model_args(chosen[0])]
    scenario = case.question().scenario
    if scenario:
        parts.append(f"scenario={scenario}")
    return " ".join([*parts, *_swept_settings(chosen), *extra])


def _model_args(candidate: Candidate) -> tuple[str, ...]:
    """A model file of the user's own has to be named again."""
    path = candidate.settings.get("model.path")
    return ("model=file", f"model.path={path}", f"model.name={candidate.model}") if path else ()


def _swept_settings(candidates: list[Candidate]) -> list[str]:
    """Engine settings in which candidates of one engine differ, as a sweep."""
    if len({candidate.engine for candidate in candidates}) > 1:
        return []
    keys = dict.fromkeys(key for candidate in candidates for key in candidate.settings)
    args = []
    for key in keys:
        values = list(dict.fromkeys(str(c.settings.get(key)) for c in candidates))
        if len(values) > 1 and key.startswith("engine.") and key != "engine.version":
            args.append(f"{key}={','.join('null' if v == 'None' else v for v in values)}")
    return args


def level_args(scored: Scored, load: float) -> tuple[str, ...]:
    """Arguments that play the kind of load of a cell at another height."""
    workload = scored.cell.workload
    if workload.closed:
        return ("load=users", f"load.users={max(1, round(load))}")
    shape = workload.level.split("=")[0]
    return (f"load={shape}", f"load.rate_rps={load:g}")


def more_blocks(case: Case) -> NextMeasurement:
    """More rounds of the same, as many as would settle the difference that was seen."""
    ranking = case.ranking
    repeats: int | None = USUAL_REPEATS
    why = "a comparison needs blocks in which every contender was started"
    if ranking is not None:
        repeats = blocks_needed(ranking.spread, ranking.gap)
        why = f"the difference seen would need about {repeats} blocks"
    if repeats is None:
        repeats, why = USUAL_REPEATS, "the difference is smaller than blocks can settle: it is luck"
    repeats = max(repeats, case.common_blocks + 1)
    contenders = [contender.scored for contender in case.contenders]
    args = level_args(contenders[0], contenders[0].load)
    return NextMeasurement(command=command(case, contenders, *args, f"repeats={repeats}"), why=why)


def more_requests(case: Case) -> NextMeasurement:
    """More requests where the share of good ones is not known well enough."""
    open_cells = [scored for scored in case.scored if scored.fit is Fit.UNKNOWN]
    target = case.asked.slo.attainment_ratio
    counts = {scored.key: needed(scored, target) for scored in open_cells}
    wanted = min((count for count in counts.values() if count), default=None)
    lowest = min(open_cells, key=lambda scored: scored.load)
    args = level_args(lowest, lowest.load)
    why = "the share of good requests is not known"
    if wanted is not None:
        args = (*args, f"load.requests={wanted}")
        why = f"about {wanted} requests would tell whether the SLO is kept in {target:.0%} of cases"
    return NextMeasurement(command=command(case, open_cells, *args), why=why)


def lower_load(case: Case) -> NextMeasurement | None:
    """Half the lowest load tried; None where that was one user, with nothing below."""
    lowest = min(case.scored, key=lambda scored: scored.load)
    if lowest.cell.workload.closed and lowest.load <= 1:
        return None
    args = level_args(lowest, lowest.load / 2)
    return NextMeasurement(
        command=command(case, case.scored, *args),
        why="every load tried was too high; a lower one may fit",
    )


def another_engine(case: Case) -> NextMeasurement:
    """The same question for engines that were not measured."""
    scored = case.contenders[0].scored if case.contenders else case.scored[0]
    known = {item.cell.candidate.engine for item in case.scored}
    others = [name for name in OTHER_ENGINES if name not in known]
    args = level_args(scored, scored.load)
    line = command(case, [scored], *args, f"repeats={USUAL_REPEATS}")
    engine = scored.cell.candidate.engine
    return NextMeasurement(
        command=line.replace(f"engine={engine}", f"engine={engine},{others[0]}", 1),
        why=f"{engine} was not compared with anything",
    )


def probe_capacity(case: Case) -> NextMeasurement | None:
    """The load between what the best keeps and what it misses, or double if nothing is above."""
    if case.best is None:
        return None
    best = case.contenders[case.best]
    load, above = best.scored.load, best.above
    if load <= 0:
        return None
    if above is None:
        target, why = load * 2, f"nobody was measured above {best.cell.workload.level}"
    else:
        target = (load * above.load) ** 0.5
        why = f"capacity lies between {best.cell.workload.level} and {above.cell.workload.level}"
        if best.cell.workload.closed and round(target) in {round(load), round(above.load)}:
            return None
    scored = [contender.scored for contender in case.contenders]
    return NextMeasurement(command=command(case, scored, *level_args(best.scored, target)), why=why)
