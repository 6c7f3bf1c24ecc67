"""A tiny GGUF file that holds nothing but a byte-level BPE vocabulary."""

from pathlib import Path

import gguf

_MERGES = ("t h", "h e", "i n")


def byte_alphabet() -> list[str]:
    """The 256 letters that stand for the bytes in a GPT-2 vocabulary, in GPT-2's order.

    Source: openai/gpt-2, src/encoder.py, `bytes_to_unicode`: printable bytes stand for
    themselves, the others follow from U+0100 on.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = 256 - len(plain)
    return [chr(code) for code in (*plain, *range(0x100, 0x100 + rest))]


def write_toy_model(path: Path) -> Path:
    """Write the file and give its path; most tokens are one byte."""
    tokens = [*byte_alphabet(), *(merge.replace(" ", "") for merge in _MERGES)]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(list(_MERGES))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path
