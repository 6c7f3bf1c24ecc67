"""Levels of sessions: each turn is sent with what was really said before it.

A turn is due `think_s` after the end of the answer to the turn before. Its answer is decoded when
it is complete, never while it streams; a turn that fails ends its session, since what should
follow it cannot be known.
"""

from dataclasses import replace
from time import monotonic
from typing import Any

import msgspec

from harness.adapter import Adapter
from harness.load.calls import call_bytes
from harness.load.job import Target
from harness.load.play.arrivals import OpenStage
from harness.load.play.closed import ClosedStage
from harness.load.play.share import turns_at
from harness.load.play.stage import Stage
from harness.load.wire.client import Ended
from harness.types import ChunkKind, Request, Turn


class Conversation:
    """Makes turns into bytes, and answers into what was said."""

    def __init__(self, adapter: Adapter, target: Target) -> None:
        self._adapter = adapter
        self._target = target

    def encoded(self, planned: bytes, said: tuple[Turn, ...]) -> tuple[bytes, str]:
        """The bytes of a planned turn after what was said, and what its user says in it."""
        request = msgspec.json.decode(planned, type=Request)
        request = replace(request, history=(*request.history, *said))
        call = self._adapter.encode(request)
        return call_bytes(call, self._target, request.index), request.prompt

    def answer(self, ended: Ended) -> str | None:
        """The visible text of an answer; None if it failed. Reasoning is not said again."""
        if not ended.is_good or ended.head is None:
            return None
        decoder = self._adapter.decoder(ended.head)
        chunks = [chunk for piece in ended.pieces for chunk in decoder.feed(piece)]
        chunks += decoder.end()
        if any(chunk.error is not None for chunk in chunks):
            return None
        return "".join(chunk.text for chunk in chunks if chunk.kind is ChunkKind.TEXT)


class Session:
    """Plays one session of a stage, turn after turn."""

    def __init__(self, stage: Stage, conversation: Conversation, first: int) -> None:
        self._stage = stage
        self._conversation = conversation
        self._first = first

    def play(self, due_s: float, user: str = "") -> tuple[float, bool]:
        """Play it from its first turn's due time; returns when it ended, and if all went well."""
        stage = self._stage
        said: tuple[Turn, ...] = ()
        turns = turns_at(stage.level, self._first)
        end_s = monotonic()
        for turn in range(turns):
            index = self._first + turn
            data, prompt = self._conversation.encoded(stage.calls[index].data, said)
            if not stage.sleep_until(due_s):
                break
            ended = stage.send(index, data, due_s, user, keep=True)
            end_s, text = ended.end_s, self._conversation.answer(ended)
            if text is None:
                if stage.window_end_s is None:
                    stage.turns_skipped += turns - turn - 1
                return end_s, False
            said = (*said, Turn(role="user", text=prompt), Turn(role="assistant", text=text))
            due_s = end_s + stage.level.think_s
        return end_s, True


class ClosedSessions(ClosedStage):
    """Users that play session after session.

    A level of so many sessions plays each to its end; its window closes with the last of them.
    """

    def __init__(self, *arguments: Any, conversation: Conversation, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._conversation = conversation

    def _play(self, place: int, due_s: float, user: str) -> tuple[float, bool]:
        return Session(self, self._conversation, place).play(due_s, user)

    def _run_dry(self) -> None:
        if self.end_s is not None:
            super()._run_dry()


class OpenSessions(OpenStage):
    """Sessions that begin at due times of their own; their later turns follow their answers."""

    def __init__(self, *arguments: Any, conversation: Conversation, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._conversation = conversation

    def _play(self, place: int, data: bytes, due_s: float) -> None:  # noqa: ARG002 - encoded there
        Session(self, self._conversation, place).play(due_s)

    def _wait(self) -> None:
        if self.end_s is None:
            self.running.join()
        super()._wait()
