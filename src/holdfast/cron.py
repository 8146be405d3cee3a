"""Rhythms of schedules: cron expressions and intervals, and the times at which they fire.

Pure functions: no clock, and chance only as a hash. A cron expression is read on the local clock of its zone.
A fixed local time that a change of the clock repeats fires the first time only; one that the change skips
fires when the skip ends. Expressions whose minutes or hours begin with `*` or name all hours fire whenever
the local clock shows a match.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING

import msgspec

from .arguments import Seconds, to_seconds
from .clipped import clipped
from .errors import UsageError
from .escaping import escaped
from .records import SECOND, Instant, instant, moment
from .wallclock import WallClock

if TYPE_CHECKING:
    from cronsim import CronSim

EVERY_MIN_SECONDS = 1.0
EVERY_MAX_SECONDS = 100 * 365.25 * 86400.0
TEXT_MAX = 255
GAPS_FROM = instant(datetime(2024, 1, 1, tzinfo=UTC))
GAPS_MAX = 100  # times whose smallest distance limits the jitter
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
_NEVER = "never fires: no month has such a day"
_SECOND, _DAY, _AWAY = timedelta(seconds=1), timedelta(days=1), timedelta(days=2)
_HIDDEN_MAX = 40  # times in a row that changes of the clock may hide; then the search ends
_YEAR_SECONDS = 400 * 86400
_MOVED_MAX = 4 * 86400  # seconds by which changes of the clock may move a time
FIELDS = 5


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a schedule: by cron in a zone, or every `every_us` microseconds from an anchor on."""

    cron: str | None = None
    zone: str = "UTC"
    every_us: int | None = None
    anchor_at: Instant = 0

    def after(self, at: Instant) -> Instant | None:
        """Return the first time after `at`; None when there is none within fifty years."""
        if self.every_us is not None:
            return self.anchor_at + max(1, (at - self.anchor_at) // self.every_us + 1) * self.every_us
        wall, fixed = _parsed(self.cron or "")
        search = _first_of_each if fixed else _whenever_shown
        try:
            found = search(wall, _zone(self.zone), moment(at).replace(microsecond=0))
        except OverflowError:
            return None
        return None if found is None else instant(found)

    def times(self, at: Instant) -> Iterator[Instant]:
        """Yield all times after `at`, in order."""
        found = self.after(at)
        while found is not None:
            yield found
            found = self.after(found)

    def latest(self, at: Instant) -> Instant | None:
        """Return the last time at or before `at`, if there is one in the year before it."""
        if self.every_us is not None:
            last = self.anchor_at + (at - self.anchor_at) // self.every_us * self.every_us
            return last if self.anchor_at < last else None
        near = self._nearly_latest(at)
        if near is None:
            return None
        # A change of the clock may have moved the time by hours. The search starts a little earlier and
        # doubles the distance each time, so that few times are computed however long nobody asked.
        back = 64 * SECOND
        while back < _MOVED_MAX * SECOND:
            if found := list(takewhile(lambda one: one <= at, self.times(min(near, at) - back))):
                return found[-1]
            back *= 2
        return None

    def _nearly_latest(self, at: Instant) -> Instant | None:
        """Return the last matching local time, as if the clock were never changed."""
        wall, _ = _parsed(self.cron or "")
        offset = _offset(_zone(self.zone), now := moment(at))
        try:
            shown = wall.before(now.replace(tzinfo=None) + offset)
            found = None if shown is None else instant((shown - offset).replace(tzinfo=UTC))
        except OverflowError:
            return None
        return found if found is not None and at - found < _YEAR_SECONDS * SECOND else None


def rhythm(
    cron: str | None, every: Seconds | None, zone: str | None, at: Instant, jitter: Seconds = 0
) -> Rhythm:
    """Make a checked rhythm that begins at `at`; UsageError says what is wrong with it."""
    if (cron is None) == (every is None):
        raise UsageError("a schedule needs either cron= or every=, as in cron='0 3 * * *' or every=900")
    if every is not None and zone is not None:
        raise UsageError("zone= has no meaning for every=: leave it out, or use cron=")
    if every is not None:
        made = Rhythm(every_us=_interval(every), anchor_at=at)
    else:
        made = Rhythm(cron=_expression(cron), zone="UTC" if zone is None else zone)
        try:
            _zone(made.zone)
        except UsageError as unknown:
            raise UsageError(f"{unknown}: {_nearest(str(made.zone))}") from None
    if made.after(at) is None:
        raise UsageError(f"cron {escaped(cron)!r} {_NEVER}")
    most = micros_of_jitter(jitter)
    if most and (gap := _gap(made)) is not None and most >= gap:
        raise UsageError(
            f"jitter is {to_seconds(jitter):g} s, but two times are only {gap / SECOND:g} s apart: give less"
        )
    return made


def _gap(made: Rhythm) -> int | None:
    """Return the smallest distance of two times. It is computed from a fixed date, so it is always the
    same.
    """
    if made.every_us is not None:
        return made.every_us
    times = islice(made.times(GAPS_FROM), GAPS_MAX)
    return min((later - at for at, later in pairwise(times)), default=None)


def micros_of_jitter(jitter: Seconds) -> int:
    """Check a jitter and return it in microseconds."""
    if not 0 <= (total := to_seconds(jitter, "jitter")) <= EVERY_MAX_SECONDS:
        raise UsageError(f"jitter is {total:g} s, the longest random delay of a run: give 0 or more")
    return round(total * SECOND)


def delayed(seed: str, at: Instant, jitter_us: int) -> Instant:
    """Return the time with its jitter: later by less than `jitter_us`, the same at every call."""
    drawn = int.from_bytes(blake2b(f"{seed}\x1f{at}".encode(), digest_size=8).digest())
    return at + (drawn * jitter_us >> 64)


def local(at: Instant, zone: str) -> datetime:
    """Return an instant as local time of a zone."""
    return moment(at).astimezone(_zone(zone))


def _interval(every: Seconds) -> int:
    total = to_seconds(every, "every")
    if not EVERY_MIN_SECONDS <= total <= EVERY_MAX_SECONDS:
        raise UsageError(
            f"every is {total:g} s: give at least {EVERY_MIN_SECONDS:g} s, and at most 100 years"
        )
    return round(total * SECOND)


def _expression(cron: object) -> str:
    if not isinstance(cron, str) or len(cron) > TEXT_MAX:
        raise UsageError(f"cron {clipped(cron)}: {_RIGHT}")
    text = _NICKNAMES.get(cron.strip().lower(), " ".join(cron.split()))
    count = len(text.split())
    if count == 6:
        said = f"cron {escaped(cron)!r} has a field for seconds"
        raise UsageError(f"{said}: {_RIGHT}; for less than a minute use every=")
    if count != FIELDS:
        raise UsageError(f"cron {escaped(cron)!r} has {count} field{'s' * (count != 1)}: {_RIGHT}")
    _parsed(text)
    return text


@lru_cache(maxsize=1024)
def _parsed(cron: str) -> tuple[WallClock, bool]:
    """Parse an expression and return whether it names fixed local times too. The text may come from a store
    and be anything.
    """
    if len(cron) > TEXT_MAX or len(fields := cron.split()) != FIELDS:
        raise UsageError(f"cron {escaped(cron, 40)!r}: {_RIGHT}")
    minute, hour, day, _, weekday = fields
    try:
        sim = _sim(cron)
    except Exception as error:  # noqa: BLE001 - the parser of another library may raise anything
        try:
            _sim(f"{minute} {hour} {day} * {weekday}")
        except Exception:  # noqa: BLE001
            said = escaped(error, 60)
            raise UsageError(f"cron {escaped(cron)!r}: {said[:1].lower()}{said[1:]}; {_RIGHT}") from None
        if "day" not in str(error):
            raise UsageError(f"cron {escaped(cron)!r}: bad month; {_RIGHT}") from None
        raise UsageError(f"cron {escaped(cron)!r} {_NEVER}") from None
    wall = WallClock(sim.minutes, sim.hours, sim.months, sim.match_day)
    return wall, not minute.startswith("*") and not hour.startswith("*") and len(wall.hours) < 24


def _sim(cron: str) -> CronSim:
    from cronsim import CronSim

    return CronSim(cron, datetime(2000, 1, 1))  # noqa: DTZ001 - local times have no zone here


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    # A folder of the zone database ("Europe") raises OSError in some versions of Python.
    except (KeyError, ValueError, TypeError, OSError):
        # No hint here, for it takes milliseconds: a keeper asks for each schedule that it cannot fire.
        raise UsageError(f"zone {str(name)[:60]!r} is not known") from None


def _nearest(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    said = name.strip().lower().replace(" ", "_")
    if "/" not in said and len(said) <= ABBREVIATION_MAX and name.isupper():
        return "an abbreviation is not a time zone: name a place, as in Europe/Berlin, or UTC"
    names = {known.lower(): known for known in sorted(available_timezones(), reverse=True)}
    if any(known.startswith(f"{said}/") for known in names):
        return "name a place in it, as in Europe/Berlin"
    places = {known.rpartition("/")[2]: known for known in names if "/" in known}  # Berlin for Europe/Berlin
    near = [places[said]] if said in places else get_close_matches(said, names, n=1, cutoff=0.7)
    return f"did you mean {names[near[0]]}?" if near else "write one such as Europe/Berlin, or UTC"


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _whenever_shown(wall: WallClock, zone: tzinfo, at: datetime) -> datetime | None:
    """Return the first matching time after `at`, each period between two changes of the clock on its own."""
    offset = _offset(zone, at)
    shown = at.replace(tzinfo=None) + offset
    for _ in range(_HIDDEN_MAX):
        following = wall.after(shown)
        if following is None:
            return None
        found = (following - offset).replace(tzinfo=UTC)
        # With another offset the same local time is little more than a day away. So between the first and the
        # last days nothing matches, however often the clock is changed: these days are skipped.
        far = found - at > 2 * _AWAY
        turn = _clock_change(zone, at, at + _AWAY if far else found)
        if turn is None and not far:
            return found
        at = found - _AWAY if turn is None else turn
        offset = _offset(zone, at)
        shown = at.replace(tzinfo=None) + offset - _SECOND
    return None


def _first_of_each(wall: WallClock, zone: tzinfo, at: datetime) -> datetime | None:
    """Return the first fixed local time after `at`; each fires once, whatever the changes of the clock."""
    shown: datetime | None = at.astimezone(zone).replace(tzinfo=None)
    while shown is not None and (shown := wall.after(shown)) is not None:
        found = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if found.astimezone(zone).replace(tzinfo=None) != shown:
            before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
            found = _clock_change(zone, before, found) or found
        # In an hour that the clock repeats, these times have passed already.
        if found > at:
            return found
    return None


def _clock_change(zone: tzinfo, at: datetime, until: datetime) -> datetime | None:
    """Return the first change of the clock after `at` and up to `until`."""
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
