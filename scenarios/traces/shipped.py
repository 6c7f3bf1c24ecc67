"""The traces that ship with bakeoff: short cuts of public ones, with whom to thank for them."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """One shipped trace: its file in `data/`, where it comes from and under which licence."""

    file: str
    cut: str
    licence: str
    attribution: str


_AZURE = (
    "Azure LLM inference traces 2023 by Microsoft (github.com/Azure/AzurePublicDataset), "
    "described in Patel et al., Splitwise, ISCA 2024"
)
_MOONCAKE = (
    "Mooncake traces, FAST'25 release (github.com/kvcache-ai/Mooncake), described in Qin et al., "
    "Mooncake, FAST 2025"
)

SHIPPED: Mapping[str, Shipped] = {
    "azure_code": Shipped(
        file="azure_code.csv.gz",
        cut="the first 20 minutes, rows unchanged",
        licence="CC-BY-4.0",
        attribution=_AZURE,
    ),
    "azure_conv": Shipped(
        file="azure_conv.csv.gz",
        cut="the first 20 minutes, rows unchanged",
        licence="CC-BY-4.0",
        attribution=_AZURE,
    ),
    "mooncake_conversation": Shipped(
        file="mooncake_conversation.jsonl.gz",
        cut="the first 6 minutes, rows unchanged",
        licence="Apache-2.0",
        attribution=_MOONCAKE,
    ),
    "mooncake_synthetic": Shipped(
        file="mooncake_synthetic.jsonl.gz",
        cut="the first 5 minutes, rows unchanged",
        licence="Apache-2.0",
        attribution=_MOONCAKE,
    ),
}
