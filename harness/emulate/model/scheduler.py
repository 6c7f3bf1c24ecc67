"""What goes into the next step: who runs on, who is let in, who has to give way.

The rules are those of vLLM's scheduler (v1, first come first served): what runs goes on before
what waits is let in; when the blocks run out, the newest is put back to the head of the queue and
computed again later.
"""

from collections import deque
from dataclasses import dataclass, field

from harness.config import EmulateConf
from harness.emulate.model.figures import Counters
from harness.emulate.model.memory import KvMemory
from harness.emulate.model.sequence import Sequence


@dataclass(slots=True)
class Work:
    """What one step does: sequences with their tokens, and what its time depends on.

    `admitted`: those that it lets in. `emits`: those that will have one token more at its end.
    """

    admitted: list[Sequence] = field(default_factory=list)
    parts: list[tuple[Sequence, int]] = field(default_factory=list)
    emits: list[Sequence] = field(default_factory=list)
    decoding: int = 0
    kv_tokens: int = 0
    prefill_tokens: int = 0

    def add(self, sequence: Sequence, tokens: int) -> None:
        """Let `sequence` compute so many tokens in this step."""
        self.parts.append((sequence, tokens))
        if tokens == sequence.todo:
            self.emits.append(sequence)
        if sequence.generated and sequence.todo == 1:
            self.decoding += 1
            self.kv_tokens += sequence.computed
        else:
            self.prefill_tokens += tokens


class Scheduler:
    """`waiting` and `running`, both in order of their coming."""

    def __init__(self, conf: EmulateConf, memory: KvMemory, counters: Counters) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._slots = conf.slots_played
        self._step_tokens = conf.step_tokens
        self._is_chunked = conf.chunked_prefill
        self._memory = memory
        self._counters = counters

    def next_work(self, start_s: float) -> Work:
        """Choose the work of a step that starts at `start_s`."""
        work = Work()
        if self._is_chunked:
            has_preempted = self._go_on(work)
            if not has_preempted:
                self._let_in(work, start_s)
            return work
        self._let_in(work, start_s)
        if not work.parts:  # no whole prompt may go first: all that run get their token
            self._go_on(work)
        return work

    def take_out(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands; its blocks are free at once."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._memory.release(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def clear_complete(self) -> None:
        """Let go of what has its whole answer."""
        self.running = [one for one in self.running if not one.is_complete]

    def _go_on(self, work: Work) -> bool:
        """Give those that run their tokens; returns whether some had to give way."""
        budget, number, has_preempted = self._step_tokens, 0, False
        while number < len(self.running) and budget > 0:
            sequence = self.running[number]
            tokens = min(sequence.todo, budget)
            while not self._memory.grow(sequence, tokens):
                has_preempted = True
                newest = self.running.pop()
                self._preempt(newest)
                if newest is sequence:
                    return True
            work.add(sequence, tokens)
            budget -= tokens
            number += 1
        return has_preempted

    def _let_in(self, work: Work, start_s: float) -> None:
        """Let the first of the queue in, in order, while there are slots, tokens and blocks."""
        budget = self._step_tokens - sum(tokens for _, tokens in work.parts)
        while self.waiting and len(self.running) < self._slots and budget > 0:
            sequence = self.waiting[0]
            if sequence.arrival_s > start_s:
                return
            self._memory.look_up(sequence)
            tokens = min(sequence.todo, budget) if self._is_chunked else sequence.todo
            does_fit = tokens <= budget or not work.parts
            if not (does_fit and self._memory.grow(sequence, tokens)):
                self._memory.release(sequence)
                return
            if sequence.cached_tokens is None:
                work.admitted.append(sequence)
            self._note_hits(sequence)
            self.running.append(self.waiting.popleft())
            work.add(sequence, tokens)
            budget -= tokens

    def _note_hits(self, sequence: Sequence) -> None:
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
            if self._memory.has_cache:
                self._counters.prefix_queries += sequence.prompt_tokens
                self._counters.prefix_hits += sequence.computed

    def _preempt(self, sequence: Sequence) -> None:
        self._memory.release(sequence)
        sequence.preemptions += 1
        self._counters.preemptions += 1
        self.waiting.appendleft(sequence)
