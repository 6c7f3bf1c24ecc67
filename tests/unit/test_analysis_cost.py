import pytest

from harness.analysis.cost import cost_estimate, cost_per_million, fleet
from harness.errors import ConfigError
from harness.types import Estimate


@pytest.mark.parametrize(("tokens_per_s", "cost"), [(2000, 4.17), (1200, 6.94), (1500, 5.56)])
def test_cost_at_full_use(tokens_per_s: float, cost: float) -> None:
    assert cost_per_million(30, tokens_per_s) == pytest.approx(cost, abs=0.005)


def test_no_price_and_no_tokens_give_no_cost() -> None:
    assert cost_per_million(None, 2000) is None
    assert cost_per_million(30, None) is None
    assert cost_per_million(30, 0) is None


def test_the_interval_turns_round() -> None:
    cost = cost_estimate(36, Estimate(value=100, ci_low=80, ci_high=125, n=4))
    assert (cost.value, cost.ci_low, cost.ci_high) == (100, 80, 125)
    assert cost_estimate(36, Estimate(value=100, ci_low=-5, ci_high=125)).ci_high is None


@pytest.mark.parametrize(
    ("tokens_per_s", "replicas", "per_mtok"),
    [(1500, 4, 28.8), (2000, 3, 21.6), (2500, 2, 14.4), (3000, 2, 14.4)],
)
def test_the_fleets_worked_example(tokens_per_s: float, replicas: int, per_mtok: float) -> None:
    plan = fleet(tokens_per_day=1e8, tokens_per_s=tokens_per_s, price_per_hour=30)
    assert plan.needed_per_s == pytest.approx(4960.3, abs=0.1)
    assert plan.replicas == replicas
    assert plan.per_mtok == pytest.approx(per_mtok)
    assert plan.per_day == replicas * 30 * 24
    assert plan.use_ratio == pytest.approx(1e8 / (86400 * replicas * tokens_per_s))


def test_spare_replicas_and_several_machines_are_paid() -> None:
    plan = fleet(tokens_per_day=1e8, tokens_per_s=1500, price_per_hour=30, spare=1, machines=2)
    assert (plan.replicas, plan.per_day) == (5, 5 * 2 * 30 * 24)
    assert plan.naive_per_mtok == pytest.approx(2 * 5.5556, abs=0.001)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="tokens_per_s=0: must be"):
        fleet(tokens_per_day=1e8, tokens_per_s=0, price_per_hour=30)
