"""Interrupts held back while a run is written."""

import signal
import threading

import pytest

from harness.run.interrupt import held_back


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []

    def write() -> None:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            done.append("written")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["written"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_nothing_happens_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with held_back():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_failure_inside_wins_over_the_interrupt() -> None:
    def write() -> None:
        with held_back():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("disk")

    with pytest.raises(ValueError, match="disk"):
        write()


def test_in_another_thread_nothing_is_held_back() -> None:
    seen = []

    def work() -> None:
        with held_back():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
