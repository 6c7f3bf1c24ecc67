"""Recorded loads to replay: when each request came, how long it was, what it shared.

`read_trace` makes a `Trace` of a file or of one that ships with bakeoff; what was found, assumed,
skipped and done to it stands in its facts. Nothing here sends anything or makes a prompt.
"""

from scenarios.traces.read import read_trace
from scenarios.traces.shipped import SHIPPED
from scenarios.traces.trace import Trace, describe

__all__ = ["SHIPPED", "Trace", "describe", "read_trace"]
