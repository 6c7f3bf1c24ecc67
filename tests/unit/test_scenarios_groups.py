"""Mixtures, LoRA adapters, and what the turns of a session have in common."""

from typing import Any

import pytest

from harness.config import GroupConf, ScenarioConf
from harness.errors import ConfigError
from harness.testing.toy_tokenizers import WordTokenizer
from scenarios.prompts import PromptMaker
from scenarios.wanted import Prompt, Wanted

LIGHT = GroupConf(name="light", share=3, input_tokens=20, output_tokens=8)
HEAVY = GroupConf(name="heavy", share=1, input_tokens=90, input_tokens_min=80, output_tokens=30)
NEVER = GroupConf(name="never", share=0, input_tokens=40)


def maker(**changes: Any) -> PromptMaker:
    plain: dict[str, Any] = {"name": "x", "input_tokens": 60, "output_tokens": 16}
    return PromptMaker(ScenarioConf(**{**plain, **changes}), WordTokenizer(), "1:0")


def made(wanted: list[Wanted], **changes: Any) -> list[Prompt]:
    return maker(**changes).prompts(wanted)


def test_groups_are_mixed_by_their_shares() -> None:
    prompts = made([Wanted(index=k) for k in range(1000)], groups=[LIGHT, NEVER, HEAVY])
    names = [prompt.group for prompt in prompts]
    assert set(names) == {"light", "heavy"}
    assert 700 < names.count("light") < 800
    for prompt in prompts:
        if prompt.group == "light":
            assert (prompt.input_tokens, prompt.output_tokens) == (20, 8)
        else:
            assert 80 <= prompt.input_tokens <= 90
            assert prompt.output_tokens == 30


def test_a_group_that_is_wanted_is_given() -> None:
    (prompt,) = made([Wanted(index=0, group="never")], groups=[LIGHT, NEVER, HEAVY])
    assert (prompt.group, prompt.input_tokens, prompt.output_tokens) == ("never", 40, 16)


def test_a_group_that_is_not_there_is_refused() -> None:
    message = r"load\.group_users\.big: not a group of the scenario; its groups: light, heavy"
    with pytest.raises(ConfigError, match=message):
        made([Wanted(index=0, group="big")], groups=[LIGHT, HEAVY])
    with pytest.raises(ConfigError, match="its groups: none"):
        made([Wanted(index=0, group="big")])


def test_a_group_shorter_than_the_shared_beginning_is_refused() -> None:
    message = r"scenario\.groups\[1\]\.input_tokens=20: must be above scenario\.prefix_tokens=20"
    with pytest.raises(ConfigError, match=message):
        maker(groups=[HEAVY, LIGHT], prefix_tokens=20)


def test_what_is_wanted_wins_over_what_would_be_drawn() -> None:
    (prompt,) = made([Wanted(index=3, input_tokens=33, output_tokens=7)], groups=[LIGHT])
    assert (prompt.input_tokens, prompt.output_tokens, prompt.group) == (33, 7, "light")


def test_each_request_names_one_adapter() -> None:
    prompts = made([Wanted(index=k) for k in range(900)], lora=["a", "b", "c"])
    counts = {name: sum(prompt.lora == name for prompt in prompts) for name in "abc"}
    assert sum(counts.values()) == 900
    assert min(counts.values()) > 240
    assert [prompt.lora for prompt in made([Wanted(index=0)])] == [None]


def test_adapters_and_groups_move_no_other_draw() -> None:
    wanted = [Wanted(index=k) for k in range(50)]
    plain = [prompt.text for prompt in made(wanted)]
    assert [prompt.text for prompt in made(wanted, lora=["a", "b"])] == plain
    alike = [GroupConf(name="a"), GroupConf(name="b")]
    assert [prompt.text for prompt in made(wanted, groups=alike)] == plain


def test_the_turns_of_a_session_have_one_group_and_one_adapter() -> None:
    wanted = [Wanted(index=9 * s + t, session=s, turn=t) for s in range(40) for t in range(9)]
    prompts = made(wanted, groups=[LIGHT, HEAVY], lora=["a", "b"])
    chosen = {
        one.session: {
            (p.group, p.lora) for p, w in zip(prompts, wanted, strict=True) if w.session == s
        }
        for s, one in enumerate(wanted[::9])
    }
    assert len(chosen) == 40
    assert all(len(pairs) == 1 for pairs in chosen.values())
    assert len(set.union(*chosen.values())) == 4


def test_only_the_first_turn_carries_the_shared_beginning() -> None:
    wanted = [Wanted(index=k, session=0, turn=k) for k in range(3)]
    first, *later = made(wanted, prefix_tokens=30)
    assert first.prefix_tokens > 0
    assert [prompt.prefix_tokens for prompt in later] == [0, 0]
    assert len({prompt.text[:20] for prompt in (first, *later)}) == 3
