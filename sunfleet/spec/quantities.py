"""Durations, sizes, rates and times of day as people write them, with what editors should accept.

Every reader takes what YAML or JSON gave and raises ValueError with an example of what to write.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

LONGEST = timedelta(days=366)  # of anything that a fleet file calls a duration
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_DURATION = re.compile(rf"(?:({_NUMBER})d)?(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?")
_SECONDS = (Decimal(86400), Decimal(3600), Decimal(60), Decimal(1))
_AMOUNT = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)")
_SIZES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SIZES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_RATES = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]"


def duration(value: Any) -> timedelta:
    """`20m`, `11h`, `2h30m`, `1d`; largest unit first, at most a year. Errors: ValueError."""
    text = str(value).strip()
    found = _DURATION.fullmatch(text)
    if not text or not found:
        raise ValueError(f"{text!r} is no duration; write 20m, 11h, 2h30m or 1d")
    seconds = sum((Decimal(n) * unit for n, unit in zip(found.groups(), _SECONDS, strict=True) if n), Decimal(0))
    if seconds > Decimal(LONGEST.total_seconds()):
        raise ValueError(f"{text!r} is longer than a year")
    return timedelta(seconds=float(seconds))


def size(value: Any) -> int:
    """Bytes: `12Ti`, `900Gi`, `80G`, or a plain number. Errors: ValueError."""
    return _amount(value, _SIZES, "size; write 12Ti, 900Gi or 80G")


def rate(value: Any) -> int:
    """Bits per second: `10Gbit` and the like; never zero, which would never end. Errors: ValueError."""
    found = _amount(value, _RATES, "rate; write 10Gbit or 800Mbit (per second)")
    if found == 0:
        raise ValueError(f"{value!r} would never end; leave it out when it is not known")
    return found


def _amount(value: Any, units: dict[str, int], what: str) -> int:
    found = _AMOUNT.fullmatch(str(value).strip())
    if not found or found[2] not in units:
        raise ValueError(f"{value!r} is no {what}")
    return int(Decimal(found[1]) * units[found[2]])


def wall_clock(value: Any) -> str:
    """`HH:MM` of a day that has no 24:00. Errors: ValueError."""
    text = str(value)
    if not re.fullmatch(_CLOCK, text):
        raise ValueError(f'{text!r} is no time of day; write "08:00", in quotes')
    return text


def _schema(pattern: str, *examples: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", "examples": list(examples)})


_LOOSE = r"[0-9]+(\.[0-9]+)?"
Duration = Annotated[
    timedelta,
    BeforeValidator(duration),
    _schema(rf"(?=[0-9])({_LOOSE}d)?({_LOOSE}h)?({_LOOSE}m)?({_LOOSE}s)?", "20m", "11h", "2h30m", "1d"),
]
Size = Annotated[
    int,
    BeforeValidator(size),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "minimum": 0,
            "pattern": rf"^{_LOOSE}\s*([kMGTP]|[KMGTP]i)?$",
            "examples": ["12Ti", "900Gi", "80G"],
        }
    ),
]
Rate = Annotated[int, BeforeValidator(rate), _schema(rf"{_LOOSE}\s*[kMGT]?bit", "10Gbit", "800Mbit")]
WallClock = Annotated[str, BeforeValidator(wall_clock), _schema(_CLOCK, "08:00")]
Count = Annotated[int, Field(ge=0, le=10_000)]
