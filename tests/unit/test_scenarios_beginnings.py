"""Shared prefixes and trace blocks: equal beginnings in text and in tokens, unique ends."""

from typing import Any

import pytest
from tokenizers import Tokenizer as Encoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from harness.config import Lengths, ScenarioConf
from harness.plan.tokenizer import ModelTokenizer, Tokenizer
from harness.testing.toy_tokenizers import StartTokenizer, WordTokenizer
from scenarios.corpus import LANGUAGES, opening_words, pieces
from scenarios.pieces import TokenCounter
from scenarios.prompts import PromptMaker
from scenarios.wanted import Prompt, Wanted

BLOCK_TOKENS = 40


@pytest.fixture(scope="module")
def tokenizer() -> ModelTokenizer:
    """A byte-level BPE of 2,000 tokens, as real ones are made, trained on the corpus."""
    encoder = Encoder(BPE())
    encoder.pre_tokenizer = ByteLevel(add_prefix_space=False)
    alphabet = ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    texts = [piece for name in LANGUAGES for piece in pieces(name)]
    encoder.train_from_iterator([*texts, " ".join(opening_words("en"))], trainer)
    return ModelTokenizer(encoder.to_str().encode(), name="trained")


def made(tokenizer: TokenCounter, wanted: list[Wanted], **changes: Any) -> list[Prompt]:
    plain: dict[str, Any] = {"name": "x", "input_tokens": 300, "languages": ["en", "zh", "code"]}
    conf = ScenarioConf(**{**plain, **changes})
    return PromptMaker(conf, tokenizer, "1:0").prompts(wanted)


def row(index: int, tokens: int, *blocks: int) -> Wanted:
    return Wanted(index=index, input_tokens=tokens, blocks=blocks, block_tokens=BLOCK_TOKENS)


def test_prompts_begin_with_one_of_the_prefixes_and_end_on_their_own(tokenizer: Tokenizer) -> None:
    prompts = made(
        tokenizer, [Wanted(index=k) for k in range(200)], prefix_tokens=120, prefix_count=3
    )
    ids = tokenizer.encode_batch([prompt.text for prompt in prompts])
    assert {prompt.prefix_tokens for prompt in prompts} == {120}
    assert {len(one) for one in ids} == {300}
    beginnings = [tuple(one[:120]) for one in ids]
    assert len(set(beginnings)) == 3
    assert all(beginnings.count(one) > 40 for one in set(beginnings))
    assert len({tuple(one[120:140]) for one in ids}) == 200
    assert tokenizer.encode_batch([prompts[0].text])[0][119] == tokenizer.encode_batch(["\n"])[0][0]


def test_a_prompt_is_never_shorter_than_its_beginning(tokenizer: Tokenizer) -> None:
    sizes = {"input_tokens": 200, "input_tokens_min": 50, "prefix_tokens": 150}
    prompts = made(tokenizer, [Wanted(index=k) for k in range(300)], **sizes)
    assert min(prompt.input_tokens for prompt in prompts) == 158
    assert all(tokenizer.count(prompt.text) == prompt.input_tokens for prompt in prompts)


def test_equal_block_ids_are_equal_text_and_equal_tokens(tokenizer: Tokenizer) -> None:
    rows = [
        row(0, 3 * BLOCK_TOKENS + 11, 0, 1, 2, 3),
        row(1, 3 * BLOCK_TOKENS + 11, 0, 1, 5, 6),
        row(2, 2 * BLOCK_TOKENS + 7, 0, 1, 9),
        row(3, 2 * BLOCK_TOKENS, 4, 1),
        row(4, BLOCK_TOKENS + 30, 0, 1),
    ]
    prompts = made(tokenizer, rows, lengths=Lengths.TRACE)
    ids = tokenizer.encode_batch([prompt.text for prompt in prompts])
    assert [len(one) for one in ids] == [wanted.input_tokens for wanted in rows]
    two = 2 * BLOCK_TOKENS
    assert ids[0][:two] == ids[1][:two] == ids[2][:two]
    assert ids[0][two : two + 10] != ids[1][two : two + 10]
    assert ids[3][:BLOCK_TOKENS] != ids[0][:BLOCK_TOKENS]
    assert ids[3][BLOCK_TOKENS:] == ids[0][BLOCK_TOKENS:two]
    # A block that is cut begins as the whole one does.
    assert ids[4][: BLOCK_TOKENS + 15] == ids[0][: BLOCK_TOKENS + 15]
    assert [prompt.prefix_tokens for prompt in prompts] == [0] * 5


def test_rows_with_the_same_ids_are_the_same_prompt(tokenizer: Tokenizer) -> None:
    rows = [row(k, 2 * BLOCK_TOKENS + 9, 7, 8, 9) for k in range(2)]
    first, second = made(tokenizer, rows)
    assert first.text == second.text


def test_what_the_blocks_leave_over_is_a_text_of_its_own(tokenizer: Tokenizer) -> None:
    rows = [row(k, 3 * BLOCK_TOKENS, 7, 8) for k in range(2)]
    ids = tokenizer.encode_batch([prompt.text for prompt in made(tokenizer, rows)])
    assert ids[0][: 2 * BLOCK_TOKENS] == ids[1][: 2 * BLOCK_TOKENS]
    assert ids[0][2 * BLOCK_TOKENS :] != ids[1][2 * BLOCK_TOKENS :]
    assert {len(one) for one in ids} == {3 * BLOCK_TOKENS}


def test_blocks_beyond_the_length_are_left_out(tokenizer: Tokenizer) -> None:
    (prompt,) = made(tokenizer, [row(0, BLOCK_TOKENS // 2, 7, 8, 9)])
    (whole,) = made(tokenizer, [row(0, 3 * BLOCK_TOKENS, 7, 8, 9)])
    assert prompt.input_tokens == BLOCK_TOKENS // 2
    assert whole.text.startswith(prompt.text[:10])


def test_a_block_is_the_same_whoever_asks_first(tokenizer: Tokenizer) -> None:
    rows = [row(k, 90, k % 5, 40 + k, 3) for k in range(20)]
    forwards = made(tokenizer, rows)
    assert made(tokenizer, rows[::-1])[::-1] == forwards
    assert [made(tokenizer, [one])[0] for one in rows[:3]] == forwards[:3]


@pytest.mark.parametrize("counter", [WordTokenizer(), StartTokenizer()])
def test_the_whole_is_exact_where_sums_deceive(counter: TokenCounter) -> None:
    rows = [row(k, 100 + k, k, k + 1, k + 2, k + 3) for k in range(30)]
    prompts = made(counter, rows)
    assert [prompt.input_tokens for prompt in prompts] == [100 + k for k in range(30)]
    assert counter.count_batch([prompt.text for prompt in prompts]) == [
        prompt.input_tokens for prompt in prompts
    ]
    shared = made(counter, [Wanted(index=k) for k in range(30)], prefix_tokens=50)
    assert counter.count_batch([prompt.text for prompt in shared]) == [300] * 30
