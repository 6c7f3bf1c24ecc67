import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engine import ports
from harness.errors import ConfigError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_a_free_port_lies_below_the_ephemeral_range_and_can_be_served() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = {ports.free_port() for _ in range(20)}
    assert all(1024 <= port < first for port in found)
    assert len(found) > 10  # two runs that start together do not meet
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", found.pop()))


def test_a_port_in_use_names_the_port_and_who_listens(taken: int) -> None:
    assert not ports.is_free(taken)
    assert ports.listeners(taken) == [os.getpid()]
    with pytest.raises(ConfigError) as caught:
        ports.choose_port(taken)
    text = str(caught.value)
    assert text.startswith(f"launch.port={taken}: in use by process {os.getpid()} (")
    assert text.endswith("; choose another port, or leave launch.port out for a free one")
    assert caught.value.exit_code == 2


def test_a_wanted_free_port_is_taken_as_it_is() -> None:
    port = ports.free_port()
    assert ports.choose_port(port) == port
    assert ports.choose_port(None) != 0


def test_a_listener_of_another_user_is_named_as_such() -> None:
    assert ports.describe([None]) == "a process of another user"
    assert ports.describe([]) == ""
