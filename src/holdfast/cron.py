"""A rhythm and an instant give the next instant. Pure: no clock, and chance only as a hash.

Cron is read on the clock of its zone. A fixed local time that a change of the clock repeats fires the first
time only, and one that it skips fires when the skip ends. Patterns of hours or minutes that begin with `*`,
and such as name all hours, fire whenever the clock on the wall shows a match.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING

import msgspec

from .arguments import Seconds, seconds
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
_NEVER = "never fires: no month has such a day"
_SECOND, _DAY, _AWAY = timedelta(seconds=1), timedelta(days=1), timedelta(days=2)
_HIDDEN_MAX = 40  # times that changes of the clock may hide one after the other, until none is looked for
_YEAR_SECONDS = 400 * 86400
_MOVED_MAX = 4 * 86400  # seconds by which changes of the clock may have moved a time
FIELDS = 5


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
        wall, fixed = _parsed(self.cron or "")
        search = _first_of_each if fixed else _whenever_shown
        try:
            found = search(wall, _zone(self.zone), moment(at).replace(microsecond=0))
        except OverflowError:
            return None
        return None if found is None else instant(found)

    def times(self, at: Instant) -> Iterator[Instant]:
        """All times after `at`, one by one."""
        found = self.after(at)
        while found is not None:
            yield found
            found = self.after(found)

    def latest(self, at: Instant) -> Instant | None:
        """The last time at or before `at`, if there is one in the year before it."""
        if self.every_us is not None:
            last = self.anchor_at + (at - self.anchor_at) // self.every_us * self.every_us
            return last if self.anchor_at < last else None
        near = self._nearly_latest(at)
        if near is None:
            return None
        # A change of the clock may have moved it by hours. Twice as far back each time: few times are gone
        # through, however long nobody looked.
        back = 64 * SECOND
        while back < _MOVED_MAX * SECOND:
            if found := list(takewhile(lambda one: one <= at, self.times(min(near, at) - back))):
                return found[-1]
            back *= 2
        return None

    def _nearly_latest(self, at: Instant) -> Instant | None:
        """The time that the wall showed last, as if its clock were never changed."""
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
    """A rhythm that begins at `at`, checked; UsageError says what is wrong with it."""
    if (cron is None) == (every is None):
        raise UsageError("a schedule needs cron= or every=, one of the two: cron='0 3 * * *' or every=900")
    if every is not None and zone is not None:
        raise UsageError("every= counts real time and takes no zone: leave out zone=, or give cron=")
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
        said = f"cron {escaped(cron)!r} has a field for seconds"
        raise UsageError(f"{said}: {_RIGHT}; below a minute say every=")
    if count != FIELDS:
        raise UsageError(f"cron {escaped(cron)!r} has {count} field{'s' * (count != 1)}: {_RIGHT}")
    _parsed(text)
    return text


@lru_cache(maxsize=1024)
def _parsed(cron: str) -> tuple[WallClock, bool]:
    """The expression, and whether it names fixed local times. One that a store holds may be anything."""
    if len(cron) > TEXT_MAX or len(fields := cron.split()) != FIELDS:
        raise UsageError(f"cron {escaped(cron, 40)!r}: {_RIGHT}")
    minute, hour, day, _, weekday = fields
    try:
        sim = _sim(cron)
    except Exception as error:  # noqa: BLE001 - the parser of another library: whatever it says of this text
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

    return CronSim(cron, datetime(2000, 1, 1))  # noqa: DTZ001 - a clock on the wall has no zone


@lru_cache(maxsize=1024)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    # A folder of the database ("Europe") is, to some versions of Python, a file that cannot be read.
    except (KeyError, ValueError, TypeError, OSError):
        # Without a hint, which takes milliseconds: a keeper asks for each schedule that it cannot fire.
        raise UsageError(f"zone {str(name)[:60]!r} is not known") from None


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


def _whenever_shown(wall: WallClock, zone: tzinfo, at: datetime) -> datetime | None:
    """Each stretch between two changes of the clock on its own."""
    offset = _offset(zone, at)
    shown = at.replace(tzinfo=None) + offset
    for _ in range(_HIDDEN_MAX):
        following = wall.after(shown)
        if following is None:
            return None
        found = (following - offset).replace(tzinfo=UTC)
        # On another offset the same time is little more than a day away. So between the first days and the
        # last ones nothing is shown that matches, however often the clock is changed: they are passed over.
        far = found - at > 2 * _AWAY
        turn = _turn(zone, at, at + _AWAY if far else found)
        if turn is None and not far:
            return found
        at = found - _AWAY if turn is None else turn
        offset = _offset(zone, at)
        shown = at.replace(tzinfo=None) + offset - _SECOND
    return None


def _first_of_each(wall: WallClock, zone: tzinfo, at: datetime) -> datetime | None:
    """Each time that the clock would show if it were never changed, once."""
    shown: datetime | None = at.astimezone(zone).replace(tzinfo=None)
    while shown is not None and (shown := wall.after(shown)) is not None:
        found = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if found.astimezone(zone).replace(tzinfo=None) != shown:
            before = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
            found = _turn(zone, before, found) or found
        # In an hour that is shown again, its times are past already.
        if found > at:
            return found
    return None


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
