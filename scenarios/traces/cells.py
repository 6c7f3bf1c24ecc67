"""What one cell of a trace may hold: a time stamp or a count of tokens.

A cell is text (CSV), an int or a Decimal (JSON); Decimals, because a float has no room for
100 ns of a date. The ValueErrors raised here say what is allowed; the caller says where.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any

NS_PER_S = 10**9
NS_PER_UNIT = {"s": NS_PER_S, "ms": 10**6}
_LIMIT_NS = 2**63  # what array('q') holds: 292 years
_TIME_ALLOWED = {
    unit: f"a finite number of {unit} from 0 to {_LIMIT_NS // ns:,}"
    for unit, ns in NS_PER_UNIT.items()
}
_TOKENS_MAX = 2**32 - 1  # what array('L') holds anywhere
_SHORT_DIGITS = 18
_TOKENS_ALLOWED = f"a whole number of tokens from 0 to {_TOKENS_MAX:,}"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = r"\s*(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)"
_DATE = re.compile(_SECOND + r"(?:\.(\d+))?\s*(Z|[+-]\d\d(?::?\d\d)?)?\s*", re.ASCII)
_DATE_ALLOWED = "a date such as 2024-01-02 03:04:05.1234567 between 1678 and 2262"


def is_date(cell: Any) -> bool:
    """Whether a time stamp is a date, not a number."""
    return isinstance(cell, str) and _DATE.fullmatch(cell) is not None


def stamp_reader(first: Any, unit: str) -> Callable[[Any], int]:
    """How the time stamps of a trace are read, told by its first: to nanoseconds, exactly.

    Numbers in `unit` (`s` or `ms`) from the recording's own zero; dates since 1970, without a
    time zone as UTC, and all with one or all without.
    """
    date = _DATE.fullmatch(first) if isinstance(first, str) else None
    if date is None:
        return partial(_number_ns, unit=unit)
    return partial(_date_ns, has_zone=date[3] is not None)


def _date_ns(cell: Any, *, has_zone: bool) -> int:
    date = _DATE.fullmatch(cell) if isinstance(cell, str) else None
    if date is None:
        raise ValueError(_DATE_ALLOWED)
    second, fraction, zone = date.groups()
    if (zone is not None) is not has_zone:
        more = "with" if has_zone else "without"
        raise ValueError(f"a date {more} a time zone, as in the first row")
    ns = _second_ns(second, zone or "+00:00") + int((fraction or "0")[:9].ljust(9, "0"))
    if not -_LIMIT_NS <= ns < _LIMIT_NS:
        raise ValueError(_DATE_ALLOWED)
    return ns


@lru_cache(maxsize=4096)  # many rows share a second
def _second_ns(second: str, zone: str) -> int:
    try:
        since = datetime.fromisoformat(second + zone) - _EPOCH
    except (ValueError, OverflowError) as error:
        raise ValueError(_DATE_ALLOWED) from error
    return (since.days * 86_400 + since.seconds) * NS_PER_S


def _number_ns(cell: Any, *, unit: str) -> int:
    factor = NS_PER_UNIT[unit]
    allowed = _TIME_ALLOWED[unit]
    number = _number(cell, allowed)
    if not 0 <= number < _LIMIT_NS // factor:
        raise ValueError(allowed)
    return round(number * factor)


def read_tokens(cell: Any) -> int:
    """A whole number of tokens from 0 to 4,294,967,295; 374.0 is 374."""
    number = _number(cell, _TOKENS_ALLOWED)
    if not 0 <= number <= _TOKENS_MAX or (type(number) is Decimal and number % 1):
        raise ValueError(_TOKENS_ALLOWED)
    return int(number)


def _number(cell: Any, allowed: str) -> int | Decimal:
    """The number in a cell, exact and never NaN; Python's underscores in numbers are refused."""
    if type(cell) is int or type(cell) is Decimal:
        return cell
    if not isinstance(cell, str) or "_" in cell:
        raise ValueError(allowed)
    if len(cell) <= _SHORT_DIGITS and cell.isdecimal():
        return int(cell)  # most cells are such, and it is quick
    try:
        number = Decimal(cell)
    except InvalidOperation as error:
        raise ValueError(allowed) from error
    if number.is_nan():
        raise ValueError(allowed)
    return number
