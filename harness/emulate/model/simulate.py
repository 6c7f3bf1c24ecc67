"""The timing model played by itself: when would each token come?"""

from collections.abc import Iterable

from harness.emulate.model.engine import EngineModel
from harness.emulate.model.sequence import Sequence


def token_times(model: EngineModel, sequences: Iterable[Sequence]) -> list[list[float]]:
    """For each sequence, in the order given: when its tokens come, virtual seconds."""
    given = list(sequences)
    times: dict[Sequence, list[float]] = {sequence: [] for sequence in given}
    for sequence in sorted(given, key=lambda one: one.arrival_s):
        model.submit(sequence)
    while (end_s := model.begin()) is not None:
        for sequence in model.finish():
            times[sequence].append(end_s)
    return [times[sequence] for sequence in given]
