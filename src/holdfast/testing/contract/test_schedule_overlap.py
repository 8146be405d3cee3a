"""Schedules whose time comes while an earlier run is open."""

from __future__ import annotations

import pytest

from holdfast.contract import QUEUE_MAX
from holdfast.lifecycle import Status
from holdfast.records import FiredBy, Overlap, instant, moment

from .driver import EPOCH
from .schedules import HOUR, due, end, fire, made, seen


@pytest.mark.spec("SCHED-1")
def test_skip_passes_over_a_time_while_a_run_is_open_and_counts_it(driver):
    """A run is open when it is neither final nor deleted."""
    one = made(driver)
    (run,) = fire(driver, one, EPOCH + HOUR).started
    for n, status in enumerate((Status.PENDING, Status.LEASED, Status.PAUSED), 2):
        if status is Status.LEASED:
            claim = driver.take(run)
        elif status is Status.PAUSED:
            driver.release(claim)
            driver.pause(run)
        assert driver.status(run) is status
        fired = fire(driver, seen(driver), EPOCH + n * HOUR)
        assert (fired.started, fired.skipped) == ((), 1)
    after = seen(driver)
    assert (after.fired, after.skipped, after.last_skipped_at) == (1, 3, moment(EPOCH + 4 * HOUR))
    assert after.next_at == moment(EPOCH + 5 * HOUR)
    driver.delete(run)
    (other,) = fire(driver, after, EPOCH + 5 * HOUR).started
    end(driver, other)
    assert fire(driver, seen(driver), EPOCH + 6 * HOUR).started


@pytest.mark.spec("SCHED-1")
def test_of_several_times_at_once_skip_starts_the_first(driver):
    """The later times find its run open."""
    fired = fire(driver, made(driver), *(EPOCH + n * HOUR for n in (1, 2, 3)))
    assert (len(fired.started), fired.skipped) == (1, 2)


@pytest.mark.spec("SCHED-1")
def test_allow_starts_one_beside_the_other(driver):
    """Every time starts a run."""
    one = made(driver, overlap=Overlap.ALLOW)
    fired = fire(driver, one, *(EPOCH + n * HOUR for n in (1, 2, 3)))
    assert len(fired.started) == 3
    assert seen(driver).last_at == moment(EPOCH + 3 * HOUR)


@pytest.mark.spec("SCHED-1")
def test_after_a_change_from_allow_to_skip_only_the_last_run_counts(driver):
    """There may be any number of them, so only the last one is remembered."""
    one = made(driver, overlap=Overlap.ALLOW)
    first, last = fire(driver, one, EPOCH + HOUR, EPOCH + 2 * HOUR).started
    made(driver, overlap=Overlap.SKIP)
    assert fire(driver, seen(driver), EPOCH + 3 * HOUR).skipped == 1
    driver.cancel(last)
    assert fire(driver, seen(driver), EPOCH + 4 * HOUR).started
    assert driver.status(first) is Status.PENDING


@pytest.mark.spec("SCHED-1")
def test_queue_starts_each_time_when_the_one_before_has_ended(driver):
    """They start in order, none is lost, one at a time."""
    one = made(driver, overlap=Overlap.QUEUE)
    fired = fire(driver, one, *(EPOCH + n * HOUR for n in (1, 2, 3)), next_at=EPOCH + 50 * HOUR)
    (run,) = fired.started
    assert fired.queued == 2
    for n in (2, 3):
        waiting = seen(driver)
        assert instant(waiting.waiting[0]) == EPOCH + n * HOUR
        assert due(driver) == []
        assert fire(driver, waiting, EPOCH + n * HOUR, by=FiredBy.QUEUE).answer == "lost"
        end(driver, run)
        assert due(driver) == ["nightly"]
        assert driver.due().chore_at <= driver.clock.now
        assert fire(driver, waiting, EPOCH + 9 * HOUR, by=FiredBy.QUEUE).answer == "lost"
        (run,) = fire(driver, waiting, EPOCH + n * HOUR, by=FiredBy.QUEUE).started
    after = seen(driver)
    assert (after.waiting, after.fired, after.next_at) == ((), 3, moment(EPOCH + 50 * HOUR))
    end(driver, run)
    assert due(driver) == []


@pytest.mark.spec("SCHED-1")
def test_a_new_time_goes_to_the_end_of_the_queue(driver):
    """This holds also when the run before has ended and the first of the queue was not started yet."""
    (run,) = fire(driver, made(driver, overlap=Overlap.QUEUE), EPOCH + HOUR, EPOCH + 2 * HOUR).started
    end(driver, run)
    assert fire(driver, seen(driver), EPOCH + 3 * HOUR).queued == 1
    assert [instant(at) for at in seen(driver).waiting] == [EPOCH + 2 * HOUR, EPOCH + 3 * HOUR]


@pytest.mark.spec("SCHED-1")
def test_a_queue_of_times_has_a_limit(driver):
    """Further times are skipped, and counted."""
    one = made(driver, overlap=Overlap.QUEUE)
    fired = fire(driver, one, *(EPOCH + n for n in range(QUEUE_MAX + 3)))
    assert (len(fired.started), fired.queued, fired.skipped) == (1, QUEUE_MAX, 2)
