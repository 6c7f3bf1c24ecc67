"""Engines that refuse, fail or answer nonsense: one clear sentence, the exit code, the outcome.

What every engine must hold; what is wrong in the command alone is in test_bad_input.py.
"""

import socket
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.analysis.cells import summarise
from harness.engine.gpu import Gpus
from harness.store import StoredRun
from harness.testing.command_line import CommandLine, Ended
from harness.testing.emulated import emulated
from harness.testing.records import measured, only_run
from harness.testing.scripted import InTurn, Script, ScriptedServer, Step
from harness.types import Outcome

pytestmark = [
    pytest.mark.timeout(300),  # runs wait for one another on a machine
    pytest.mark.skipif(sys.platform != "linux", reason="the emulator needs epoll"),
]

COMPLETIONS = "/v1/completions"
LOAD = (
    *("model=file", "model.name=mine", "scenario=fixed"),
    *("scenario.input_tokens=20", "scenario.output_tokens=3"),
    *("load.users=1", "load.duration_s=null", "load.requests=3", "load.settle_s=0.05"),
    *("warmup.mode=quick", "validity.max_lag_s=0.5", "name=bad"),
)


def reply(status: int, body: str | bytes, *headers: str, kind: str = "application/json") -> Script:
    """One whole HTTP answer."""
    data = body if isinstance(body, bytes) else body.encode()
    lines = (f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(data)}")
    return ("\r\n".join((*lines, *headers, "", "")).encode() + data,)


def events(*payloads: str) -> Script:
    """One whole stream of events."""
    return reply(200, "".join(f"data: {one}\n\n" for one in payloads), kind="text/event-stream")


