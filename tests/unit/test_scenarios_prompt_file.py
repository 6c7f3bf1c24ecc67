"""Real prompts out of files: what is used, what is skipped and why, and what comes again."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.config import ScenarioConf
from harness.errors import ConfigError
from harness.testing.toy_tokenizers import WordTokenizer
from scenarios.prompt_file import read_prompts
from scenarios.prompts import PromptMaker
from scenarios.wanted import Prompt, Wanted

CASES = Path(__file__).parents[1] / "data" / "cases"
EXPECTED = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))


def write(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def maker(path: Path | str, **changes: Any) -> PromptMaker:
    limits = {"input_tokens": 1000, "output_tokens": 100, "output_tokens_min": 10}
    conf = ScenarioConf(**{"name": "x", **limits, "prompts_file": str(path), **changes})
    return PromptMaker(conf, WordTokenizer(), "1:0")


def made(count: int, path: Path | str, first: int = 0, **changes: Any) -> list[Prompt]:
    return maker(path, **changes).prompts([Wanted(index=first + k) for k in range(count)])


def test_c59_sharegpt_rows_are_used_or_skipped_by_reason() -> None:
    found = read_prompts(str(CASES / "C59.json"))
    expected = EXPECTED["C59"]["expect"]
    assert [row.prompt for row in found.rows] == [
        "Name a fruit.",
        "Name a tree.",
        "Name a bird.",
        "Name a metal.",
    ]
    assert len(found.rows) == len(expected["usable"])
    assert dict(found.skipped) == expected["skipped"]
    assert maker(CASES / "C59.json").facts["prompts_file"]["skipped"] == expected["skipped"]


@pytest.mark.parametrize("name", ["C64.jsonl", "C64.jsonl.gz"])
def test_c64_bom_crlf_blank_lines_and_gzip(name: str) -> None:
    found = read_prompts(str(CASES / name))
    assert [(row.prompt, row.output_tokens) for row in found.rows] == [
        ("one", 4),
        ("two \u2028 lines", 5),
    ]
    assert len(found.rows) == EXPECTED["C64"]["expect"]["jsonl_rows"]
    assert found.skipped == {}
    assert found.source == name


def test_sharegpt_may_come_a_row_a_line_and_with_the_other_names(tmp_path: Path) -> None:
    talk = [{"from": "user", "value": "Why?"}, {"from": "assistant", "value": "Because."}]
    path = write(tmp_path / "a.jsonl", {"conversations": talk}, {"text": "x"}, 3, {"prompt": "Hi"})
    found = read_prompts(str(path))
    assert [(row.prompt, row.answer) for row in found.rows] == [("Why?", "Because."), ("Hi", None)]
    assert dict(found.skipped) == {"no_prompt": 1, "not_an_object": 1}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "  "}, "empty_prompt"),
        ({"prompt": None}, "empty_prompt"),
        ({"prompt": ["a"]}, "empty_prompt"),
        ({"prompt": "a", "output_tokens": 0}, "bad_output_tokens"),
        ({"prompt": "a", "output_tokens": "4"}, "bad_output_tokens"),
        ({"prompt": "a", "output_tokens": True}, "bad_output_tokens"),
        ({"prompt": "a", "output_tokens": 1.5}, "bad_output_tokens"),
        ({"prompt": "kept"}, "repeated"),
    ],
)
def test_a_row_that_cannot_be_used_is_counted(tmp_path: Path, row: Any, reason: str) -> None:
    found = read_prompts(str(write(tmp_path / "a.jsonl", {"prompt": "kept"}, row)))
    assert [one.prompt for one in found.rows] == ["kept"]
    assert dict(found.skipped) == {reason: 1}


def test_a_line_that_is_no_json_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b\n', encoding="utf-8")
    assert dict(read_prompts(str(path)).skipped) == {"not_json": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"no row can be used \(it is empty\); give lines such as"),
        (b'{"text": "x"}\n{"prompt": ""}', r"no row can be used \(empty_prompt 1, no_prompt 1\)"),
        (b'[{"prompt": "a"}', r"is not valid JSON \("),
        (b"\xff\xfe\x00", r"cannot be read \('utf-8' codec can't decode"),
        (gzip.compress(b'{"prompt": "a"}')[:-4], r"cannot be read \("),
    ],
)
def test_a_file_that_gives_nothing_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        maker(path)
    with pytest.raises(ConfigError, match=r"prompts_file=/none: cannot be read \(No such file"):
        maker("/none")


def test_each_prompt_is_used_once_before_any_comes_again(tmp_path: Path) -> None:
    rows = [f"Question number {k}?" for k in range(50)]
    path = write(tmp_path / "a.jsonl", *({"prompt": row} for row in rows))
    prompts = made(150, path)
    texts = [prompt.text for prompt in prompts]
    assert sorted(texts[:50]) == sorted(rows)
    assert texts[:50] != rows
    assert len(set(texts)) == 150
    assert all(any(text.endswith(f"\n{row}") for row in rows) for text in texts[50:])
    assert len({text.partition(",")[0] for text in texts[50:]}) == 100
    warm = [prompt.text for prompt in made(9, path, first=-9)]
    assert set(warm).isdisjoint(texts)
    assert not set(warm) & set(rows)
    counts = WordTokenizer().count_batch(texts)
    assert [prompt.input_tokens for prompt in prompts] == counts


def test_answers_are_as_long_as_the_file_says(tmp_path: Path) -> None:
    talk = [{"from": "human", "value": "B"}, {"from": "gpt", "value": "one two three four"}]
    path = write(
        tmp_path / "a.jsonl",
        {"prompt": "A", "output_tokens": 7},
        {"conversations": talk},
        {"prompt": "C", "output_tokens": 5000},
        {"prompt": "D"},
    )
    lengths = {prompt.text: prompt.output_tokens for prompt in made(4, path)}
    assert (lengths["A"], lengths["B"], lengths["C"]) == (7, 5, 100)
    assert 10 <= lengths["D"] <= 100
    (asked,) = maker(path).prompts([Wanted(index=0, output_tokens=3)])
    assert asked.output_tokens == 3


def test_a_prompt_beyond_the_limit_is_cut_and_counted(tmp_path: Path) -> None:
    long = " ".join(["word"] * 500)
    path = write(tmp_path / "a.jsonl", {"prompt": long}, {"prompt": "short one"})
    sizes = sorted(prompt.input_tokens for prompt in made(2, path, input_tokens=100))
    assert sizes == [2, 100]
    facts = maker(path, input_tokens=100).facts["prompts_file"]
    assert facts["clipped_input_ratio"] == 0.5
    assert (facts["rows"], facts["source"], len(facts["sha256"])) == (2, "a.jsonl", 64)


def test_a_files_prompts_may_share_a_beginning(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", *({"prompt": f"Question {k}?"} for k in range(20)))
    prompts = made(20, path, prefix_tokens=40)
    assert len({prompt.text.rpartition("\n")[0] for prompt in prompts}) == 1
    assert {prompt.prefix_tokens for prompt in prompts} == {40}


def test_the_set_that_ships_is_found_by_its_name() -> None:
    found = read_prompts("connected")
    assert len(found.rows) >= 48
    assert found.skipped == {}
    assert all(len(row.prompt.split()) >= 60 for row in found.rows)


def test_plain_scenarios_have_no_facts() -> None:
    conf = ScenarioConf(name="x")
    assert PromptMaker(conf, WordTokenizer(), "1:0").facts == {}
