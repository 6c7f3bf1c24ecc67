"""From the raw journal to Records: HTTP framing, the adapter's meaning, the clock's zero.

Pure after the load: it can be run again on a kept journal when a parser has been mended.
"""

from harness.load.decode.decoder import Decoded, JournalDecoder
from harness.load.decode.levels import PlayedLevel

__all__ = ["Decoded", "JournalDecoder", "PlayedLevel"]
