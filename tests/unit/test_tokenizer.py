"""Tokenizers: out of a GGUF file against a real server's answers, from a file, and estimated."""

import json
from collections.abc import Mapping
from pathlib import Path

import gguf
import pytest

from harness.errors import ConfigError
from harness.plan import vocabulary_cache
from harness.plan.tokenizer import load_tokenizer
from harness.plan.vocabulary import PATTERNS

DATA = Path(__file__).parents[1] / "data"
PART = json.loads((DATA / "smollm2_vocabulary_part.json").read_text(encoding="utf-8"))
ANSWERS = [
    json.loads(line)
    for line in (DATA / "server_tokens.jsonl").read_text(encoding="utf-8").splitlines()
]


def write_gguf(
    path: Path, *, pre: str | None, kind: str = "gpt2", extra: Mapping[str, bool] | None = None
) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(PART["tokens"])
    writer.add_token_types(PART["types"])
    writer.add_token_merges(PART["merges"])
    for key, value in (extra or {}).items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("pre", sorted(PATTERNS))
def test_ids_are_those_of_the_real_server(pre: str, tmp_path: Path) -> None:
    answers = [answer for answer in ANSWERS if answer["pre"] == pre]
    model = write_gguf(tmp_path / "m.gguf", pre=pre)
    tokenizer = load_tokenizer(model, None, cache=tmp_path / "cache")
    assert tokenizer.exact
    assert tokenizer.name == "m.gguf"
    encoded = tokenizer.encode_batch([answer["text"] for answer in answers])
    real_ids = [[PART["ids"][number] for number in ids] for ids in encoded]
    assert len(answers) == 45
    assert real_ids == [answer["ids"] for answer in answers]


def test_without_a_pre_tokeniser_the_default_rule_holds(tmp_path: Path) -> None:
    named = load_tokenizer(write_gguf(tmp_path / "a.gguf", pre="default"), None, cache=tmp_path)
    silent = load_tokenizer(write_gguf(tmp_path / "b.gguf", pre=None), None, cache=tmp_path)
    assert named.sha256 == silent.sha256


def test_the_hash_is_of_the_vocabulary_not_of_the_file(tmp_path: Path) -> None:
    one = load_tokenizer(write_gguf(tmp_path / "a.gguf", pre="smollm"), None, cache=tmp_path)
    same = load_tokenizer(
        write_gguf(tmp_path / "b.gguf", pre="smollm", extra={"add_space_prefix": False}),
        None,
        cache=tmp_path,
    )
    other = load_tokenizer(write_gguf(tmp_path / "c.gguf", pre="gpt-2"), None, cache=tmp_path)
    assert one.sha256 == same.sha256
    assert one.sha256 != other.sha256


@pytest.mark.parametrize(
    ("pre", "extra", "added"),
    [
        ("smollm", {}, 0),
        ("smollm", {"add_bos_token": True}, 1),
        ("smollm", {"add_bos_token": True, "add_eos_token": True}, 2),
        ("llama-bpe", {}, 1),
        ("llama-bpe", {"add_bos_token": False}, 0),
    ],
)
def test_bos_and_eos_are_counted_apart(
    pre: str, extra: dict[str, bool], added: int, tmp_path: Path
) -> None:
    model = write_gguf(tmp_path / "m.gguf", pre=pre, extra=extra)
    tokenizer = load_tokenizer(model, None, cache=tmp_path)
    assert tokenizer.added_tokens == added
    assert tokenizer.count("a") == 1


def test_a_vocabulary_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_gguf(tmp_path / "m.gguf", pre="smollm")
    first = load_tokenizer(model, None, cache=tmp_path / "cache")

    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} was read again")

    monkeypatch.setattr(vocabulary_cache, "read_vocabulary", refuse)
    second = load_tokenizer(model, None, cache=tmp_path / "cache")
    assert second.sha256 == first.sha256
    assert second.encode_batch(["Hello world"]) == first.encode_batch(["Hello world"])
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".json"]


def test_a_damaged_cache_file_is_built_anew(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "m.gguf", pre="smollm")
    first = load_tokenizer(model, None, cache=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(kept.read_bytes()[:100])
    assert load_tokenizer(model, None, cache=tmp_path / "cache").sha256 == first.sha256


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "m.gguf", pre="smollm")
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert load_tokenizer(model, None, cache=blocked / "cache").exact


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.delenv("BAKEOFF_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert vocabulary_cache.cache_folder() == Path("/h/.cache/bakeoff/tokenizers")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert vocabulary_cache.cache_folder() == Path("/x/bakeoff/tokenizers")
    monkeypatch.setenv("BAKEOFF_CACHE", "/b")
    assert vocabulary_cache.cache_folder() == Path("/b/bakeoff/tokenizers")


@pytest.mark.parametrize(("pre", "kind"), [("deepseek-v3", "gpt2"), ("default", "llama")])
def test_an_unknown_rule_gives_an_estimate_that_says_so(
    pre: str, kind: str, tmp_path: Path
) -> None:
    model = write_gguf(tmp_path / "m.gguf", pre=pre, kind=kind)
    tokenizer = load_tokenizer(model, None, cache=tmp_path)
    assert not tokenizer.exact
    assert tokenizer.sha256 is None
    assert (pre if kind == "gpt2" else kind) in tokenizer.name


def test_without_a_model_lengths_are_estimated() -> None:
    tokenizer = load_tokenizer(None, None)
    assert not tokenizer.exact
    assert tokenizer.count_batch(["", "abcd", "abcde", "你好吗", "你好吗abcd"]) == [0, 1, 2, 2, 3]
    with pytest.raises(ConfigError, match=r"model.tokenizer=FILE"):
        tokenizer.encode_batch(["a"])


TOY_JSON = {
    "version": "1.0",
    "added_tokens": [
        {
            "id": 3,
            "content": "<s>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}},
    },
    "truncation": {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    },
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3}, "merges": [["a", "b"]]},
}


@pytest.mark.parametrize("given", ["file", "folder", "model folder"])
def test_a_tokenizer_json_counts_without_bos_and_without_truncation(
    given: str, tmp_path: Path
) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(TOY_JSON))
    model, path = (tmp_path, None) if given == "model folder" else (None, tmp_path)
    tokenizer = load_tokenizer(model, file if given == "file" else path)
    assert tokenizer.encode_batch(["abab", "abaab"]) == [[2, 2], [2, 0, 2]]
    assert tokenizer.count("ababab") == 3
    assert tokenizer.added_tokens == 1
    assert tokenizer.exact


def test_a_broken_tokenizer_json_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json: not a tokenizer.json"):
        load_tokenizer(None, file)
    with pytest.raises(ConfigError, match=r"none\.json: cannot be read"):
        load_tokenizer(None, tmp_path / "none.json")


def test_a_model_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"this is not a model file at all")
    with pytest.raises(ConfigError, match=r"not a GGUF file"):
        load_tokenizer(model, None, cache=tmp_path)
    with pytest.raises(ConfigError, match=r"gone\.gguf: cannot be read"):
        load_tokenizer(tmp_path / "gone.gguf", None, cache=tmp_path)


def test_a_model_file_cut_short_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf", pre="smollm").read_bytes()
    for size in (0, 3, 20, 100, len(whole) // 2, len(whole) - 5):
        cut = tmp_path / f"{size}.gguf"
        cut.write_bytes(whole[:size])
        with pytest.raises(ConfigError, match=rf"{size}\.gguf: not a GGUF file"):
            load_tokenizer(cut, None, cache=tmp_path)
