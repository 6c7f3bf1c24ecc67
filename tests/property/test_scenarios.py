"""Prompts of any scenario: as long as asked, the same from any side, alike where they must be."""

from itertools import accumulate, pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config import GroupConf, ScenarioConf
from harness.testing.toy_tokenizers import MergingTokenizer, StartTokenizer, WordTokenizer
from scenarios.length_tables import CELLS, LengthTable, quantiles
from scenarios.pieces import TokenCounter
from scenarios.prompts import PromptMaker
from scenarios.wanted import Wanted

TOKENIZERS: dict[str, TokenCounter] = {
    "word": WordTokenizer(),
    "start": StartTokenizer(),
    "merging": MergingTokenizer(),
}
BLOCK_TOKENS = 24


@st.composite
def scenarios(draw: st.DrawFn) -> ScenarioConf:
    tokens = draw(st.integers(20, 120))
    groups = [
        GroupConf(name=f"g{k}", share=draw(st.floats(0.1, 9)), input_tokens=tokens + 5 * k)
        for k in range(draw(st.integers(0, 3)))
    ]
    changes: dict[str, Any] = {
        "input_tokens_min": draw(st.none() | st.integers(1, tokens)),
        "prefix_tokens": draw(st.just(0) | st.integers(8, tokens - 8)),
        "prefix_count": draw(st.integers(1, 3)),
        "languages": draw(st.sampled_from([["en"], ["zh", "code"], ["en", "zh", "code"]])),
        "lora": draw(st.sampled_from([[], ["a"], ["a", "b"]])),
    }
    return ScenarioConf(name="x", input_tokens=tokens, groups=groups, **changes)


@settings(max_examples=20, deadline=None)
@given(scenarios(), st.sampled_from(sorted(TOKENIZERS)), st.text(max_size=3))
def test_counts_are_true_lengths_are_kept_and_order_is_nothing(
    conf: ScenarioConf, name: str, seed: str
) -> None:
    tokenizer = TOKENIZERS[name]
    wanted = [Wanted(index=k) for k in range(-3, 12)]
    prompts = PromptMaker(conf, tokenizer, seed).prompts(wanted)
    assert len(prompts) == 15
    assert tokenizer.count_batch([p.text for p in prompts]) == [p.input_tokens for p in prompts]
    assert all(1 <= p.input_tokens <= conf.longest_input_tokens for p in prompts)
    backwards = PromptMaker(conf, tokenizer, seed)
    assert [backwards.prompt(one) for one in wanted[::-1]] == prompts[::-1]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 120)),
        min_size=2,
        max_size=6,
    )
)
def test_equal_ids_are_equal_text(rows: list[tuple[list[int], int]]) -> None:
    maker = PromptMaker(ScenarioConf(name="x"), WordTokenizer(), "1")
    wanted = [
        Wanted(index=k, input_tokens=tokens, blocks=tuple(ids), block_tokens=BLOCK_TOKENS)
        for k, (ids, tokens) in enumerate(rows)
    ]
    prompts = maker.prompts(wanted)
    assert len(prompts) == len(rows)
    for (ids, tokens), prompt in zip(rows, prompts, strict=True):
        whole = tokens // BLOCK_TOKENS
        alone = [maker.prompt(block(one)).text.rstrip() for one in ids[:whole]]
        assert [text.rstrip() for text in split(prompt.text, alone)] == alone


def block(one: int) -> Wanted:
    return Wanted(index=0, input_tokens=BLOCK_TOKENS, blocks=(one,), block_tokens=BLOCK_TOKENS)


def split(text: str, beginnings: list[str]) -> list[str]:
    """The text cut into pieces as long as the beginnings with their line breaks."""
    ends = list(accumulate((len(one) + 1 for one in beginnings), initial=0))
    return [text[start:end] for start, end in pairwise(ends)]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=300), st.floats(0, 1))
def test_a_table_stays_between_its_ends_and_rises(lengths: list[int], share: float) -> None:
    found = quantiles(lengths)
    assert (len(found), found[0], found[-1]) == (CELLS + 1, min(lengths), max(lengths))
    table = LengthTable(input_tokens=found, output_tokens=found, facts={})
    tokens = table.quantile("input", share)
    assert found[0] <= tokens <= found[-1]
    assert table.quantile("output", 1.0) == found[-1]
    assert table.share_at_most("input", tokens) >= share - 1e-9
    assert table.share_at_most("input", found[0] - 1) == 0
