"""The prompts of a scenario: what a request begins with, its own text, its exact length.

Every prompt is a pure function of (scenario, tokenizer, seed, what is wanted), whatever was asked
before. Texts are put together from counted pieces (`scenarios.texts`) and made exact as a whole
(`scenarios.fitting`); a file's prompts stay as they are, but for a cut (`scenarios.file_prompts`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from harness.config import GroupConf, ScenarioConf
from scenarios.beginnings import BLOCK, Beginning, Beginnings
from scenarios.file_prompts import FilePrompts
from scenarios.fitting import Draft, Fitter
from scenarios.groups import Groups
from scenarios.lengths import length_facts, lengths, longest
from scenarios.pieces import TokenCounter
from scenarios.prompt_file import read_prompts
from scenarios.texts import Ask, TextMaker
from scenarios.wanted import Prompt, Wanted

_OWN_TOKENS = 8  # of a prompt behind a shared beginning: enough to tell it from all others


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sketch:
    """What is known of a prompt before its own text is made."""

    wanted: Wanted
    group: GroupConf | None
    input_tokens: int
    output_tokens: int
    beginning: Beginning
    own: Ask


def _first(*values: int | None) -> int:
    """The first that is not None."""
    return next(value for value in values if value is not None)


class PromptMaker:
    """Makes the prompts of a scenario under one seed.

    Args:
        conf: lengths, groups and languages; with several languages each text draws one.
        tokenizer: counts tokens; an approximate one gives texts of approximate length.
        seed: any text; streams are derived from it.

    Raises:
        ConfigError: the scenario's groups or prompts file cannot be used.
    """

    def __init__(self, conf: ScenarioConf, tokenizer: TokenCounter, seed: str | int) -> None:
        self._conf = conf
        self._seed = str(seed)
        self._texts = TextMaker(conf.languages, tokenizer, self._seed)
        self._fitter = Fitter(tokenizer, self._texts.fillers)
        self._beginnings = Beginnings(tokenizer, self._texts, self._fitter, self._seed)
        self._groups = Groups(conf, self._seed)
        self._file: FilePrompts | None = None
        if conf.prompts_file:
            rows = read_prompts(conf.prompts_file)
            self._file = FilePrompts(rows, tokenizer, self._texts, self._fitter, self._seed)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What prompts are made of beyond the configuration and our corpus, JSON-able.

        `lengths`: see `length_facts`; `prompts_file`: see `FilePrompts.facts`; {} for a scenario
        that has neither.
        """
        drawn = length_facts(self._conf)
        facts: dict[str, Any] = {"lengths": drawn} if drawn else {}
        if self._file is not None:
            facts["prompts_file"] = self._file.facts(self._conf)
        return facts

    def prompt(self, wanted: Wanted) -> Prompt:
        """One prompt; see `prompts`."""
        return self.prompts([wanted])[0]

    def prompts(self, wanted: Sequence[Wanted]) -> list[Prompt]:
        """Prompts for many requests at once, in their order; the same as one by one.

        What `wanted` leaves open is drawn: group, lengths, LoRA adapter. A prompt's count is the
        length that was asked for. Only where no text of that length can be found with this
        vocabulary it is the nearest below, and says so; a file's prompt has the length it has.

        Raises:
            ConfigError: a group that the scenario does not have, or its length table cannot be
                used.
        """
        sketches = [self._sketch(one) for one in wanted]
        if self._file is not None:
            return [self._from_file(sketch, self._file) for sketch in sketches]
        bodies = self._texts.texts([sketch.own for sketch in sketches])
        drafts = [
            Draft(
                tokens=sketch.input_tokens,
                head=sketch.beginning.text,
                body=body,
                again=partial(self._body_again, sketch.own, sketch.input_tokens),
            )
            for sketch, body in zip(sketches, bodies, strict=True)
        ]
        return [
            self._finished(sketch, text, count, sketch.output_tokens)
            for sketch, (text, count) in zip(sketches, self._fitter.fitted(drafts), strict=True)
        ]

    def _sketch(self, wanted: Wanted) -> _Sketch:
        group = self._groups.group(wanted)
        drawn = lengths(self._conf, self._seed, wanted.index, group)
        input_tokens = _first(wanted.input_tokens, drawn.input_tokens)
        if wanted.blocks:
            beginning, own = self._of_blocks(wanted, input_tokens)
        else:
            beginning = self._shared_prefix(wanted)
            if beginning.tokens:
                input_tokens = max(input_tokens, self._least_tokens(beginning, group))
            own = Ask(number=wanted.index, tokens=input_tokens - beginning.tokens)
        return _Sketch(
            wanted=wanted,
            group=group,
            input_tokens=input_tokens,
            output_tokens=_first(wanted.output_tokens, drawn.output_tokens),
            beginning=beginning,
            own=own,
        )

    def _shared_prefix(self, wanted: Wanted) -> Beginning:
        """What the scenario's requests share; a later turn has it in its history."""
        if not self._conf.prefix_tokens or wanted.turn:
            return Beginning()
        return self._beginnings.shared(
            wanted.index, tokens=self._conf.prefix_tokens, count=self._conf.prefix_count
        )

    def _least_tokens(self, beginning: Beginning, group: GroupConf | None) -> int:
        """How long a prompt behind a shared beginning is at least: some of it is its own."""
        room = longest(self._conf, group).input_tokens - beginning.tokens
        return beginning.tokens + max(1, min(_OWN_TOKENS, room))

    def _of_blocks(self, wanted: Wanted, input_tokens: int) -> tuple[Beginning, Ask]:
        """The whole blocks that fit, and the rest: part of the next block, or text of its own."""
        whole = min(len(wanted.blocks), input_tokens // wanted.block_tokens)
        ids = wanted.blocks[:whole]
        beginning = self._beginnings.blocks(ids, block_tokens=wanted.block_tokens)
        rest = max(0, input_tokens - beginning.tokens)
        if whole < len(wanted.blocks):
            return beginning, Ask(purpose=BLOCK, number=wanted.blocks[whole], tokens=rest)
        return beginning, Ask(number=wanted.index, tokens=rest)

    def _body_again(self, own: Ask, input_tokens: int, asked: int) -> str:
        """A sketch's own text, for a sum that differs from the first as the whole's does."""
        (body,) = self._texts.texts([replace(own, tokens=own.tokens + asked - input_tokens)])
        return body

    def _from_file(self, sketch: _Sketch, file: FilePrompts) -> Prompt:
        most = longest(self._conf, sketch.group)
        found = file.prompt(
            sketch.wanted.index,
            head=sketch.beginning.text,
            most_tokens=_first(sketch.wanted.input_tokens, most.input_tokens),
        )
        wanted, said = sketch.wanted.output_tokens, found.output_tokens
        output_tokens = min(_first(wanted, said, sketch.output_tokens), most.output_tokens)
        return self._finished(sketch, found.text, found.input_tokens, output_tokens)

    def _finished(self, sketch: _Sketch, text: str, count: int, output_tokens: int) -> Prompt:
        return Prompt(
            index=sketch.wanted.index,
            text=text,
            input_tokens=count,
            output_tokens=output_tokens,
            prefix_tokens=0 if sketch.wanted.blocks else sketch.beginning.tokens,
            group=sketch.group.name if sketch.group else None,
            lora=self._groups.lora(sketch.wanted),
        )
