"""Cron and intervals: the next time after an instant, in every zone and through every clock change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from holdfast.cron import Rhythm, delayed, local, rhythm
from holdfast.errors import UsageError
from holdfast.records import SECOND, instant, moment
from tests.laws.effort import LONG

ABBREVIATION = "an abbreviation is not a time zone: name a place, as in Europe"
# Zones that change by an hour, by half an hour, at midnight, twice a year or more often, and not at all.
ZONES = """
Africa/Cairo Africa/Casablanca Africa/Johannesburg Africa/Lagos America/Anchorage America/Asuncion
America/Bogota America/Chicago America/Godthab America/Halifax America/Havana America/Los_Angeles
America/Mexico_City America/New_York America/Santiago America/Sao_Paulo America/St_Johns Antarctica/Troll
Asia/Beirut Asia/Dubai Asia/Gaza Asia/Jerusalem Asia/Kathmandu Asia/Kolkata Asia/Shanghai Asia/Tehran
Asia/Tokyo Atlantic/Azores Australia/Adelaide Australia/Lord_Howe Australia/Sydney Europe/Athens
Europe/Berlin Europe/Dublin Europe/Lisbon Europe/London Pacific/Auckland Pacific/Chatham Pacific/Easter
Pacific/Norfolk
""".split()  # noqa: SIM905 - forty lines of quotes would be no clearer
FIXED = ["30 2 * * *", "0 2,3 * * *", "15,45 0-3 * * *", "0 0 * * *", "59 23 * * 6,0", "0 3 29 3 *"]
SHOWN = ["0 * * * *", "30 * * * *", "*/15 * * * *", "*/20 1 * * *", "0 */2 * * *", "0 0-23 * * *"]
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@cache
def turns(zone):
    """Every clock change of a zone from 2024 to 2034, to the minute."""
    found, at = [], datetime(2024, 1, 1, tzinfo=UTC)
    while at < datetime(2035, 1, 1, tzinfo=UTC):
        low, high = at, at + timedelta(days=1)
        if low.astimezone(zone).utcoffset() != high.astimezone(zone).utcoffset():
            while high - low > MINUTE:
                middle = low + (high - low) // MINUTE // 2 * MINUTE
                same = middle.astimezone(zone).utcoffset() == low.astimezone(zone).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            found.append(high)
        at += timedelta(days=1)
    return found


def numbers(field, bounds):
    """The numbers that one field of an expression means."""
    low, high = bounds
    found = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


class Oracle:
    """The expected times, minute by minute, by the written rule."""

    def __init__(self, cron, *, fixed):
        bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
        self.sets = [numbers(*pair) for pair in zip(cron.split(), bounds, strict=True)]
        self.fixed = fixed

    def shows(self, clock):
        minute, hour, day, month, weekday = self.sets
        return (
            clock.minute in minute
            and clock.hour in hour
            and clock.day in day
            and clock.month in month
            and clock.isoweekday() % 7 in weekday
        )

    def fires(self, window):
        """`window`: minutes as (instant, clock), in order."""
        return [at for (_, before), (at, clock) in pairwise(window) if self._fires(before, clock)]

    def _fires(self, before, clock):
        if not self.fixed:
            return self.shows(clock)
        if self.shows(clock) and not clock.fold:
            return True
        skipped = before.replace(tzinfo=None) + MINUTE
        while skipped < clock.replace(tzinfo=None):
            if self.shows(skipped):
                return True
            skipped += MINUTE
        return False


@pytest.mark.slow
def test_forty_zones_are_looked_at():
    """There are enough zones, and enough of them change."""
    assert len(ZONES) == 40
    assert sum(len(turns(ZoneInfo(zone))) for zone in ZONES) > 500


@pytest.mark.slow
@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("zone", ZONES if LONG else ZONES[::8])
def test_cron_keeps_its_rule_through_every_change_of_the_clock(zone):
    """Fixed times: once when repeated, at the end when skipped. Others: whenever the clock shows them."""
    clock = ZoneInfo(zone)
    for turn in turns(clock):
        minutes = [turn + n * MINUTE for n in range(-300, 300)]
        window = [(at, at.astimezone(clock)) for at in minutes]
        for cron in FIXED + SHOWN:
            wanted = Oracle(cron, fixed=cron in FIXED).fires(window)
            made = Rhythm(cron=cron, zone=zone)
            begins, ends = instant(minutes[0]), instant(minutes[-1])
            times = list(takewhile(lambda at, ends=ends: at <= ends, made.times(begins)))
            assert [moment(at) for at in times] == wanted, f"{cron} around {turn}"
            # From any instant, also in the middle of a repeated hour, the answer is the same.
            for at in (turn + n * 7 * MINUTE + timedelta(seconds=n) for n in range(-10, 11)):
                found = made.after(instant(at))
                later = [one for one in wanted if one > at]
                assert found is not None
                assert moment(found) == later[0] if later else moment(found) > minutes[-1], f"{cron} at {at}"


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize(
    ("cron", "zone", "day", "hours"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["03:00+02:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["02:30+02:00"]),
        ("0 * * * *", "Europe/Berlin", "2026-03-29", ["00:00+01:00", "01:00+01:00", "03:00+02:00"]),
        ("0 2-4 * * *", "Europe/Berlin", "2026-10-25", ["02:00+02:00", "03:00+01:00", "04:00+01:00"]),
        ("0 */1 * * *", "Europe/Berlin", "2026-10-25", ["00:00+02:00", "01:00+02:00", "02:00+02:00"]),
        ("30 */2 * * *", "Europe/Berlin", "2026-10-25", ["00:30+02:00", "02:30+02:00", "02:30+01:00"]),
        ("30 0 * * *", "Africa/Cairo", "2026-04-24", ["01:00+03:00"]),
        ("*/15 2 * * *", "Australia/Lord_Howe", "2026-04-05", ["02:00+10:30", "02:15+10:30", "02:30+10:30"]),
    ],
)  # fmt: skip
def test_the_nights_that_people_ask_about(cron, zone, day, hours):
    """Written out for the reader."""
    begins = instant(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)) - timedelta(seconds=1))
    times = islice(Rhythm(cron=cron, zone=zone).times(begins), len(hours))
    shown = [local(at, zone).isoformat(timespec="minutes") for at in times]
    assert shown == [f"{day}T{hour}" for hour in hours]


@pytest.mark.spec("SCHED-1")
def test_an_interval_counts_from_its_anchor_and_does_not_drift():
    """However late a keeper looks, the times do not move."""
    made = rhythm(None, 90, None, 1000)
    first = 1000 + 90 * SECOND
    assert list(islice(made.times(0), 3)) == [first, first + 90 * SECOND, first + 180 * SECOND]
    assert made.after(first - 1) == first
    assert made.after(first) == first + 90 * SECOND
    assert made.after(first + 89 * SECOND) == first + 90 * SECOND


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("cron", ["* * * * *", "*/5 9-17 * * 1-5", "0 3 * * *", "0 0 1 1 *", "0 0 29 2 *"])
def test_the_latest_time_is_the_one_before_the_next(cron, zone):
    """Searching backwards finds what counting forwards passes."""
    made = Rhythm(cron=cron, zone=zone)
    for at in ("2026-11-01T05:59:59", "2026-11-01T06:30:00", "2026-03-02T00:00:00", "2028-03-01T12:00:00"):
        now = instant(datetime.fromisoformat(at).replace(tzinfo=UTC))
        found = made.latest(now)
        if found is None:
            assert cron.endswith("29 2 *")
            continue
        after = made.after(found)
        assert found <= now
        assert after is not None
        assert after > now


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("minute", [2, 30])
def test_jitter_is_measured_against_the_least_between_two_times(minute):
    """Independent of when the schedule is made: one deploy must not refuse what the next accepts."""
    at = instant(datetime(2026, 1, 5, 0, minute, tzinfo=UTC))
    with pytest.raises(UsageError, match="two times are only 300 s apart"):
        rhythm("0,5 * * * *", None, None, at, 600)
    assert rhythm("0,5 * * * *", None, None, at, 299).after(at)


@pytest.mark.spec("SCHED-1")
def test_jitter_only_adds_is_bounded_and_the_same_each_time():
    """Every keeper computes the same jitter, spread over its whole range."""
    later = [delayed("nightly", at, 600 * SECOND) - at for at in range(0, 1000 * SECOND, SECOND)]
    assert later == [delayed("nightly", at, 600 * SECOND) - at for at in range(0, 1000 * SECOND, SECOND)]
    assert min(later) >= 0
    assert max(later) < 600 * SECOND
    assert max(later) - min(later) > 590 * SECOND
    assert delayed("nightly", 5, 0) == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cron": "61 * * * *"}, "cron '61 * * * *': bad minute; five fields"),
        ({"cron": "0 3 * *"}, "cron '0 3 * *' has 4 fields: five fields"),
        ({"cron": "0 0 3 * * *"}, "has a field for seconds"),
        ({"cron": "0 0 31 2 *"}, "cron '0 0 31 2 *' never fires"),
        ({"cron": "0 0 32 * *"}, "bad day-of-month"),
        ({"cron": "0 0 1 13 *"}, "bad month"),
        ({"cron": "0 0 * * FOO"}, "bad day-of-week"),
        ({"cron": "9" * 300}, "five fields"),
        ({"cron": 5}, "cron 5: five fields"),
        ({"cron": "@reboot"}, "has 1 field: "),
        ({"cron": "0 3 * * *", "zone": "Europe/Berln"}, "is not known: did you mean Europe/Berlin?"),
        ({"cron": "0 3 * * *", "zone": "Berlin"}, "is not known: did you mean Europe/Berlin?"),
        ({"cron": "0 3 * * *", "zone": "new york"}, "is not known: did you mean America/New_York?"),
        ({"cron": "0 3 * * *", "zone": "CEST"}, ABBREVIATION),
        ({"cron": "0 3 * * *", "zone": "PST"}, ABBREVIATION),
        ({"cron": "0 3 * * *", "zone": "Europe"}, "is not known: name a place in it, as in Europe/Berlin"),
        ({"cron": "0 3 * * *", "zone": "Europe"}, "is not known"),
        ({"cron": "0 3 * * *", "zone": "../../etc/passwd"}, "is not known"),
        ({"cron": "0 3 * * *", "zone": ""}, "is not known"),
        ({"cron": "0 3 * * *", "zone": "nowhere"}, "write one such as Europe/Berlin"),
        ({}, "a schedule needs either cron= or every="),
        ({"cron": "0 3 * * *", "every": 60}, "needs either cron= or every="),
        ({"every": 60, "zone": "Europe/Berlin"}, "zone= has no meaning for every="),
        ({"every": 0.5}, "every is 0.5 s: give at least 1"),
        ({"every": float("inf")}, "at most 100 years"),
        ({"every": "often"}, "is not a duration"),
        ({"every": 60, "jitter": 60}, "jitter is 60 s, but two times are only 60 s apart"),
        ({"cron": "0 3 * * *", "jitter": -1}, "0 or more"),
    ],
)  # fmt: skip
def test_what_can_never_work_is_refused_in_one_line(given, said):
    """The message says what is wrong, and how to mend it."""
    wanted = {"cron": None, "every": None, "zone": None, **given}
    with pytest.raises(UsageError) as refused:
        rhythm(at=0, **wanted)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("said", "meant"), [("@daily", "0 0 * * *"), (" 0  3 * * * ", "0 3 * * *")])
def test_the_same_expression_is_written_in_one_way(said, meant):
    """Otherwise the same schedule would look changed."""
    assert rhythm(said, None, None, 0).cron == meant


def test_a_rare_day_is_found_and_one_that_never_comes_is_not():
    """A leap day that is a Monday comes once in 28 years."""
    made = Rhythm(cron="0 0 * 2 1#5", zone="Europe/Berlin")
    found = made.after(instant(datetime(2026, 1, 1, tzinfo=UTC)))
    assert found is not None
    assert local(found, "Europe/Berlin").date().isoformat() == "2044-02-29"
    assert Rhythm(cron="0 0 29 2 *").after(instant(datetime(9998, 1, 1, tzinfo=UTC))) is None
