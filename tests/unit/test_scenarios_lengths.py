"""Lengths of real services: their tables, what is drawn from them, what is clipped and said."""

import math
from bisect import bisect_right
from pathlib import Path
from typing import Any

import pytest

from harness.config import GroupConf, Lengths, LognormalConf, ScenarioConf
from harness.errors import ConfigError
from scenarios.length_tables import CELLS, length_table, quantiles, table_names
from scenarios.lengths import length_facts, lengths, longest

# Rows and P99 of input and output, counted in the whole traces; the third and fourth number are
# the P99 of the lognormal that fits them best (method.md 2.2).
SERVICES = {
    "azure_code": (8819, (7436, 252), (6.999, 1.360), (25912, 117)),
    "azure_conv": (19366, (4142, 601), (6.633, 0.985), (7516, 1115)),
    "mooncake_conversation": (12031, (85401, 1120), (8.737, 1.199), (101_000, 4895)),
}
P99_NORMAL = 2.3263


def scenario(**changes: Any) -> ScenarioConf:
    limits = {"input_tokens": 200_000, "output_tokens": 10_000}
    return ScenarioConf(**{"name": "x", **limits, **changes})


def empirical(source: str, **changes: Any) -> ScenarioConf:
    return scenario(lengths=Lengths.EMPIRICAL, length_source=source, **changes)


def drawn(conf: ScenarioConf, side: str, count: int = 5000) -> list[int]:
    return [getattr(lengths(conf, "1:0", index), f"{side}_tokens") for index in range(count)]


def ks_distance(sample: list[int], table: list[int]) -> float:
    """The largest distance between the distribution of a sample and that of a table."""
    ordered = sorted(sample)

    def share(values: list[int], edge: int) -> float:
        return bisect_right(values, edge) / len(values)

    return max(abs(share(ordered, edge) - share(table, edge)) for edge in {*sample, *table})


def test_the_tables_are_those_of_three_services() -> None:
    assert table_names() == tuple(sorted(SERVICES))


@pytest.mark.parametrize("name", SERVICES)
def test_a_table_holds_the_quantiles_of_the_whole_trace(name: str) -> None:
    rows, p99, _, _ = SERVICES[name]
    table = length_table(name)
    assert table.facts["rows"] == rows
    assert table.facts["licence"] in {"CC-BY-4.0", "Apache-2.0"}
    assert table.facts["url"].startswith("https://github.com/")
    for side, real in zip(("input", "output"), p99, strict=True):
        values = getattr(table, f"{side}_tokens")
        assert len(values) == CELLS + 1
        assert list(values) == sorted(values)
        assert table.quantile(side, 0.99) == pytest.approx(real, rel=0.03)


@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize("name", SERVICES)
def test_5000_draws_follow_the_table(name: str, side: str) -> None:
    sample = drawn(empirical(name), side)
    assert ks_distance(sample, list(getattr(length_table(name), f"{side}_tokens"))) < 0.03


def test_input_and_output_are_drawn_independently() -> None:
    conf = empirical("azure_conv")
    pairs = list(zip(drawn(conf, "input"), drawn(conf, "output"), strict=True))
    logs = [(math.log(a), math.log(b)) for a, b in pairs]
    means = [sum(side) / len(logs) for side in zip(*logs, strict=True)]
    cross = sum((a - means[0]) * (b - means[1]) for a, b in logs)
    spread = [sum((pair[k] - means[k]) ** 2 for pair in logs) for k in (0, 1)]
    assert abs(cross / math.sqrt(spread[0] * spread[1])) < 0.05


@pytest.mark.parametrize("name", SERVICES)
def test_a_lognormal_misses_the_tail_and_says_so(name: str) -> None:
    _, p99, (mean, sigma), wrong = SERVICES[name]
    law = LognormalConf(
        input_log_mean=mean, input_log_sigma=sigma, output_log_mean=4, output_log_sigma=0.5
    )
    conf = scenario(lengths=Lengths.LOGNORMAL, lognormal=law)
    sample = sorted(drawn(conf, "input"))
    assert sample[4949] == pytest.approx(wrong[0], rel=0.15)
    assert sample[4949] / p99[0] > 1.1
    assert "fallback" in length_facts(conf)["note"]
    assert math.exp(mean + P99_NORMAL * sigma) == pytest.approx(wrong[0], rel=0.02)


