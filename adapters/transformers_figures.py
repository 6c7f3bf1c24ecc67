"""What the log of `transformers serve` says: its start, and the failures that are known.

Source: logs of transformers 5.24 on a CPU; lines of GPUs from torch 2.13. It has no metrics.
"""

import re

from adapters.diagnosis import SIGILL, Failure
from harness.types import LogFacts

LOG_PREFIX = r"ERROR: +|[\d-]+ [\d:,]+ - \w+ - ERROR - "
_INSTALL = "the engine's environment is incomplete: run: bakeoff engines install transformers"
_FOLDER = "give model.path a folder with config.json, safetensors and tokenizer.json"
_LESS = "lower engine.kv_tokens or engine.tokens_per_step, or take a smaller model or dtype"
_DEAD = (
    "the thread that generates has died and all later requests are refused: see the traceback "
    "in the engine's log; an empty prompt does this"
)

FAILURES = (
    Failure(
        pattern=r"\[Errno 98\]|address already in use",
        advice="the port is in use: leave launch.port=null for a free one, or end what holds it",
    ),
    Failure(
        pattern=r"No such option|Got unexpected extra argument|Invalid value for '",
        advice="the server does not take this flag: change engine.args",
    ),
    Failure(
        pattern=r"Repo id must (be in the form|use alphanumeric)",
        advice="there is no such folder, so it was taken for a name on a hub: check model.path",
    ),
    Failure(
        pattern=r"We couldn't connect to|outgoing traffic has been disabled|offline mode is en",
        advice="the model is not on this machine: give model.path a folder",
    ),
    Failure(
        pattern=r"is not a valid model identifier|RepositoryNotFoundError|GatedRepoError",
        advice="no such model on the hub, or no right to it: check model.repo, log in to the hub",
    ),
    Failure(
        pattern=r"Unrecognized processing class|does not appear to have a file named"
        r"|no file named .* found in directory",
        advice=f"files are missing from the model's folder: {_FOLDER}",
    ),
    Failure(
        pattern=r"does not recognize this architecture|Unrecognized model in",
        advice="this transformers does not know the model: pin a newer one in "
        "engine.recipe.packages, or take another model",
    ),
    Failure(
        pattern=r"SafetensorError|deserializing header",
        advice="the model file is cut or damaged: fetch it again and check its size",
    ),
    Failure(
        pattern=r"requires bitsandbytes|No module named 'bitsandbytes'",
        advice="engine.quantization needs it: add a pinned bitsandbytes to engine.recipe.packages",
    ),
    Failure(pattern=r"Unsupported dtype:", advice="change engine.dtype"),
    Failure(pattern=r"Unsupported quantization method:", advice="change engine.quantization"),
    Failure(
        pattern=r"Unsupported attention implementation:|FlashAttention.* has been toggled on",
        advice="change engine.args.attn_implementation, or add its package to "
        "engine.recipe.packages",
    ),
    Failure(
        pattern=r"Torch not compiled with CUDA|No CUDA GPUs are available"
        r"|Found no NVIDIA driver|invalid device ordinal|CUDA driver version is insufficient",
        advice="torch sees no such GPU: check the driver, engine.gpus and the torch of "
        "engine.recipe.packages, or leave engine.args.device out",
    ),
    Failure(
        pattern=r"Memory footprint \d+ is more than|Invalid values: max_batch_tokens",
        advice=f"the KV cache that is asked for does not fit: {_LESS}",
    ),
    Failure(
        pattern=r"CUDA out of memory|OutOfMemoryError|can't allocate memory|MemoryError"
        r"|cannot allocate memory|std::bad_alloc",
        advice=f"not enough memory: {_LESS}",
    ),
    Failure(
        pattern=SIGILL.pattern,
        advice=f"{SIGILL.advice}: try engine.dtype=float32, or another torch in "
        "engine.recipe.packages",
    ),
    Failure(
        pattern=r"No module named|Missing dependencies for serving|requires .?accelerate",
        advice=_INSTALL,
    ),
    Failure(pattern=r"Error in generation loop: |CB worker (is dead|died)", advice=_DEAD),
    Failure(pattern=r"fatal python error|segmentation fault", advice="see the engine's log"),
)
_LOADED = re.compile(r"Loading weights: 100%\|[^|]*\| *\d+/\d+ \[(?:(\d+):)?(\d+):(\d+)<")


def log_facts(log: str) -> LogFacts:
    """How long reading the weights took, by the server's progress bar, in whole seconds.

    None below one second, which the bar shows as 00:00. Memory and KV capacity are not said.
    """
    found = _LOADED.search(log)
    if found is None:
        return LogFacts()
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    load_s = float(hours * 3600 + minutes * 60 + seconds)
    return LogFacts(load_s=load_s or None)
