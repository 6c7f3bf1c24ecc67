"""Exact lengths: short and long texts, and the case of a length that changes (C26 to C28)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Encoder
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing

from harness.config import ScenarioConf
from harness.plan.tokenizer import ModelTokenizer
from harness.testing.toy_tokenizers import (
    DoublingTokenizer,
    MergingTokenizer,
    StartTokenizer,
    WordTokenizer,
)
from scenarios.fitting import Draft, Fitter
from scenarios.pieces import TokenCounter
from scenarios.prompts import PromptMaker
from scenarios.wanted import Wanted

CASES = Path(__file__).parents[1] / "data" / "cases"
EXPECTED = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))


def case(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    content = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return content, EXPECTED[name]["expect"]


class LongestMatch:
    """The toy of a case: the longest word of its vocabulary from the left."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._words = sorted(vocabulary, key=len, reverse=True)

    def count_batch(self, texts: Sequence[str]) -> list[int]:
        return [self._count(text) for text in texts]

    def _count(self, text: str) -> int:
        count = 0
        while text:
            text = text.removeprefix(next(w for w in (*self._words, text[0]) if text.startswith(w)))
            count += 1
        return count


def model_tokenizer(vocabulary: dict[str, int]) -> ModelTokenizer:
    """A tokenizer of the `tokenizers` library that puts <s> before a text, as the case's does."""
    model = WordPiece(vocabulary, unk_token="<s>", continuing_subword_prefix="")
    encoder = Encoder(model)
    encoder.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return ModelTokenizer(encoder.to_str().encode(), name="toy")


def test_c26_tokens_are_counted_on_the_joined_text_without_special_ones() -> None:
    content, expected = case("C26")
    tokenizer = model_tokenizer(content["toy_tokenizer"]["vocab"])
    joined = tokenizer.count("".join(content["chunks"]))
    assert joined == expected["output_tokens"]
    assert sum(tokenizer.count_batch(content["chunks"])) in expected["wrong"]
    assert tokenizer.added_tokens == 1


def test_c27_a_templated_text_is_counted_without_a_second_special_token() -> None:
    content, expected = case("C27")
    client = content["client"]
    text = client["templated_text"].replace(" ", "")
    vocabulary = {"<s>": 1, "[U]": 5, "hi": 9, "[/U]": 6}
    encoder = Encoder(WordPiece(vocabulary, unk_token="<s>", continuing_subword_prefix=""))
    encoder.add_special_tokens(["<s>"])
    encoder.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = ModelTokenizer(encoder.to_str().encode(), name="toy")
    assert tokenizer.count(text) == expected["client_templated"]
    assert tokenizer.encode_batch([text]) == [client["templated_ids_add_special_false"]]


def test_c28_a_text_whose_length_changes_is_repaired_or_told() -> None:
    content, expected = case("C28")
    tokenizer = LongestMatch(tuple(content["toy_tokenizer"]["vocab"]))
    text, asked = content["decoded"], content["asked_input_tokens"]
    assert tokenizer.count_batch([text]) == [expected["encoded_len"]]
    draft = Draft(tokens=asked, body=text)
    ((repaired, count),) = Fitter(tokenizer, ["ab"]).fitted([draft])
    assert (repaired, count) == (expected["repaired_example"], expected["repaired_len"])
    ((same, true_count),) = Fitter(tokenizer, []).fitted([draft])
    assert (same, true_count) == (text, expected["encoded_len"])


@pytest.mark.parametrize("counter", [WordTokenizer(), StartTokenizer(), MergingTokenizer()])
@pytest.mark.parametrize("tokens", [900, 5000, 20_000])
def test_a_long_prompt_is_exact(counter: TokenCounter, tokens: int) -> None:
    conf = ScenarioConf(name="x", input_tokens=tokens, languages=["en", "zh", "code"])
    prompts = PromptMaker(conf, counter, "1:0").prompts([Wanted(index=k) for k in range(6)])
    assert [prompt.input_tokens for prompt in prompts] == [tokens] * 6
    assert counter.count_batch([prompt.text for prompt in prompts]) == [tokens] * 6


@pytest.mark.parametrize("tokens", [901, 6001])
def test_a_long_prompt_that_cannot_be_had_is_the_nearest_below(tokens: int) -> None:
    conf = ScenarioConf(name="x", input_tokens=tokens)
    prompts = PromptMaker(conf, DoublingTokenizer(), "1:0").prompts(
        [Wanted(index=k) for k in (0, 1)]
    )
    assert [prompt.input_tokens for prompt in prompts] == [2 * len(one.text) for one in prompts]
    assert all(tokens - 12 <= prompt.input_tokens < tokens for prompt in prompts)


def test_head_and_tail_are_never_touched() -> None:
    counter = StartTokenizer()
    for tokens in range(8, 40):
        draft = Draft(tokens=tokens, head="one two three ", body=" four" * 20, tail=" end\n")
        ((text, count),) = Fitter(counter, [" if", " so"]).fitted([draft])
        assert text.startswith("one two three")
        assert text.endswith(" end\n")
        assert counter.count_batch([text]) == [count] == [tokens]


def test_a_text_is_cut_after_a_whole_word() -> None:
    text, count = Fitter(WordTokenizer(), []).at_most(Draft(tokens=4, body="one two three four"))
    assert (text, count) == ("one two three", 4)
    (short,) = [Fitter(WordTokenizer(), []).at_most(Draft(tokens=9, body="one two"))]
    assert short == ("one two", 2)
