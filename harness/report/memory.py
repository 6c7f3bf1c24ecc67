"""The table of where each candidate's memory goes, with the origin of every figure."""

from dataclasses import dataclass

from harness.analysis.model import Amount, EngineMemory, Summary
from harness.units import byte_size, count

HEADS = ("Weights", "KV pool", "KV capacity", "Peak, GPU", "Peak, processes")
_NOT_EXPOSED = "not exposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCell:
    """One figure as it is shown; `exact`: the stored number, empty if there is none."""

    text: str
    origin: str = ""
    exact: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """One candidate; `cells` as `HEADS`."""

    label: str
    key: str
    cells: tuple[MemoryCell, ...]


def memory_rows(summary: Summary) -> list[MemoryRow]:
    """A row for each candidate with figures."""
    return [
        MemoryRow(label=one.candidate.label, key=one.candidate.key, cells=_cells(one))
        for one in summary.memory
    ]


def _cells(memory: EngineMemory) -> tuple[MemoryCell, ...]:
    capacity = memory.kv_capacity_tokens
    tokens = MemoryCell(text=_NOT_EXPOSED)
    if capacity is not None:
        tokens = MemoryCell(text=f"{count(capacity)} tokens", exact=str(capacity))
    return (
        _amount(memory.weights),
        _amount(memory.kv_pool),
        tokens,
        _amount(memory.gpu_peak),
        _amount(memory.rss_peak),
    )


def _amount(amount: Amount) -> MemoryCell:
    if amount.value_bytes is None:
        return MemoryCell(text=amount.source or _NOT_EXPOSED)
    return MemoryCell(
        text=byte_size(amount.value_bytes),
        origin=f"{amount.provenance.value}: {amount.source}",
        exact=str(amount.value_bytes),
    )