GOOD = events(
    '{"choices":[{"text":"a","index":0,"finish_reason":null}]}',
    '{"choices":[{"text":"","index":0,"finish_reason":"length"}],'
    '"usage":{"prompt_tokens":20,"completion_tokens":3}}',
    "[DONE]",
)
BEFORE_THE_LOAD = (GOOD,) * 3  # the ready check and a quick warm-up of one user
PAGE = """<!DOCTYPE html>
<html><head><title>502 Bad Gateway</title></head>
<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>
"""
A_PAGE = "a page of HTML, as of a proxy: 502 Bad Gateway"
ERROR_BODY = reply(200, '{"error":{"message":"CUDA out of memory","code":500}}')
SSH: Script = (b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n", Step.CLOSE)
LIMITED = reply(429, '{"error":{"message":"slow down"}}', "Retry-After: 1")
OK = reply(200, "{}")


def attached(where: ScriptedServer | str) -> tuple[str, ...]:
    """Overrides for a run on a server that runs already."""
    base_url = where if isinstance(where, str) else f"http://127.0.0.1:{where.port}"
    return (*LOAD, "launch=attach", f"launch.base_url={base_url}")


def said(ended: Ended, code: int, run: StoredRun, *words: str) -> None:
    """The run's diagnosis is what was printed: one line, with these words."""
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err
    diagnosis = run.info.diagnosis or ""
    for one in words:
        assert one in diagnosis
    assert ended.lines[-2] == "0 ok, 1 failed:"
    log = run.folder.relative_to(run.folder.parents[2]) / "engine.log"
    printed = diagnosis.replace("; its log: engine.log", f"; its log: {log}")
    assert ended.lines[-1].endswith(f": {printed}")


# Nothing is started, installed or stored.

HAS_GPU = bool(Gpus().facts())
REFUSED = {
    "a flag that the wheel's server has not": (
        ("engine=llamacpp", "+engine.args.nonsense=1"),
        "engine.args.nonsense=1: is no flag of the wheel's server; it takes --cache-ram",
    ),
    "a flag that a neutral key says": (
        ("engine=vllm_cpu", "+engine.args.max-num-seqs=8", "model=file", "model.repo=a/b"),
        "engine.args.max-num-seqs=8: ",
    ),
    "a GPU that is not there": (
        ("engine=transformers", "engine.gpus=[99]", "model=file", "model.repo=a/b"),
        "engine.gpus=[99]: this machine has ",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_started_is_refused_before_anything_is_installed(
    case: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    overrides, words = REFUSED[case]
    cache = tmp_path / "cache"
    ended = bakeoff("run", *overrides, env={"BAKEOFF_CACHE": str(cache)})
    (line,) = ended.lines
    assert line.startswith(f"bakeoff: {words}")
    assert ended.code == 2
    assert not (tmp_path / "results").exists()
    assert not (cache / "engines").exists()


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_an_engine_for_gpus_on_a_machine_without_one(
    engine: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    ended = bakeoff("run", f"engine={engine}", "launch=process", "model=file", "model.repo=a/b")
    (line,) = ended.lines
    assert line.startswith(f"bakeoff: engine={engine}: needs an NVIDIA GPU of compute capability")
    assert "none found" in line
    assert line.endswith("rehearse it with launch=emulate")
    assert ended.code == 2
    assert not (tmp_path / "results").exists()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def test_a_port_that_another_process_holds(
    bakeoff: CommandLine, taken_port: int, tmp_path: Path
) -> None:
    port = f"launch.port={taken_port}"
    ended = bakeoff("run", *LOAD, "engine=vllm", "launch=emulate", port)
    (line,) = ended.lines
    assert line.startswith(f"bakeoff: {port}: in use by process ")
    assert line.endswith("or leave launch.port out for a free one")
    assert ended.code == 2
    assert not (tmp_path / "results").exists()


# Our server ends before it is ready: its own last words, what to change, exit 4.


@dataclass(frozen=True)
class Fails:
    """A server that says something and ends. `prints` may name its `{flag}` and `{port}`."""

    engine: str
    prints: str
    reason: str
    advice: str
    code: int = 1


FAILS = {
    "llamacpp, a wrong flag": Fails(
        "llamacpp",
        "error: invalid argument: {flag}",
        "error: invalid argument: --nonsense",
        "the server does not take this flag: change engine.args",
    ),
    "vllm, a wrong flag": Fails(
        "vllm_cpu",
        "usage: api_server.py [-h] [--headless]\napi_server.py: error: unrecognized arguments: "
        "{flag} 1",
        "api_server.py: error: unrecognized arguments: --nonsense 1",
        "the server does not take this flag: change engine.args",
        code=2,
    ),
    "transformers, a wrong flag": Fails(
        "transformers",
        "Usage: transformers serve [OPTIONS] [FORCE_MODEL]\nError: No such option '{flag}'.",
        "Error: No such option '--nonsense'.",
        "the server does not take this flag: change engine.args",
        code=2,
    ),
    "llamacpp, an unknown model": Fails(
        "llamacpp",
        "0.00.101.2 E llama_model_load: error loading model: unknown model architecture: 'new'\n"
        "0.00.101.9 E srv load_model: failed to load model, 'x.gguf'",
        "llama_model_load: error loading model: unknown model architecture: 'new'",
        "this llama.cpp is too old for the model: take a newer engine or another model",
    ),
    "vllm, an unknown model": Fails(
        "vllm_cpu",
        "ValueError: Model architectures ['NewForCausalLM'] are not supported for now.\n"
        "RuntimeError: Engine core initialization failed. See root cause above.",
        "ValueError: Model architectures ['NewForCausalLM'] are not supported for now.",
        "this vLLM does not know the model",
    ),
    "llamacpp, a port that was free a moment ago": Fails(
        "llamacpp",
        "0.00.004.186 E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, "
        "port: {port}\n0.00.004.200 E srv main: exiting due to HTTP server error",
        "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: ",
        "the port is in use: leave launch.port=null for a free one, or end what holds it",
    ),
    "transformers, a port that was free a moment ago": Fails(
        "transformers",
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', {port}): "
        "address already in use",
        "[Errno 98] error while attempting to bind on address ('127.0.0.1', ",
        "the port is in use: leave launch.port=null for a free one, or end what holds it",
    ),
    "transformers, no GPU": Fails(
        "transformers",
        "RuntimeError: Found no NVIDIA driver on your system.",
        "RuntimeError: Found no NVIDIA driver on your system.",
        "torch sees no such GPU: check the driver, engine.gpus",
    ),
}
PROGRAM = """#!{python}
import sys
port = sys.argv[sys.argv.index("--port") + 1]
(flag,) = [word for word in sys.argv if "nonsense" in word]
print({prints!r}.replace("{{port}}", port).replace("{{flag}}", flag), file=sys.stderr)
sys.exit({code})
"""


@pytest.mark.parametrize("case", FAILS)
def test_a_server_that_cannot_start_gives_its_reason_and_what_to_change(
    case: str, bakeoff: CommandLine, tmp_path: Path, toy_model: Path
) -> None:
    fails = FAILS[case]
    program = tmp_path / "server"
    program.write_text(PROGRAM.format(python=sys.executable, prints=fails.prints, code=fails.code))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    model = f"model.path={toy_model}" if fails.engine == "llamacpp" else "model.repo=a/b"
    start = ("launch=process", f"engine.program={program}", "+engine.args.nonsense=1")
    ended = bakeoff("run", *LOAD, f"engine={fails.engine}", *start, model)
    run = only_run(tmp_path / "results")
    how = f"engine={fails.engine}: the server ended with exit code {fails.code} after "
    said(ended, 4, run, how, fails.reason, f"; {fails.advice}", "; its log: ", "engine.log")
    assert run.info.outcome is Outcome.NOT_READY
    assert (run.info.time_to_ready_s, measured(run)) == (None, [])
    assert fails.reason in (run.folder / "engine.log").read_text()


# A server that runs already and gives no good answer: exit 4.


@dataclass(frozen=True)
class Answers:
    """What a scripted server answers, and what is then said."""

    paths: dict[str, Script]
    says: tuple[str, ...]
    overrides: tuple[str, ...] = ("engine=openai",)


SOON = "engine.ready_timeout_s=1"
UNREADY = {
    "401": Answers(
        {COMPLETIONS: reply(401, '{"error":{"message":"Incorrect API key provided."}}')},
        (
            "the server is up but refuses a one-token request: 401 Incorrect API key provided.; ",
            "give its key: launch.api_key_env=NAME, the variable that holds it",
        ),
    ),
    "403 of the health route, with a key": Answers(
        {"/health": reply(403, '{"detail":"Forbidden"}')},
        (
            "engine=vllm: the server refuses GET /health: 403 Forbidden; ",
            "it does not take the key in the variable that launch.api_key_env names",
        ),
        ("engine=vllm", "launch.api_key_env=BAD_INPUT_KEY"),
    ),
    "404 of the health route: another program": Answers(
        {"/": OK},
        (
            "engine=vllm: the server refuses GET /health: 404; ",
            "check launch.base_url, and that the server there is engine=vllm",
        ),
        ("engine=vllm",),
    ),
    "garbage": Answers(
        {COMPLETIONS: SSH},
        ("not ready within 1 s; last answer: not HTTP: ", "SSH-2.0", "launch.base_url"),
        ("engine=openai", SOON),
    ),
    "HTML from a proxy": Answers(
        {COMPLETIONS: reply(502, PAGE, kind="text/html")},
        (f"not ready within 1 s; last answer: 502 {A_PAGE}; ", "launch.base_url"),
        ("engine=openai", SOON),
    ),
    "200 with an error inside": Answers(
        {COMPLETIONS: ERROR_BODY},
        ("last answer: 200 with an error in it: CUDA out of memory; ", "launch.base_url"),
        ("engine=openai", SOON),
    ),
    "429": Answers(
        {COMPLETIONS: LIMITED},
        ("not ready within 1 s; last answer: 429 slow down; ", "engine.ready_timeout_s="),
        ("engine=openai", SOON),
    ),
}


@pytest.mark.parametrize("case", UNREADY)
def test_a_running_server_without_a_good_answer(
    case: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    answers = UNREADY[case]
    with ScriptedServer(answers.paths) as server:
        key = {"BAD_INPUT_KEY": "sk-nobody-knows"}
        ended = bakeoff("run", *attached(server), *answers.overrides, env=key)
    run = only_run(tmp_path / "results")
    said(ended, 4, run, *answers.says)
    assert run.info.outcome is Outcome.NOT_READY
    assert measured(run) == []
    assert server.seen


REFUSALS = {
    "vllm, 404 model": (
        ("vllm", "--served-names", "other"),
        ("engine=vllm", "model.served_name=mine"),
        "404 The model `mine` does not exist.; ",
    ),
    "transformers, 400 model": (
        ("transformers", "--served-names", "other"),
        ("engine=transformers", "model.served_name=mine"),
        "400 Server is pinned to 'other'; requested 'mine'.; ",
    ),
    "transformers, 422 for a field that it does not know": (
        ("transformers",),
        ("engine=openai", "+engine.args.ignore_eos=true", "+engine.args.stream_options=null"),
        "422 Unexpected fields in the request: {'ignore_eos'}; ",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_an_engine_that_refuses_the_request_itself(
    case: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    (engine, *options), overrides, words = REFUSALS[case]
    with emulated(*options, engine=engine) as server:
        ended = bakeoff("run", *attached(server.base_url), *overrides)
    run = only_run(tmp_path / "results")
    advice = "check engine.route, engine.args, model.served_name and the model"
    refuses = "the server is up but refuses a one-token request: "
    said(ended, 4, run, refuses + words + advice)
    assert run.info.outcome is Outcome.NOT_READY
    assert measured(run) == []


def test_an_engine_that_takes_any_name_is_stored_with_the_model_that_it_serves(
    bakeoff: CommandLine, tmp_path: Path
) -> None:
    with emulated("--served-names", "other", "--step-ms", "5", engine="sglang") as server:
        named = ("engine=sglang", "model.served_name=mine")
        ended = bakeoff("run", *attached(server.base_url), *named)
    run = only_run(tmp_path / "results")
    assert (ended.code, run.info.outcome) == (0, Outcome.OK), ended.err
    assert (run.info.identity.model, run.info.model) == ("other", "mine")


def test_a_server_of_http_where_grpc_is_asked_for(bakeoff: CommandLine, tmp_path: Path) -> None:
    with emulated(engine="openai") as server:
        ended = bakeoff("run", *attached(server.base_url), "engine=deepspeed_mii", SOON)
    run = only_run(tmp_path / "results")
    said(ended, 4, run, "last answer: not gRPC: no HTTP/2; check that the server runs at launch.")
    assert run.info.outcome is Outcome.NOT_READY


@pytest.mark.parametrize("engine", ["llamacpp", "openai"])
def test_503_while_it_loads_is_waited_for_as_long_as_is_allowed(
    engine: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    with emulated("--loading-s", "600", engine=engine) as server:
        ended = bakeoff("run", *attached(server.base_url), f"engine={engine}", SOON)
    run = only_run(tmp_path / "results")
    said(ended, 4, run, f"engine={engine}: not ready within 1 s; last answer: 503 ", "oading")
    assert run.info.outcome is Outcome.NOT_READY


def test_503_while_it_loads_is_in_no_result(bakeoff: CommandLine, tmp_path: Path) -> None:
    loading = reply(503, '{"error":{"message":"Loading model","code":503}}')
    answers = InTurn((loading, loading, GOOD))
    with ScriptedServer({COMPLETIONS: answers}) as server:
        ended = bakeoff("run", *attached(server), "engine=openai")
    run = only_run(tmp_path / "results")
    assert (ended.code, run.info.outcome, run.info.diagnosis) == (0, Outcome.OK, None)
    assert [(row["error"], row["http_status"]) for row in measured(run)] == [(None, 200)] * 3
    asked = [one for one in server.seen if one.path == COMPLETIONS]
    assert len(asked) == 2 + len(BEFORE_THE_LOAD) + 3


# A server that turns bad under load: every request keeps its error; too many are exit 3.

FAULTS: tuple[tuple[Script, str, int | None, str], ...] = (
    (reply(401, '{"error":"Unauthorized"}'), "http_4xx", 401, "Unauthorized"),
    (
        reply(404, '{"error":{"message":"The model `x` does not exist."}}'),
        "http_4xx",
        404,
        "The model `x` does not exist.",
    ),
    (
        reply(422, '{"error":"Input validation error:\\n too long","error_type":"validation"}'),
        "http_4xx",
        422,
        "Input validation error: too long",
    ),
    (
        reply(424, '{"error":"Request failed during generation","error_type":"generation"}'),
        "http_4xx",
        424,
        "Request failed during generation",
    ),
    (LIMITED, "rate_limited", 429, "slow down (retry-after: 1)"),
    (
        reply(503, '{"error":{"message":"Loading model","code":503}}'),
        "http_5xx",
        503,
        "Loading model",
    ),
    (reply(502, PAGE, kind="text/html"), "http_5xx", 502, A_PAGE),
    (
        reply(200, PAGE, kind="text/html"),
        "error_body",
        200,
        f"HTTP 200 with neither stream nor answer: {A_PAGE}",
    ),
    (ERROR_BODY, "error_body", 200, "CUDA out of memory"),
    (events('{"error":{"message":"engine dead"}}'), "stream_error", 200, "engine dead"),
    (events("{not json"), "stream_error", 200, "not understood in the stream: '{not json'"),
    (
        reply(200, b"\xff\xfe\x00", kind="application/octet-stream"),
        "incomplete_stream",
        200,
        r"HTTP 200 with no event in '\xff\xfe\x00'",
    ),
    (SSH, "stream_error", None, "SSH-2.0"),
)


def test_every_bad_answer_under_load_is_a_record_of_its_kind(
    bakeoff: CommandLine, tmp_path: Path
) -> None:
    answers = InTurn((*BEFORE_THE_LOAD, *(fault[0] for fault in FAULTS)))
    count = f"load.requests={len(FAULTS)}"
    with ScriptedServer({COMPLETIONS: answers}) as server:
        ended = bakeoff("run", *attached(server), "engine=openai", count)
    run = only_run(tmp_path / "results")
    n = len(FAULTS)
    said(ended, 3, run, f"{n} of {n} requests failed, most by http_4xx: Unauthorized")
    assert run.info.outcome is Outcome.INVALID
    rows = measured(run)
    assert [(row["error"], row["http_status"]) for row in rows] == [fault[1:3] for fault in FAULTS]
    for row, (_, _, _, message) in zip(rows, FAULTS, strict=True):
        assert message in row["error_message"]
        assert "\n" not in row["error_message"]
        assert (row["output_tokens"], row["chunk_s"]) == (None, [])
    assert [row["retry_after_s"] for row in rows if row["http_status"] == 429] == [1.0]
    assert "rate_limited" in {doubt.code for doubt in run.info.doubts}


def test_429_is_sent_again_after_the_wait_that_was_asked_for(
    bakeoff: CommandLine, tmp_path: Path
) -> None:
    answers = InTurn((*BEFORE_THE_LOAD, LIMITED, GOOD))
    with ScriptedServer({COMPLETIONS: answers}) as server:
        ended = bakeoff("run", *attached(server), "engine=openai", "load.retries=1")
    run = only_run(tmp_path / "results")
    assert (ended.code, run.info.outcome) == (0, Outcome.OK)
    rows = [(row["error"], row["attempts"], row["retry_after_s"]) for row in measured(run)]
    assert rows == [(None, 2, 1.0), (None, 1, None), (None, 1, None)]
    assert "retried" in {doubt.code for doubt in run.info.doubts}
    first, again = [one.t_s for one in server.seen if one.path == COMPLETIONS][3:5]
    assert again - first >= 1.0  # the server's own clock: never earlier than it asked for


TGI = {
    "422": (
        ("--max-model-len-tokens", "10"),
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 10. Given: 20 ",
    ),
    "424": (("--error-ratio", "0.5"), "Request failed during generation: emulated failure"),
    "429": (("--max-in-flight", "1"), "Model is overloaded"),
}


@pytest.mark.parametrize("case", TGI)
def test_tgi_says_it_inside_its_stream(case: str, bakeoff: CommandLine, tmp_path: Path) -> None:
    """Its native route answers 200 first; the ready check's one token passes all three."""
    options, words = TGI[case]
    with emulated("--step-ms", "20", *options, engine="tgi") as server:
        load = ("engine=tgi", "load.users=3", "load.requests=24")
        ended = bakeoff("run", *attached(server.base_url), *load)
    run = only_run(tmp_path / "results")
    failed = [row for row in measured(run) if row["error"] is not None]
    kind = f"{len(failed)} of 24 requests failed, most by stream_error: "
    said(ended, 3, run, f"{kind}{words}")
    assert run.info.outcome is Outcome.INVALID
    assert {(row["error"], row["http_status"]) for row in failed} == {("stream_error", 200)}
    assert all(row["error_message"].startswith(words) for row in failed)
    good = [row for row in measured(run) if row["error"] is None]
    assert all(row["output_tokens"] for row in good)


# Metrics that are none of the engine's: the figures stay unknown, and the run is good.

NODE = """# HELP node_cpu_seconds_total Seconds the CPUs spent in each mode.
# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{cpu="0",mode="idle"} 0
node_load1 0
process_resident_memory_bytes 0
"""
PAGES = {
    "another program's": reply(200, NODE, kind="text/plain; version=0.0.4"),
    "HTML": reply(200, PAGE, kind="text/html"),
    "bytes": reply(200, b"\xff\x00\n\x80 0\n", kind="text/plain"),
}


@pytest.mark.parametrize(
    ("case", "engine"),
    [*((case, "openai") for case in PAGES), ("another program's", "vllm"), ("HTML", "llamacpp")],
)
def test_a_metrics_page_of_another_program_gives_no_figures(
    case: str, engine: str, bakeoff: CommandLine, tmp_path: Path
) -> None:
    page = PAGES[case]
    told = {"/metrics": page, "/health": OK, "/slots": page, "/props": page, "/version": page}
    with ScriptedServer({COMPLETIONS: GOOD, **told}) as server:
        ended = bakeoff("run", *attached(server), f"engine={engine}")
    run = only_run(tmp_path / "results")
    assert (ended.code, run.info.outcome) == (0, Outcome.OK), ended.err
    assert [row["error"] for row in measured(run)] == [None] * 3
    samples = run.engine_samples().to_pylist()
    assert samples
    for sample in samples:
        assert sample["kv_provenance"] == "not_exposed"
        own = {"t_s", "scrape_s", "kv_provenance"}
        assert {value for name, value in sample.items() if name not in own} == {None}
    assert run.info.identity.version is None
    assert run.info.identity.kv_capacity_tokens is None
    (cell,) = summarise([run]).cells
    for name in ("waiting", "kv_usage_ratio", "preemptions"):
        assert cell.metrics[name].value is None
