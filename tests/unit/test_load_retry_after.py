import pytest

from harness.load.wire import retry_after
from harness.load.wire.retry_after import retry_after_s


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [
        (None, 1.0),
        (b"", 1.0),
        (b"0", 0.0),
        (b" 120 ", 120.0),
        (b"1.5", 1.5),
        (b"-3", 1.0),
        (b"soon", 1.0),
        (b"\xff", 1.0),
        (b"Fri, 31 Dec 1999 23:59:59 GMT", 9.0),
        (b"Fri, 31 Dec 1999 23:59:00 GMT", 0.0),
    ],
)
def test_a_number_or_a_date_in_seconds_from_now(
    monkeypatch: pytest.MonkeyPatch, value: bytes | None, expected_s: float
) -> None:
    monkeypatch.setattr(retry_after, "wall_now", lambda: 946684790.0)  # 23:59:50
    assert retry_after_s(value) == expected_s
