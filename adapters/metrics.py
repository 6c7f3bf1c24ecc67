"""Prometheus text to figures, tolerant of versions.

Several names for one figure, lines that do not parse, `-nan`, several engines behind one address:
all are met in the field. What is not there is None, never 0.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from harness.types import EngineSample, Provenance

# EngineSample field: names, the newest first. Sources: the engines' /metrics, one prefix each.
_SUMS: Mapping[str, tuple[str, ...]] = {
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "sglang_num_running_reqs",
        "llamacpp:requests_processing",
        "tgi_batch_current_size",
    ),
    "waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "sglang_num_queue_reqs",
        "llamacpp:requests_deferred",
        "tgi_queue_size",
    ),
    "prompt_tokens_total": (
        "vllm:prompt_tokens_total",
        "sglang:prompt_tokens_total",
        "sglang_prompt_tokens_total",
        "tgi_request_input_length_sum",
    ),
    "generation_tokens_total": (
        "vllm:generation_tokens_total",
        "sglang:generation_tokens_total",
        "sglang_generation_tokens_total",
        "llamacpp:tokens_predicted_total",
        "tgi_request_generated_tokens_sum",
    ),
    "prefix_cached_tokens_total": (
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
        "sglang:cached_tokens_total",
        "sglang_cached_tokens_total",
        "llamacpp:prompt_tokens_cached_total",
    ),
    "preemptions_total": (
        "vllm:num_preemptions_total",
        "sglang:num_retracted_requests_total",
        "sglang_num_retracted_requests_total",
    ),
    "draft_tokens_total": (
        "vllm:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_draft_tokens_total",
    ),
    "accepted_tokens_total": (
        "vllm:spec_decode_num_accepted_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total",
    ),
}
_KV_USAGE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "sglang_token_usage",
)


class Metrics:
    """One scrape. Series are looked up by the printed name; those of other engines are summed.

    Only the lines of a name that is asked for are parsed: a scrape of vLLM 0.32.0 has 53 kB, and
    parsing all of it twice a second cost 4 % of a core.
    """

    def __init__(self, body: bytes) -> None:
        self._lines: dict[str, list[str]] = {}
        for line in body.decode(errors="replace").splitlines():
            words = line.partition("{")[0].split(maxsplit=1)
            if words and not words[0].startswith("#"):
                self._lines.setdefault(words[0], []).append(line)

    def total(self, *names: str, **labels: str) -> float | None:
        """The sum over all series of the first of these names that is there.

        `labels`: only the series that carry all of these; without any, None.
        """
        found = self._first(names, labels)
        return sum(found) if found else None

    def mean(self, *names: str, **labels: str) -> float | None:
        """The mean over all series of the first of these names that is there; see `total`."""
        found = self._first(names, labels)
        return sum(found) / len(found) if found else None

    def labels(self, name: str) -> list[Mapping[str, str]]:
        """The labels of each series of this name: what an `_info` metric says; empty if absent."""
        return [one.labels for one in self._series(name)]

    def _first(self, names: Iterable[str], labels: Mapping[str, str]) -> list[float]:
        series = next((found for name in names if (found := self._series(name))), [])
        return [one.value for one in series if labels.items() <= one.labels.items()]

    def _series(self, name: str) -> list[Sample]:
        samples = _samples(self._lines.get(name, []))
        return [s for s in samples if s.name == name and math.isfinite(s.value)]


def _samples(lines: Sequence[str]) -> Iterator[Sample]:
    # without the TYPE lines the parser keeps printed names; with them it adds `_total` to some
    try:
        yield from _parsed("\n".join(lines))
    except ValueError:
        for line in lines:
            try:
                yield from _parsed(line)
            except ValueError:
                continue  # one bad line must not cost the scrape


def _parsed(text: str) -> list[Sample]:
    return [s for family in text_string_to_metric_families(text + "\n") for s in family.samples]


def known_sample(body: bytes) -> EngineSample:
    """The sample of any engine whose names are known here; all None for others."""
    metrics = Metrics(body)
    usage = metrics.mean(*_KV_USAGE)
    figures: dict[str, Any] = {name: metrics.total(*names) for name, names in _SUMS.items()}
    return EngineSample(
        **figures,
        kv_usage_ratio=usage,
        kv_provenance=Provenance.NOT_EXPOSED if usage is None else Provenance.MEASURED,
    )
