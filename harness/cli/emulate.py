"""`emulate`: serve an emulated engine until it is stopped."""

from harness.emulate.command import serve


def emulate(arguments: list[str]) -> int:
    """`bakeoff emulate ENGINE`; returns 0 when it is stopped."""
    return serve(arguments)
