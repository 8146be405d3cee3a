"""A rhythm and an instant give the next instant. Pure: no clock, and chance only as a hash.

Cron is read on the clock of its zone. A fixed local time that a change of the clock repeats fires the first
time only, and one that it skips fires when the skip ends. Patterns of hours or minutes that begin with `*`,
and such as name all hours, fire whenever the clock on the wall shows a match.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import msgspec

from .arguments import Seconds, seconds
from .clipped import clipped
from .errors import UsageError
from .records import SECOND, Instant, instant, moment

if TYPE_CHECKING:
    from cronsim import CronSim

EVERY_MIN_SECONDS = 1.0
EVERY_MAX_SECONDS = 100 * 365.25 * 86400.0
TEXT_MAX = 255
GAPS_FROM = instant(datetime(2024, 1, 1, tzinfo=UTC))
GAPS_MAX = 100  # times whose distances jitter is held against
ABBREVIATION_MAX = 5  # letters: PST, CEST
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_RIGHT = "five fields, minute hour day month weekday, as in '0 3 * * *' for 3:00 every day"
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """When something fires: by cron in a zone, or every so many microseconds from an anchor on."""

    cron: str | None = None
    zone: str = "UTC"
    every_us: int | None = None
    anchor_at: Instant = 0

    def after(self, at: Instant) -> Instant | None:
        """The first time after `at`; None when there is none within fifty years."""
        if self.every_us is not None:
            return self.anchor_at + max(1, (at - self.anchor_at) // self.every_us + 1) * self.every_us
        sim, fixed = _parsed(self.cron or "")
        search = _first_of_each if fixed else _whenever_shown
        try:
            found = search(copy.copy(sim), _zone(self.zone), moment(at).replace(microsecond=0))
        except (StopIteration, OverflowError):
            return None
        return instant(found)

    def times(self, at: Instant) -> Iterator[Instant]:
        """All times after `at`, one by one."""
        found = self.after(at)
        while found is not None:
            yield found
            found = self.after(found)

    def latest(self, at: Instant) -> Instant | None:
        """The last time at or before `at`, if there is one in the year before it."""
        # Twice as far back each time: however long nobody looked, few times are gone through.
        back = 64 * SECOND
        while back < 400 * 86400 * SECOND:
            last = None
            for found in self.times(at - back):
                if found > at:
                    break
                last = found
            if last is not None:
                return last
            back *= 2
        return None


def rhythm(
    cron: str | None, every: Seconds | None, zone: str | None, at: Instant, jitter: Seconds = 0
) -> Rhythm:
    """A rhythm that begins at `at`, checked; UsageError says what is wrong with it."""
    if (cron is None) == (every is None):
        raise UsageError("a schedule needs cron= or every=, one of the two: cron='0 3 * * *' or every=900")
    if every is not None and zone is not None:
        raise UsageError("every= counts real time and takes no zone: leave out zone=, or give cron=")
    if every is not None:
        made = Rhythm(every_us=_interval(every), anchor_at=at)
    else:
        made = Rhythm(cron=_expression(cron), zone="UTC" if zone is None else zone)
        _zone(made.zone)
    if made.after(at) is None:
        raise UsageError(f"cron {cron!r} never fires: no month has such a day")
    most = micros_of_jitter(jitter)
    if most and (gap := _gap(made)) is not None and most >= gap:
        raise UsageError(
            f"jitter is {seconds(jitter):g} s, but only {gap / SECOND:g} s lie between two times: give less"
        )
    return made


def _gap(made: Rhythm) -> int | None:
    """The least between two times. Whenever it is asked, the same ones are looked at."""
    if made.every_us is not None:
        return made.every_us
    times = islice(made.times(GAPS_FROM), GAPS_MAX)
    return min((later - at for at, later in pairwise(times)), default=None)


def micros_of_jitter(jitter: Seconds) -> int:
    """At most so many microseconds are added to a time."""
    if not 0 <= (total := seconds(jitter, "jitter")) <= EVERY_MAX_SECONDS:
        raise UsageError(f"jitter is {total:g} s: how much later a run may start, 0 or more")
    return round(total * SECOND)


def delayed(seed: str, at: Instant, jitter_us: int) -> Instant:
    """The time with its jitter: later by less than `jitter_us`, the same however often it is asked."""
    drawn = int.from_bytes(blake2b(f"{seed}\x1f{at}".encode(), digest_size=8).digest())
    return at + (drawn * jitter_us >> 64)


def local(at: Instant, zone: str) -> datetime:
    """An instant on the clock of a zone."""
    return moment(at).astimezone(_zone(zone))


def _interval(every: Seconds) -> int:
    total = seconds(every, "every")
    if not EVERY_MIN_SECONDS <= total <= EVERY_MAX_SECONDS:
        raise UsageError(f"every is {total:g} s: at least {EVERY_MIN_SECONDS:g}, and at most 100 years")
    return round(total * SECOND)


def _expression(cron: object) -> str:
    if not isinstance(cron, str) or len(cron) > TEXT_MAX:
        raise UsageError(f"cron {clipped(cron)}: {_RIGHT}")
    text = _NICKNAMES.get(cron.strip().lower(), " ".join(cron.split()))
    count = len(text.split())
    if count == 6:
        raise UsageError(f"cron {cron!r} has a field for seconds: {_RIGHT}; below a minute say every=")
    if count != 5:
        raise UsageError(f"cron {cron!r} has {count} field{'s' * (count != 1)}: {_RIGHT}")
    _parsed(text)
    return text


@lru_cache(maxsize=1024)
def _parsed(cron: str) -> tuple[CronSim, bool]:
    """The expression, and whether it names fixed local times."""
    from cronsim import CronSim, CronSimError

    begins = datetime(2000, 1, 1)  # noqa: DTZ001 - a clock on the wall has no zone
    try:
        sim = CronSim(cron, begins)
    except (CronSimError, ValueError) as error:
        fields = cron.split()
        minute, hour, day, _, weekday = fields if len(fields) == 5 else (cron, "*", "*", "*", "*")
        try:
            CronSim(f"{minute} {hour} {day} * {weekday}", begins)
        except (CronSimError, ValueError):
            said = str(error)
            raise UsageError(f"cron {cron!r}: {said[:1].lower()}{said[1:]}; {_RIGHT}") from None
        if "day" not in str(error):
            raise UsageError(f"cron {cron!r}: bad month; {_RIGHT}") from None
        raise UsageError(f"cron {cron!r} never fires: no month has such a day") from None
    minute, hour = cron.split()[:2]
    return sim, not minute.startswith("*") and not hour.startswith("*") and len(sim.hours) < 24


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    # A folder of the database ("Europe") is, to some versions of Python, a file that cannot be read.
    except (KeyError, ValueError, TypeError, OSError):
        raise UsageError(f"zone {str(name)[:60]!r} is not known: {_nearest(str(name))}") from None


def _nearest(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    said = name.strip().lower().replace(" ", "_")
    if "/" not in said and len(said) <= ABBREVIATION_MAX and name.isupper():
        return "an abbreviation names no clock: name a place, as in Europe/Berlin, or UTC"
    names = {known.lower(): known for known in sorted(available_timezones(), reverse=True)}
    if any(known.startswith(f"{said}/") for known in names):
        return "name a place in it, as in Europe/Berlin"
    places = {known.rpartition("/")[2]: known for known in names if "/" in known}  # Berlin, of Europe
    near = [places[said]] if said in places else get_close_matches(said, names, n=1, cutoff=0.7)
    return f"did you mean {names[near[0]]}?" if near else "write one such as Europe/Berlin, or UTC"


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _next(sim: CronSim, shown: datetime) -> datetime:
    sim.dt = shown
    return next(sim)


def _whenever_shown(sim: CronSim, zone: tzinfo, at: datetime) -> datetime:
    """Each stretch between two changes of the clock on its own."""
    offset = _offset(zone, at)
    shown = at.replace(tzinfo=None) + offset
    while True:
        found = (_next(sim, shown) - offset).replace(tzinfo=UTC)
        turn = _turn(zone, at, found)
        if turn is None:
            return found
        at, offset = turn, _offset(zone, turn)
        shown = turn.replace(tzinfo=None) + offset - _SECOND


def _first_of_each(sim: CronSim, zone: tzinfo, at: datetime) -> datetime:
    """Each time that the clock would show if it were never changed, once."""
    shown = at.astimezone(zone).replace(tzinfo=None)
    while True:
        shown = _next(sim, shown)
        found = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if found.astimezone(zone).replace(tzinfo=None) != shown:
            before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
            found = _turn(zone, before, found) or found
        # In an hour that is shown again, its times are past already.
        if found > at:
            return found


def _turn(zone: tzinfo, at: datetime, until: datetime) -> datetime | None:
    """The first instant after `at` and up to `until` at which the clock is changed."""
    offset = _offset(zone, at)
    while at < until:
        later = min(at + _DAY, until)
        if _offset(zone, later) != offset:
            while later - at > _SECOND:
                middle = at + (later - at) // _SECOND // 2 * _SECOND
                at, later = (middle, later) if _offset(zone, middle) == offset else (at, middle)
            return later
        at = later
    return None
