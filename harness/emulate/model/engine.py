"""An engine with continuous batching over a paged KV cache, step by step in virtual time.

A step's tokens all come at its end, as those of a real engine do.
"""

from collections import deque

from harness.config import EmulateConf
from harness.emulate.model.figures import Counters, Gauges, StepFigures
from harness.emulate.model.memory import KvMemory
from harness.emulate.model.scheduler import Scheduler, Work
from harness.emulate.model.sequence import Sequence
from harness.emulate.model.step_time import StepTime

_STEPS_KEPT = 1000  # TensorRT-LLM's `max_stats_len`


class EngineModel:
    """`submit` what comes, then `begin` and `finish` one step after another.

    Between the two, `emits` are the sequences that will have one token more when it ends, unless
    they are cancelled.

    `now_s`: the end of the last step. `counters` may be read at any time. `steps`: the last
    thousand that have ended and that nobody has taken out. A request alone has its first token
    after prompt_tokens / prefill_tokens_per_s plus the base time of each step that its prompt
    needs.
    """

    def __init__(self, conf: EmulateConf) -> None:
        self.now_s = 0.0
        self.counters = Counters()
        self.steps: deque[StepFigures] = deque(maxlen=_STEPS_KEPT)
        self._time = StepTime(conf)
        self._memory = KvMemory(conf)
        self._scheduler = Scheduler(conf, self._memory, self.counters)
        self._work: Work | None = None
        self._start_s = 0.0
        self._end_s = 0.0

    @property
    def admitted(self) -> list[Sequence]:
        """Whom the step that has begun lets in for the first time."""
        assert self._work is not None, "no step has begun"
        return self._work.admitted

    @property
    def emits(self) -> list[Sequence]:
        """Who gets a token at the end of the step that has begun."""
        assert self._work is not None, "no step has begun"
        return self._work.emits

    def submit(self, sequence: Sequence) -> None:
        """Queue a request; it is let in by a step that starts at or after its arrival.

        Prompt and answer must fit the cache together, or it would never end: the caller refuses
        it. Arrivals must ascend.
        """
        self._scheduler.waiting.append(sequence)

    def cancel(self, sequence: Sequence) -> None:
        """Take a request out, wherever it stands; nothing comes of it any more."""
        if not (sequence.is_gone or sequence.is_complete):
            sequence.is_gone = True
            self._scheduler.take_out(sequence)

    def reset_cache(self) -> None:
        """Forget the beginnings of all prompts."""
        self._memory.reset()

    def gauges(self) -> Gauges:
        """How many run and wait, and how full the cache is."""
        return Gauges(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            kv_usage_ratio=self._memory.usage_ratio,
        )

    def begin(self) -> float | None:
        """Begin the next step; returns when it ends, or None if there is nothing to do."""
        start_s = self.now_s
        if not self._scheduler.running:
            if not self._scheduler.waiting:
                return None
            start_s = max(start_s, self._scheduler.waiting[0].arrival_s)
        work = self._scheduler.next_work(start_s)
        self._work = work
        self._start_s = start_s
        self._end_s = self._time.end_s(
            start_s,
            decoding=work.decoding,
            kv_tokens=work.kv_tokens,
            prefill_tokens=work.prefill_tokens,
        )
        for sequence in work.admitted:
            sequence.begun_s = start_s
        for sequence in work.emits:
            sequence.last_s = self._end_s
            if not sequence.generated:
                sequence.first_s = self._end_s
        self.counters.sequence_steps += len(work.parts)
        self.counters.steps += 1
        self.counters.busy_s += self._end_s - start_s
        return self._end_s

    def finish(self) -> list[Sequence]:
        """End the step that was begun; returns the sequences that have one token more."""
        assert self._work is not None, "no step has begun"
        work, self._work, self.now_s = self._work, None, self._end_s
        gauges = self.gauges()
        emits: list[Sequence] = []
        completed = 0
        for sequence, tokens in work.parts:
            if sequence.is_gone:
                continue
            sequence.computed += tokens
            sequence.todo -= tokens
            self._memory.publish(sequence)
            if sequence.todo:
                continue
            if sequence.generated == 0:
                self._note_read(sequence)
            sequence.generated += 1
            sequence.todo = 1
            emits.append(sequence)
            if sequence.is_complete:
                completed += 1
                self._note_ended(sequence)
                self._memory.release(sequence)
        self.counters.generation += len(emits)
        if completed:
            self._scheduler.clear_complete()
        self._keep(work, gauges, completed)
        return emits

    def _keep(self, work: Work, gauges: Gauges, completed: int) -> None:
        self.steps.append(
            StepFigures(
                number=self.counters.steps,
                end_s=self._end_s,
                took_s=self._end_s - self._start_s,
                running=gauges.running,
                waiting=gauges.waiting,
                kv_usage_ratio=gauges.kv_usage_ratio,
                admitted=len(work.admitted),
                prefilling=len(work.parts) - work.decoding,
                decoding=work.decoding,
                prefill_tokens=work.prefill_tokens,
                completed=completed,
            )
        )

    def _note_read(self, sequence: Sequence) -> None:
        self.counters.prompt += sequence.prompt_tokens
        self.counters.begun += 1
        self.counters.ttft_s += self.now_s - sequence.arrival_s
        self.counters.cached += sequence.cached_tokens or 0
        self.counters.prompt_s += sequence.first_s - sequence.begun_s

    def _note_ended(self, sequence: Sequence) -> None:
        self.counters.complete += 1
        self.counters.e2e_s += self.now_s - sequence.arrival_s
        self.counters.ended += sequence.generated
        self.counters.ended_s += sequence.last_s - sequence.first_s
        self.counters.longest = max(self.counters.longest, sequence.held_tokens)
