"""What a client counts."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class ClientStats:
    """What a client has done so far, and the requests that are under way now.

    `retries`: requests sent again, after a 429 or because a kept connection had died.
    `unstamped_reads`: reads without the kernel's stamp. `peak_in_flight`: set it to `in_flight`
    to begin anew.
    """

    connects: int = 0
    retries: int = 0
    unstamped_reads: int = 0
    in_flight: int = 0
    peak_in_flight: int = 0
