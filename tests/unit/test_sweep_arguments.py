"""What is done to the command line before Hydra sees it, and how a job is told from others."""

import pytest

from harness.config import LaunchConf, LaunchMode
from harness.sweep.hydra_app import _ordered
from harness.sweep.run_task import _swept


def test_options_come_before_overrides_in_their_order() -> None:
    given = ["load.users=2", "--config-dir", "my=conf", "scenario=x", "--cfg", "job", "~slo", "a=1"]
    assert _ordered(given) == [
        *("--config-dir", "my=conf", "--cfg", "job"),
        *("load.users=2", "scenario=x", "~slo", "a=1"),
    ]


def test_raw_arguments_and_variables_need_no_plus() -> None:
    given = ["engine.args.n-gpu-layers=9", "engine.env.X=1,2", "+engine.env.Y=1", "engine.name=a"]
    assert _ordered(given) == [
        *("++engine.args.n-gpu-layers=9", "++engine.env.X=1,2"),
        *("+engine.env.Y=1", "engine.name=a"),
    ]


def test_a_job_is_named_by_what_the_others_do_not_share() -> None:
    jobs = [["load.users=1", "name=n", "++engine.env.X=1"], ["load.users=2", "name=n"]]
    assert _swept(jobs) == ["load.users=1, engine.env.X=1", "load.users=2"]
    assert _swept([["load.users=1", "name=n"]]) == [""]


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/", "//"])
def test_a_base_url_has_one_form(ending: str) -> None:
    """Case C54."""
    conf = LaunchConf(mode=LaunchMode.ATTACH, base_url=f"http://127.0.0.1:8000/api{ending}")
    assert conf.base_url == "http://127.0.0.1:8000/api"
