"""What holds for a whole load: the server's address, the limits, and no secret."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from harness.config import EngineConf, LaunchConf, LoadConf, ModelConf, RunConf, ScenarioConf
from harness.errors import ConfigError
from harness.load.job import LoadJob, Target, read_job
from harness.run.load_job import load_job, load_target

CONF = RunConf(
    engine=EngineConf(name="openai", max_running=3, env={"HF_TOKEN": "hf_secret"}),
    model=ModelConf(name="tiny", served_name="t"),
    scenario=ScenarioConf(name="fixed"),
    load=LoadConf(
        users=2,
        requests=5,
        request_timeout_s=7.0,
        drain_timeout_s=8.0,
        settle_s=0.25,
        retries=2,
        workers=3,
        remote_workers=1,
        worker_wait_s=9.0,
        master_bind="0.0.0.0:5000",
    ),
)


@pytest.mark.parametrize(
    ("base_url", "prefix"),
    [
        ("http://127.0.0.1:8000", ""),
        ("http://127.0.0.1:8000/", ""),
        ("http://127.0.0.1:8000/v1", ""),
        ("http://127.0.0.1:8000/v1/", ""),  # C54
        ("http://127.0.0.1:8000/proxy/v1/", "/proxy"),
        ("http://127.0.0.1:8000/proxy/", "/proxy"),
        ("http://127.0.0.1:8000/v11", "/v11"),
    ],
)
def test_a_base_url_joins_the_adapters_paths(base_url: str, prefix: str) -> None:
    assert load_target(CONF, base_url) == Target(host="127.0.0.1", port=8000, prefix=prefix)


@pytest.mark.parametrize(
    ("base_url", "host", "port", "is_tls", "authority"),
    [
        ("http://h:81", "h", 81, False, "h:81"),
        ("http://h", "h", 80, False, "h"),
        ("https://h", "h", 443, True, "h"),
        ("https://h:80", "h", 80, True, "h:80"),
        ("http://[::1]:8000", "::1", 8000, False, "[::1]:8000"),
        ("https://[fd00::2]/v1", "fd00::2", 443, True, "[fd00::2]"),
        ("http://user:key@h:81", "h", 81, False, "h:81"),  # a key in the URL is not passed on
    ],
)
def test_the_address_of_the_server(
    base_url: str, host: str, port: int, is_tls: bool, authority: str
) -> None:
    target = load_target(CONF, base_url)
    assert (target.host, target.port, target.is_tls) == (host, port, is_tls)
    assert target.authority == authority


@pytest.mark.parametrize("base_url", ["h:81", "ftp://h", "http://", "http://h:port", ""])
def test_what_is_no_url_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigError, match=r"launch\.base_url="):
        load_target(CONF, base_url)


def test_the_job_says_what_holds_for_all_levels(tmp_path: Path) -> None:
    launch = LaunchConf(api_key_env="MY_KEY", tls_verify=False)
    job = load_job(replace(CONF, launch=launch), "https://h:81", tmp_path)
    assert job.zero_s > 0
    assert job == LoadJob(
        zero_s=job.zero_s,
        target=Target(host="h", port=81, is_tls=True, tls_verify=False, api_key_env="MY_KEY"),
        journal=str(tmp_path / "journal.bin"),
        request_timeout_s=7.0,
        drain_timeout_s=8.0,
        settle_s=0.25,
        retries=2,
        workers=3,
        remote_workers=1,
        worker_wait_s=9.0,
        master_bind="0.0.0.0:5000",
        engine=job.engine,
        model=job.model,
        mode="process",
    )


def test_an_adapter_can_be_made_from_the_job_but_no_secret_is_in_it(tmp_path: Path) -> None:
    load_job(CONF, "http://h:81", tmp_path).write(tmp_path / "job.json")
    assert b"hf_secret" not in (tmp_path / "job.json").read_bytes()
    job = read_job(tmp_path / "job.json")
    engine = msgspec.convert(job.engine, EngineConf)
    assert engine == replace(CONF.engine, env={})
    assert msgspec.convert(job.model, ModelConf) == CONF.model
