"""Cron expressions in words: `30 3 * * 1-5` is "at 03:30, Monday to Friday"."""

from __future__ import annotations

import re
from collections.abc import Sequence

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_PLACES = ("", "first", "second", "third", "fourth", "fifth")
_STEP = re.compile(r"(?:\*|0)/(\d{1,2})")
_RANGE = re.compile(r"([a-z0-9]+)-([a-z0-9]+)")
_PLACE = re.compile(r"([a-z0-9]+)#([1-5])")
CLOCKS_MAX = 6  # times of day that are named one by one
FIELDS = 5


class _Unknown(Exception):
    """The words for a part of the expression are not known."""


def cron_words(cron: str) -> str:
    """Return a cron expression in words; empty for one that has no simple words."""
    fields = cron.lower().split()
    if len(fields) != FIELDS:
        return ""
    minute, hour, day, month, weekday = fields
    try:
        days = _days(day, month, weekday)
        clocks = _clocks(minute, hour)
        if clocks:
            return f"at {_listed(clocks)}{days or ' every day'}"
        return f"{_rhythm(minute, hour)}{days}"
    except _Unknown:
        return ""


def _clocks(minute: str, hour: str) -> list[str]:
    """Return the times of day, if they are few."""
    if not re.fullmatch(r"[\d,]+", minute) or not re.fullmatch(r"[\d,]+", hour):
        return []
    times = [f"{int(one):02}:{int(two):02}" for one in hour.split(",") for two in minute.split(",")]
    return sorted(times) if len(times) <= CLOCKS_MAX else []


def _rhythm(minute: str, hour: str) -> str:
    every_hour = hour == "*"
    if minute == "*":
        words = "every minute"
    elif step := _STEP.fullmatch(minute):
        words = f"every {_even(step[1], 60)} minutes"
    elif minute.isdigit():
        at = "" if minute == "0" and every_hour else f" at minute {int(minute)}"
        step = _STEP.fullmatch(hour)
        if every_hour or step:
            return f"every {f'{_even(step[1], 24)} hours' if step else 'hour'}{at}"
        words = f"at minute {int(minute)}"
    else:
        words = f"at minutes {_numbers(minute, ())}"
    if every_hour:
        return words if "every" in words else f"{words} of every hour"
    return f"{words} of {'hour' if hour.isdigit() else 'the hours'} {_numbers(hour, ())}"


def _even(step: str, whole: int) -> int:
    """Return a step that divides the whole: others begin again with each hour or day."""
    if int(step) < 2 or whole % int(step):
        raise _Unknown
    return int(step)


def _days(day: str, month: str, weekday: str) -> str:
    """Return the days. Cron takes either of the two, if both are restricted."""
    months = "" if month == "*" else f" in {_numbers(month, _MONTHS)}"
    by_day = "" if day in {"*", "?"} else _of_month(day)
    by_week = "" if weekday in {"*", "?"} else _of_week(weekday)
    if by_day and by_week:
        both = "and" if day.startswith("*") or weekday.startswith("*") else "or"
        return f", {by_day} {both} {by_week}{months}"
    return (f", {by_day}" if by_day else f", {by_week}" if by_week else "") + months


def _of_month(day: str) -> str:
    if day == "l":
        return "on the last day of the month"
    if day == "lw":
        return "on the last working day of the month"
    if step := _STEP.fullmatch(day.replace("0/", "*/")):
        return f"every {int(step[1])} days from day 1"
    return f"on day {_numbers(day, ())} of the month"


def _of_week(weekday: str) -> str:
    if found := _PLACE.fullmatch(weekday):
        return f"on the {_PLACES[int(found[2])]} {_name(found[1], _DAYS)} of the month"
    if re.fullmatch(r"[a-z0-9]+l", weekday):
        return f"on the last {_name(weekday[:-1], _DAYS)} of the month"
    words = _numbers(weekday, _DAYS)
    return words if "-" in weekday and "," not in weekday else f"on {words}"


def _numbers(field: str, names: Sequence[str]) -> str:
    """Return a list of numbers and ranges in words."""
    words = []
    for one in field.split(","):
        if found := _RANGE.fullmatch(one):
            words.append(f"{_name(found[1], names)} to {_name(found[2], names)}")
        else:
            words.append(_name(one, names))
    return _listed(words)


def _name(one: str, names: Sequence[str]) -> str:
    """Return a number, or the name of a day or month; a name may be written with three letters."""
    if not names and one.isdigit():
        return str(int(one))
    if one.isdigit() and int(one) < len(names) and names[int(one)]:
        return names[int(one)]
    found = next((name for name in names if len(one) == 3 and name.lower().startswith(one)), None)
    if found is None:
        raise _Unknown
    return found


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
