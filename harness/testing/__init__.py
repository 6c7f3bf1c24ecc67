"""Shared parts of the tests, shipped: the contract suite of adapters, and replay of recordings.

An adapter that lives in another package subclasses `AdapterSuite` and is held to the same rules.
"""

from harness.testing.replay import Figures, figures, played_answer
from harness.testing.suite import AdapterSuite
from harness.testing.wire import read_http

__all__ = ["AdapterSuite", "Figures", "figures", "played_answer", "read_http"]
