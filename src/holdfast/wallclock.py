"""Search for the local times that a cron expression matches, without time zones.

A year has one of fourteen shapes: leap or not, and the weekday on which it begins. Days are matched once for
each shape. So a search never goes from day to day, and an expression that fits no shape never fires.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import isleap
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, date, datetime, time, timedelta

YEARS_MAX = 50  # years that a search covers; every shape of a year recurs within 40
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)


class WallClock:
    """A cron expression as minutes, hours and days; times here have no zone."""

    def __init__(
        self, minutes: set[int], hours: set[int], months: set[int], matches: Callable[[date], bool]
    ) -> None:
        self._minutes, self.hours, self._months = sorted(minutes), sorted(hours), months
        self._matches = matches
        self._shapes: dict[tuple[bool, int], list[int]] = {}

    def after(self, shown: datetime) -> datetime | None:
        """Return the first matching time after this one; None when there is none in YEARS_MAX years."""
        first = shown.replace(second=0, microsecond=0) + _MINUTE
        day = self._day_from(first.date())
        if day == first.date():
            if (found := self._time_from(first.time())) is not None:
                return datetime.combine(day, found)
            day = self._day_from(day + _DAY)
        return None if day is None else datetime.combine(day, time(self.hours[0], self._minutes[0]))

    def before(self, shown: datetime) -> datetime | None:
        """Return the last matching time at or before this one; None when there is none in the two years
        before.
        """
        day = self._day_to(shown.date())
        if day == shown.date():
            if (found := self._time_to(shown.time())) is not None:
                return datetime.combine(day, found)
            day = self._day_to(day - _DAY)
        return None if day is None else datetime.combine(day, time(self.hours[-1], self._minutes[-1]))

    def _time_from(self, first: time) -> time | None:
        at = bisect_left(self._minutes, first.minute)
        if first.hour in self.hours and at < len(self._minutes):
            return time(first.hour, self._minutes[at])
        later = bisect_right(self.hours, first.hour)
        return time(self.hours[later], self._minutes[0]) if later < len(self.hours) else None

    def _time_to(self, last: time) -> time | None:
        at = bisect_right(self._minutes, last.minute)
        if last.hour in self.hours and at:
            return time(last.hour, self._minutes[at - 1])
        sooner = bisect_left(self.hours, last.hour)
        return time(self.hours[sooner - 1], self._minutes[-1]) if sooner else None

    def _day_from(self, first: date) -> date | None:
        for year in range(first.year, min(MAXYEAR, first.year + YEARS_MAX) + 1):
            days = self._days(year)
            at = bisect_left(days, _number(first)) if year == first.year else 0
            if at < len(days):
                return date(year, 1, 1) + days[at] * _DAY
        return None

    def _day_to(self, last: date) -> date | None:
        for year in range(last.year, max(MINYEAR, last.year - 2) - 1, -1):
            days = self._days(year)
            at = bisect_right(days, _number(last)) if year == last.year else len(days)
            if at:
                return date(year, 1, 1) + days[at - 1] * _DAY
        return None

    def _days(self, year: int) -> list[int]:
        """Return the numbers of the matching days of a year."""
        first = date(year, 1, 1)
        shape = isleap(year), first.weekday()
        if shape not in self._shapes:
            every = (first + n * _DAY for n in range(365 + shape[0]))
            self._shapes[shape] = [
                _number(day) for day in every if day.month in self._months and self._matches(day)
            ]
        return self._shapes[shape]


def _number(day: date) -> int:
    return day.toordinal() - date(day.year, 1, 1).toordinal()