def test_what_is_beyond_the_limits_is_clipped_and_counted() -> None:
    conf = empirical("azure_conv", input_tokens=1000, input_tokens_min=100, output_tokens=200)
    sample = drawn(conf, "input")
    assert (min(sample), max(sample)) == (100, 1000)
    wide = drawn(empirical("azure_conv"), "input")
    outside = sum(size < 100 or size > 1000 for size in wide) / len(wide)
    facts = length_facts(conf)
    assert facts["clipped_input_ratio"] == pytest.approx(outside, abs=0.02)
    assert facts["clipped_output_ratio"] == pytest.approx(
        sum(size > 200 for size in drawn(empirical("azure_conv"), "output")) / 5000, abs=0.02
    )
    assert facts["lengths"] == "empirical"
    assert (facts["source"], facts["licence"]) == ("azure_conv", "CC-BY-4.0")
    assert len(facts["sha256"]) == 64
    assert length_facts(empirical("azure_conv"))["clipped_input_ratio"] == 0


def test_a_lognormal_tells_its_clipped_share_too() -> None:
    law = LognormalConf(
        input_log_mean=math.log(100), input_log_sigma=1, output_log_mean=1, output_log_sigma=1
    )
    facts = length_facts(scenario(lengths=Lengths.LOGNORMAL, lognormal=law, input_tokens=100))
    assert facts["clipped_input_ratio"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("kind", [Lengths.UNIFORM, Lengths.TRACE])
def test_lengths_that_are_said_in_full_need_no_facts(kind: Lengths) -> None:
    assert length_facts(scenario(lengths=kind)) == {}


def test_a_table_and_its_inverse_agree() -> None:
    table = length_table("azure_conv")
    for side in ("input", "output"):
        for place in range(0, 1001, 7):
            share = place / 1000
            tokens = table.quantile(side, share)
            assert table.share_at_most(side, tokens) >= share - 1e-9
            assert table.share_at_most(side, tokens - 1) <= share + 1e-9
    assert table.share_at_most("input", 0) == 0
    assert table.share_at_most("input", 10**6) == 1


def test_quantiles_are_order_statistics() -> None:
    found = quantiles(list(range(1, 1025)))
    assert (found[0], found[1], found[256], found[512]) == (1, 2, 512, 1024)
    assert set(quantiles([7])) == {7}


def test_a_trace_of_ones_own_gives_its_lengths(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = [f"{k},{100 + k % 10},{20 + k % 5}" for k in range(1000)]
    path.write_text("\n".join(["time,input_tokens,output_tokens", *rows]), encoding="utf-8")
    conf = empirical(str(path))
    assert set(drawn(conf, "input", 500)) == set(range(100, 110))
    assert set(drawn(conf, "output", 500)) == set(range(20, 25))
    facts = length_facts(conf)
    assert (facts["source"], facts["rows"]) == ("mine.csv", 1000)


def test_an_unknown_table_names_those_there_are() -> None:
    message = r"scenario\.length_source=nope: neither .* azure_code, azure_conv, mooncake"
    with pytest.raises(ConfigError, match=message):
        lengths(empirical("nope"), "1:0", 0)


def test_a_group_has_lengths_of_its_own_and_takes_the_rest() -> None:
    conf = empirical("azure_conv", output_tokens=50)
    group = GroupConf(name="short", input_tokens=20, input_tokens_min=10)
    sizes = [lengths(conf, "1:0", index, group) for index in range(500)]
    assert {size.input_tokens for size in sizes} == set(range(10, 21))
    assert [size.output_tokens for size in sizes] == drawn(conf, "output", 500)
    assert longest(conf, group).input_tokens == 20
    assert longest(conf, group).output_tokens == 50
