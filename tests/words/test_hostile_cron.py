"""Cron expressions that are rare, impossible or hostile: few steps, and one clear line. Steps are counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from holdfast import cron
from holdfast.cron import Rhythm, rhythm
from holdfast.errors import UsageError
from holdfast.records import SECOND, instant, moment
from holdfast.wallclock import WallClock

NOW = instant(datetime(2026, 11, 16, 21, 0, tzinfo=UTC))
DAYS_MAX = 14 * 366  # days that are checked for one expression at most
OFFSETS_MAX = 40  # lookups of a zone for one time
HIDDEN_MAX = 1500  # for an expression that clock changes hide each time
ZONES = ["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca"]

NUMBERS = st.integers(0, 61).map(str)
PARTS = st.one_of(
    st.just("*"),
    NUMBERS,
    st.sampled_from(["L", "LW", "MON#5", "5L", "feb", "SUN", "31", "29", "59/59"]),
    st.tuples(NUMBERS, NUMBERS).map("-".join),
    st.tuples(st.just("*") | NUMBERS, NUMBERS).map("/".join),
)
EXPRESSIONS = st.lists(st.lists(PARTS, min_size=1, max_size=3).map(",".join), min_size=5, max_size=5).map(
    " ".join
)


def right(least, most, *others):
    """A valid field."""
    number = st.integers(least, most)
    ranges = st.tuples(number, number).map(lambda two: f"{min(two)}-{max(two)}")
    steps = st.tuples(st.just("*") | ranges, st.integers(1, 31)).map(lambda two: f"{two[0]}/{two[1]}")
    part = st.one_of(number.map(str), ranges, steps, *([st.sampled_from(others)] if others else []))
    return st.just("*") | st.lists(part, min_size=1, max_size=2).map(",".join)


WEEKDAYS = right(0, 7, "MON#5", "2#2", "5L")
RIGHT = st.tuples(right(0, 59), right(0, 23), right(1, 31, "L", "LW"), right(1, 12, "feb"), WEEKDAYS).map(
    " ".join
)


@pytest.fixture
def steps(monkeypatch):
    counted = {"days": 0, "offsets": 0}
    match_day, offset = CronSim.match_day, cron._offset

    def matched(self, day):
        counted["days"] += 1
        return match_day(self, day)

    def looked(zone, at):
        counted["offsets"] += 1
        return offset(zone, at)

    monkeypatch.setattr(CronSim, "match_day", matched)
    monkeypatch.setattr(cron, "_offset", looked)
    cron._parsed.cache_clear()
    yield counted
    cron._parsed.cache_clear()


RARE = [
    "59/59 */23 * feb MON#5", "*/5 0 29 2 *", "0 0 29 2 *", "* * * 2 MON#5", "*/59 23 29 2 *", "0 0 31 12 *",
    "* * * feb *", "*/1 * 1 1 *", "1-59/2,2-58/3 * L * *", "0 0 */16 * MON#2", "*/7 2 * MAR 0L",
]  # fmt: skip


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("zone", ZONES[:3])
@pytest.mark.parametrize("expression", RARE)
def test_rare_and_impossible_expressions_take_few_steps(expression, zone, steps):
    made = Rhythm(cron=expression, zone=zone)
    fires = made.after(NOW) is not None
    if fires:
        rhythm(expression, None, zone, NOW, jitter=1)
    else:
        with pytest.raises(UsageError, match="never fires"):
            rhythm(expression, None, zone, NOW, jitter=1)
    asked = 2 + cron.GAPS_MAX + len(list(islice(made.times(NOW), 20)))
    for back in range(0, 400, 40):
        made.latest(NOW - back * 86400 * SECOND)
        asked += 12
    assert steps["days"] <= DAYS_MAX
    assert steps["offsets"] <= asked * (OFFSETS_MAX if fires else HIDDEN_MAX)


@pytest.mark.spec("SCHED-1")
@settings(deadline=None, max_examples=60)
@given(EXPRESSIONS | st.text(max_size=300), st.sampled_from(ZONES))
@example("59/59 */23 * feb MON#5", "Europe/Berlin")
@example("1/1/1/1 * * * *", "UTC")
@example("* * * * " + "1," * 120 + "1", "UTC")
@example("\x1b[2J\n * * * *", "UTC")
def test_any_text_is_a_rhythm_or_refused_in_one_line(text, zone):
    said = []
    for made in (lambda: rhythm(text, None, zone, NOW, 1), lambda: Rhythm(cron=text, zone=zone).after(NOW)):
        try:
            made()
        except UsageError as error:
            said.append(str(error))
    assert all(line.isprintable() and len(line) < 500 for line in said)


@settings(deadline=None, max_examples=60)
@given(RIGHT, st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1)))  # noqa: DTZ001
@example("0 0 29 2 *", datetime(2096, 3, 1))  # noqa: DTZ001
@example("5 0 * feb MON#5", datetime(2096, 3, 1))  # noqa: DTZ001
def test_the_wall_shows_what_a_walk_from_day_to_day_finds(expression, shown):
    try:
        sim = CronSim(expression, shown)
    except CronSimError:
        assume(False)  # no month has such a day
    wall = WallClock(sim.minutes, sim.hours, sim.months, sim.match_day)
    found = next(sim, None)
    assert wall.after(shown) == found
    if found is not None:
        assert wall.before(found) == found
        assert wall.before(found + timedelta(seconds=59)) == found
        sooner = wall.before(found - timedelta(seconds=1))
        assert sooner is None or sooner <= shown


def walked(sim, zone, at, until):
    """All times that the clock shows, minute by minute."""
    while at < until:
        at += timedelta(minutes=1)
        shown = at.astimezone(zone)
        named = shown.minute in sim.minutes and shown.hour in sim.hours and shown.month in sim.months
        if named and sim.match_day(shown.date()):
            yield at


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["*/20 1-4 * * *", "*/15 2 * * SUN", "* 2,3 25-31 3,10 *"])
def test_times_that_are_passed_over_hold_none(expression, zone):
    """Around each clock change, compared with a walk from minute to minute."""
    sim, made = CronSim(expression, datetime(2026, 1, 1)), Rhythm(cron=expression, zone=zone)  # noqa: DTZ001
    for month, first in ((2, 14), (3, 27), (10, 23)):
        day = datetime(2026, month, first, tzinfo=UTC)
        until = day + timedelta(days=9)
        expected = list(walked(sim, ZoneInfo(zone), day, until))
        found = [moment(at) for at in islice(made.times(instant(day)), len(expected))]
        assert found == expected
        if expected:
            assert made.latest(instant(until)) == instant(expected[-1])
