"""Prompts: exact length, own opening, the same from any side; repaired where sums deceive."""

import hashlib
import itertools
from collections.abc import Sequence

import pytest

from harness.config import ScenarioConf
from harness.plan.tokenizer import ApproximateTokenizer
from harness.testing.toy_tokenizers import DoublingTokenizer, MergingTokenizer, WordTokenizer
from scenarios.corpus import LANGUAGES, atoms, corpus_sha256, opening_words, pieces
from scenarios.lengths import lengths
from scenarios.openings import Openings
from scenarios.prompts import PromptMaker
from scenarios.wanted import Wanted


def some(*bounds: int) -> list[Wanted]:
    return [Wanted(index=index) for index in range(*bounds)]


def scenario(tokens: int = 60, least: int | None = None, *languages: str) -> ScenarioConf:
    return ScenarioConf(
        name="test",
        input_tokens=tokens,
        input_tokens_min=least,
        languages=list(languages or ("en",)),
    )


def shared_start(a: Sequence[str], b: Sequence[str]) -> int:
    pairs = zip(a, b, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(("tokens", "least"), [(60, None), (200, 20), (3, None), (1, None)])
def test_a_prompt_has_exactly_the_tokens_asked_for(
    language: str, tokens: int, least: int | None
) -> None:
    tokenizer, conf = WordTokenizer(), scenario(tokens, least, language)
    prompts = PromptMaker(conf, tokenizer, "1:0").prompts(some(200))
    assert len(prompts) == 200
    for prompt in prompts:
        asked = lengths(conf, "1:0", prompt.index).input_tokens
        assert prompt.input_tokens == asked
        assert tokenizer.count_batch([prompt.text]) == [asked]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sum_that_deceives_is_repaired(language: str) -> None:
    tokenizer = MergingTokenizer()
    prompts = PromptMaker(scenario(80, 40, language), tokenizer, "1:0").prompts(some(100))
    asked = [lengths(scenario(80, 40), "1:0", k).input_tokens for k in range(100)]
    assert [prompt.input_tokens for prompt in prompts] == asked
    assert tokenizer.count_batch([prompt.text for prompt in prompts]) == asked


def test_what_cannot_be_had_is_never_claimed() -> None:
    tokenizer = DoublingTokenizer()
    prompt = PromptMaker(scenario(81), tokenizer, "1:0").prompt(Wanted(index=0))
    assert prompt.input_tokens == 2 * len(prompt.text)
    assert 70 <= prompt.input_tokens < 81


def test_an_estimate_gives_texts_of_the_estimated_length() -> None:
    tokenizer = ApproximateTokenizer()
    prompts = PromptMaker(scenario(60, None, *LANGUAGES), tokenizer, "1:0").prompts(some(200))
    assert {tokenizer.count(prompt.text) for prompt in prompts} == {60}


def test_5000_prompts_share_no_start_beyond_the_first_noun() -> None:
    tokenizer = WordTokenizer()
    prompts = PromptMaker(scenario(60), tokenizer, "1:0").prompts(some(5000))
    starts = sorted((tokenizer.split(prompt.text), prompt.text) for prompt in prompts)
    assert len(starts) == 5000
    for (left, text), (right, _) in itertools.pairwise(starts):
        noun = len(tokenizer.split(text.split()[0]))
        # The second nouns differ, but may begin alike, such as in butter and button.
        assert shared_start(left, right) <= noun + 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_openings_are_unique_and_the_first_nouns_take_turns(language: str) -> None:
    openings = Openings(language, "1:0")
    count = len(opening_words(language))
    words = [openings.words(index) for index in range(count * 60)]
    assert len({pair[:2] for pair in words}) == count * 60
    assert all(len({first for first, _ in words[k : k + count]}) == count for k in (0, 777, 5000))
    everything = [
        *range(-50, 50),
        *range(count**2 - 50, count**2 + 50),
        *range(5 * count**2, 5 * count**2 + 9),
    ]
    assert len({openings.opening(index) for index in everything}) == len(everything)


def test_a_short_prompt_differs_as_early_as_it_can() -> None:
    prompts = PromptMaker(scenario(2), WordTokenizer(), "1:0").prompts(some(1000))
    assert len({prompt.text for prompt in prompts}) == 1000
    assert len({prompt.text.split()[0] for prompt in prompts[:80]}) == 80


def test_request_i_is_the_same_from_any_side() -> None:
    conf = scenario(60, 20, "en", "zh", "code")
    forwards = PromptMaker(conf, WordTokenizer(), "1:0").prompts(some(50))
    other = PromptMaker(conf, WordTokenizer(), "1:0")
    assert [other.prompt(one) for one in reversed(some(50))] == forwards[::-1]


def test_seeds_and_languages_give_other_prompts() -> None:
    tokenizer = WordTokenizer()
    first = {p.text for p in PromptMaker(scenario(), tokenizer, "1:0").prompts(some(200))}
    second = {p.text for p in PromptMaker(scenario(), tokenizer, "1:1").prompts(some(200))}
    assert first.isdisjoint(second)
    mixed = PromptMaker(scenario(60, None, *LANGUAGES), tokenizer, 1).prompts(some(300))
    chinese = sum("、" in prompt.text[:8] for prompt in mixed)
    code = sum(prompt.text.startswith("# ") for prompt in mixed)
    assert 70 < chinese < 130
    assert 70 < code < 130


def test_lengths_are_uniform_and_independent_of_each_other() -> None:
    conf = ScenarioConf(
        name="x", input_tokens=20, input_tokens_min=11, output_tokens=9, output_tokens_min=5
    )
    drawn = [lengths(conf, "1:0", index) for index in range(4000)]
    inputs = [one.input_tokens for one in drawn]
    outputs = [one.output_tokens for one in drawn]
    assert set(inputs) == set(range(11, 21))
    assert set(outputs) == set(range(5, 10))
    assert all(320 < inputs.count(size) < 480 for size in range(11, 21))
    wider = ScenarioConf(
        name="x", input_tokens=20, input_tokens_min=11, output_tokens=99, output_tokens_min=5
    )
    assert [lengths(wider, "1:0", index).input_tokens for index in range(4000)] == inputs


def test_the_corpus_is_rich_and_clean() -> None:
    sizes = {language: len(pieces(language)) for language in LANGUAGES}
    assert sizes["en"] >= 240
    assert sizes["zh"] >= 150
    assert sizes["code"] >= 100
    for language in LANGUAGES:
        found = pieces(language)
        assert len(set(found)) == len(found)
        assert all("".join(atoms(piece)) == piece for piece in found)
        words = opening_words(language)
        assert len(set(words)) == len(words) >= 256
    assert len(corpus_sha256()) == 64


@pytest.mark.parametrize(
    ("tokens", "least", "languages", "sha256"),
    [
        (48, 16, LANGUAGES, "b20c0da9f66ac065"),
        (200, None, ("en",), "81a83fc64ee5505b"),
        (3, None, ("code",), "ac05a7d7c5ea3ffa"),
    ],
)
def test_plain_prompts_are_those_of_stored_runs(
    tokens: int, least: int | None, languages: Sequence[str], sha256: str
) -> None:
    # Raise GENERATOR_VERSION in harness/plan/identity.py when these have to change.
    conf = ScenarioConf(
        name="t",
        input_tokens=tokens,
        input_tokens_min=least,
        output_tokens=16,
        output_tokens_min=8,
        languages=["en", "zh", "code"] if len(languages) > 1 else list(languages),
    )
    prompts = PromptMaker(conf, ApproximateTokenizer(), "1:0").prompts(some(-10, 150))
    seen = [(p.index, p.text, p.input_tokens, p.output_tokens) for p in prompts]
    assert hashlib.sha256(repr(seen).encode()).hexdigest()[:16] == sha256
