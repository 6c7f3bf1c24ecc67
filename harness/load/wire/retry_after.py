"""How long a server asks us to wait (RFC 9110, 10.2.3)."""

from email.utils import parsedate_to_datetime

from harness.load.wire.stamps import wall_now

DEFAULT_S = 1.0


def retry_after_s(value: bytes | None) -> float:
    """Seconds of a Retry-After header, a number or a date; 1 s for none and for what is neither."""
    text = (value or b"").decode("latin-1").strip()
    if text.isascii() and text.replace(".", "", 1).isdecimal():  # fractions are not in the RFC
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return DEFAULT_S
    return max(0.0, date.timestamp() - wall_now())
