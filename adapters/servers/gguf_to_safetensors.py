"""Writes a GGUF model as a folder that transformers, vLLM and SGLang read: `SCRIPT GGUF FOLDER`.

Runs inside an engine's own environment, by path; it needs torch, transformers and gguf there. The
weights are dequantised to `--dtype`, so that the model is the same one in another format: float32
holds every value of a quantised block exactly.
"""

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path


def main() -> int:
    """Convert; the last line printed is JSON: what made it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()

    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, name = str(args.gguf.parent), args.gguf.name
    print(f"reading {name}", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    how = {"gguf_file": name, "dtype": getattr(torch, args.dtype)}
    if hasattr(transformers, "GgufConfig"):  # newer ones keep the blocks if they are not told
        how["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(folder, **how)
    print(f"writing {args.dtype} safetensors", flush=True)
    model.save_pretrained(args.folder)
    tokenizer.save_pretrained(args.folder)
    tools = {name: version(name) for name in ("transformers", "gguf", "torch")}
    print(json.dumps({"dtype": args.dtype, "made_with": tools}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
