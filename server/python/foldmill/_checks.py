"""Checks of arguments, so that a wrong one is named before anything is opened."""

from __future__ import annotations

import datetime
import operator
from typing import Any

MOST_U32, MOST_U64 = 2**32 - 1, 2**64 - 1
_MOST_SECONDS = MOST_U32 // 1000


def integer(name: str, value: Any, least: int, most: int) -> int:
    """Returns an integer of Python or NumPy as an int. TypeError, ValueError."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: found {value!r}, expected an integer") from None
    if not least <= number <= most:
        raise ValueError(f"{name}: found {number}, expected {least} to {most}")
    return number


def milliseconds(name: str, seconds: float) -> int:
    """Returns a time in whole milliseconds. ValueError."""
    if not 0 <= seconds <= _MOST_SECONDS:
        raise ValueError(f"{name}: found {seconds!r}, expected 0 to {_MOST_SECONDS} seconds")
    return int(seconds * 1000)


def date(name: str, text: str, others: tuple[str, ...] = ()) -> str:
    """Returns "YYYY-MM-DD" as it is, or one of the other words. ValueError."""
    try:
        if text in others or datetime.date.fromisoformat(text).isoformat() == text:
            return text
    except (TypeError, ValueError):
        pass
    words = "".join(f", {word!r}" for word in others)
    raise ValueError(f"{name}: found {text!r}, expected 'YYYY-MM-DD'{words}")
