"""Makes a Triton model repository out of the templates of TensorRT-LLM's image.

Run inside the engine's image, never imported by bakeoff:

    triton_repository.py --templates FOLDER --values JSON --output FOLDER

Copies the four models of the ensemble and fills `${name}` in their config.pbtxt. A name without a
value stays as it is: the backend takes that for its own default. The tensorrt_llm_bls model is
left out, since Triton ends when a model of the repository cannot be loaded.
"""

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from string import Template

MODELS = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing")
CONFIG = "config.pbtxt"


def make_repository(templates: Path, values: Mapping[str, str], output: Path) -> None:
    """Write the repository to `output`, which appears only when it is whole."""
    unfinished = output.with_name(output.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    for model in MODELS:
        shutil.copytree(templates / model, unfinished / model)
        (unfinished / model / "1").mkdir(exist_ok=True)  # an ensemble has an empty version folder
        config = unfinished / model / CONFIG
        config.write_text(Template(config.read_text()).safe_substitute(values))
    unfinished.rename(output)


def main() -> None:
    """Read the command line and make the repository."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--templates", type=Path, required=True)
    parser.add_argument("--values", type=json.loads, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    make_repository(options.templates, options.values, options.output)


if __name__ == "__main__":
    main()
