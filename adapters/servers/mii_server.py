"""A DeepSpeed-MII deployment: `mii.serve` with every port, GPU and limit said, until SIGTERM.

Runs inside MII's own environment, started by path and never imported by bakeoff. SIGTERM ends
the deployment. Exit code 1: a server process has ended by itself, and the log above says why.

Source: DeepSpeed-MII 0.3.3 (mii/config.py, mii/backend, mii/grpc_related), DeepSpeed 0.19.8
(inference/v2/ragged/manager_configs.py, kernels/ragged_ops/blocked_flash).
"""

import argparse
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

READY = "mii_server: ready"
_PACKAGES = ("deepspeed-mii", "deepspeed", "deepspeed-kernels", "torch", "transformers")
_HOST = "localhost"  # MII's own name for this machine in a device map
_TRACKED = 2048  # DeepSpeed's max_tracked_sequences
_WIDE_HEAD, _ODD_HEAD = 64, 160  # head sizes at which DeepSpeed's KV blocks change
_POLL_S = 0.2
_END_S = 20.0  # MII gives its gRPC servers 10 s


class StoppedError(BaseException):
    """SIGTERM or SIGINT; no library's `except Exception` may swallow it."""


def options() -> argparse.ArgumentParser:
    """The flags. Ports are all given: MII's own would collide with another deployment's."""
    parser = argparse.ArgumentParser(prog="mii_server", allow_abbrev=False)
    add = parser.add_argument
    add("--model", required=True, help="a folder, or a name on a model hub")
    add("--served-name", default="", help="what requests to the OpenAI server call it")
    add("--host", default="127.0.0.1", help="of the OpenAI server; gRPC listens everywhere")
    add("--openai-port", type=int, help="serve MII's OpenAI server here too")
    add("--grpc-port", type=int, required=True, help="the load balancer; replicas follow it")
    add("--rest-port", type=int, required=True)
    add("--zmq-port", type=int, required=True)
    add("--torch-dist-port", type=int, required=True)
    add("--tensor-parallel", type=int, default=1)
    add("--replica-num", type=int, default=1)
    add("--gpus", type=_numbers, help="0,1,..: of the first replica, then of the next")
    add("--quantization-mode", choices=("wf6af16",))
    add("--max-length", type=int, help="longest prompt and answer, tokens")
    add("--max-running", type=int, help="most sequences in a forward pass")
    add("--tokens-per-step", type=int, help="most tokens in a forward pass")
    add("--kv-tokens", type=int, help="what the KV cache holds at least")
    add("--reserve-bytes", type=int, help="GPU memory left free beside the KV cache")
    add("--chat-template", help="file or text, for the OpenAI server")
    add("--serve", type=json.loads, default={}, help="JSON: further keywords of mii.serve")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def arguments(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The keywords of `mii.serve`. `folder`: for the hostfile. ValueError for what cannot be."""
    size, count = args.tensor_parallel, args.replica_num
    gpus = args.gpus or list(range(size * count))
    if len(gpus) != size * count:
        raise ValueError(f"--gpus={gpus}: {size} x {count} of them are needed")
    if Path(args.served_name).is_absolute() or ".." in Path(args.served_name).parts:
        raise ValueError(f"--served-name={args.served_name}: a name, or NAME/NAME")
    hostfile = folder / "hostfile"  # else MII takes /job/hostfile where a cluster has one
    hostfile.write_text(f"{_HOST} slots={max(gpus) + 1}\n")
    ours: dict[str, Any] = {
        "deployment_name": f"bakeoff-{args.grpc_port}",
        "tensor_parallel": size,
        "replica_num": count,
        "device_map": {_HOST: [gpus[i * size : (i + 1) * size] for i in range(count)]},
        "hostfile": str(hostfile),
        "port_number": args.grpc_port,
        "enable_restful_api": False,
        "restful_api_port": args.rest_port,
        "zmq_port_number": args.zmq_port,
        "torch_dist_port": args.torch_dist_port,
    }
    if args.max_length:
        ours["max_length"] = args.max_length
    if args.quantization_mode:
        ours["quantization_mode"] = args.quantization_mode
    if manager := _manager(args):
        ours["inference_engine_config"] = {"state_manager": manager}
    return merged(ours, args.serve)


def _manager(args: argparse.Namespace) -> dict[str, Any]:
    """DeepSpeed's state manager: limits of a forward pass, and the KV cache."""
    given = {
        "max_ragged_batch_size": args.tokens_per_step,
        "max_ragged_sequence_count": args.max_running,
        "max_context": args.max_length,
    }
    manager: dict[str, Any] = {key: value for key, value in given.items() if value}
    if args.max_running and args.max_running > _TRACKED:
        manager["max_tracked_sequences"] = args.max_running
    if args.kv_tokens and args.reserve_bytes:
        raise ValueError("--reserve-bytes: with --kv-tokens the KV cache has two sizes")
    if args.kv_tokens:
        blocks = -(-args.kv_tokens // block_tokens(Path(args.model)))
        manager["memory_config"] = {"mode": "allocate", "size": blocks}
    if args.reserve_bytes:
        manager["memory_config"] = {"mode": "reserve", "size": args.reserve_bytes}
    return manager


def block_tokens(model: Path) -> int:
    """Tokens of one KV block: DeepSpeed's choice by head size (blocked_flash.py)."""
    file = model / "config.json"
    if not file.is_file():
        raise ValueError(f"--kv-tokens: needs {file}, to know the size of a KV block")
    config = json.loads(file.read_text(encoding="utf-8"))
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if head == _ODD_HEAD:
        raise ValueError(f"--kv-tokens: with heads of {head} a KV block's size depends on the GPU")
    return 128 if head <= _WIDE_HEAD else 64


def merged(ours: Mapping[str, Any], more: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Both, nested ones too; ValueError for a keyword that a flag says."""
    both = dict(ours)
    for key, value in more.items():
        old = both.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            both[key] = merged(old, value, f"{path}{key}.")
        elif key in both:
            raise ValueError(f"--serve: {path}{key} is set by a flag of its own")
        else:
            both[key] = value
    return both


def hold_back_front(server_class: Any) -> list[Callable[[], Any]]:
    """Let MII start its load balancer only when it is told to; returns how, once it is known.

    MII starts it first of all, and a call that it takes before a replica is up is never answered
    and keeps one of its 256 threads for 600 s: its port must stay closed until then.
    """
    held: list[Callable[[], Any]] = []
    launch = server_class._launch_server_process  # noqa: SLF001 (no public way)

    def launch_later(self: Any, config: Any, kind: str, *args: Any, **more: Any) -> Any:
        if kind != "load balancer":
            return launch(self, config, kind, *args, **more)
        held.append(lambda: launch(self, config, kind, *args, **more))
        return None

    server_class._launch_server_process = launch_later  # noqa: SLF001
    return held


def openai_server(args: argparse.Namespace, folder: Path) -> subprocess.Popen[bytes]:
    """MII's OpenAI server over the deployment, under the served name.

    It calls a model by what it loads the tokenizer from, so a folder is linked under its name.
    """
    name = args.served_name or args.model
    if Path(args.model).is_dir() and name != args.model:
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path(args.model).absolute(), target_is_directory=True)
    argv = [sys.executable, "-m", "mii.entrypoints.openai_api_server", "--model", name]
    argv += ["--load-balancer", f"{_HOST}:{args.grpc_port}", "--response-role", "assistant"]
    argv += ["--host", args.host, "--port", str(args.openai_port)]
    argv += ["--chat-template", args.chat_template] if args.chat_template else []
    return subprocess.Popen(argv, cwd=folder)


def say(line: str) -> None:
    """A line of the log, at once."""
    print(f"mii_server: {line}", flush=True)


def say_versions() -> None:
    """The packages that matter: MII does not tell over its API."""
    found = []
    for package in _PACKAGES:
        try:
            found.append(f"{package} {version(package).strip()}")
        except PackageNotFoundError:
            found.append(f"{package} missing")
    say(f"versions: {', '.join(found)}")


def has_lost_one() -> bool:
    """Whether a process that we started has ended; MII itself would not notice."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    if pid:
        say(f"process {pid} ended with {os.waitstatus_to_exitcode(status)}")
    return bool(pid)


def wait_open(port: int) -> bool:
    """Wait until the port takes connections; False if a process has ended before."""
    while True:
        with socket.socket() as sock:
            if sock.connect_ex((_HOST, port)) == 0:
                return True
        if has_lost_one():
            return False
        time.sleep(_POLL_S)


def serve(args: argparse.Namespace, keywords: Mapping[str, Any], folder: Path) -> int:
    """Serve until a signal (0) or the end of a server process (1)."""
    client, openai = None, None
    try:
        mii = importlib.import_module("mii")
        held = hold_back_front(importlib.import_module("mii.backend").MIIServer)
        client = mii.serve(args.model, **keywords)
        while has_lost_one():  # what was only needed to start
            continue
        for start in held:
            start()
        if not wait_open(args.grpc_port):
            return 1
        ports = f"grpc={args.grpc_port}"
        if args.openai_port:
            openai = openai_server(args, folder)
            if not wait_open(args.openai_port):
                return 1
            ports += f" openai={args.openai_port}"
        print(f"{READY} {ports}", flush=True)
        while not has_lost_one():
            time.sleep(_POLL_S)
    except StoppedError:
        say("stopping")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if openai is not None:
            openai.terminate()
        terminate(client)
        return 0
    return 1


def terminate(client: Any) -> None:
    """End the deployment, then wait a while for its processes."""
    if client is None:
        return
    try:
        client.terminate_server()
    except Exception as error:  # noqa: BLE001 (whatever gRPC raises: we end all the same)
        say(f"terminate_server: {error!r}")
    end_s = time.monotonic() + _END_S
    while time.monotonic() < end_s:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        time.sleep(_POLL_S)


def _stop(_number: int, _frame: object) -> None:
    raise StoppedError


def main(argv: Sequence[str] | None = None) -> int:
    """Serve; returns the exit code."""
    parser = options()
    args = parser.parse_args(argv)
    # MII calls `deepspeed`, and that `ninja`, by name: they lie beside this Python.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with tempfile.TemporaryDirectory(prefix="bakeoff-mii-") as name:
        folder = Path(name)
        os.environ["MII_CACHE_PATH"] = str(folder / "cache")  # MII runs Python that lies there
        try:
            keywords = arguments(args, folder)
        except ValueError as error:
            parser.error(str(error))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        say_versions()
        return serve(args, keywords, folder)


if __name__ == "__main__":
    sys.exit(main())
