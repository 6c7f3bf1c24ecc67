"""Known failures in an engine's log: a table of patterns, searched from the end of the log."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.types import Diagnosis

_MAX_REASON_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A regular expression for one line of the log, and what to change."""

    pattern: str
    advice: str


SIGILL = Failure(
    pattern=r"illegal instruction|SIGILL|signal 4\b|exit code:? -4\b",
    advice="the engine was built for another CPU",
)


def diagnose(log_tail: str, failures: Sequence[Failure], prefix: str = "") -> Diagnosis | None:
    """The first of these failures that the log shows, with the log's last line of that kind.

    `failures`: the more telling first. `prefix`: a pattern for what the engine writes before a
    message, such as a time; it is taken off.
    """
    lines = [line for line in reversed(log_tail.splitlines()) if line.strip()]
    for failure in failures:
        pattern = re.compile(failure.pattern, re.IGNORECASE)
        line = next((line for line in lines if pattern.search(line)), None)
        if line is not None:
            reason = " ".join(re.sub(f"^(?:{prefix})", "", line).split())
            return Diagnosis(reason=reason[:_MAX_REASON_CHARS], advice=failure.advice)
    return None
