"""Schedules: what becomes of a time that comes while a run is open."""

from __future__ import annotations

import pytest

from holdfast.contract import QUEUE_MAX
from holdfast.lifecycle import Status
from holdfast.records import FiredBy, Overlap, instant, moment

from .hand import EPOCH
from .timetable import HOUR, due, end, fire, made, seen


@pytest.mark.spec("SCHED-1")
def test_skip_passes_over_a_time_while_a_run_is_open_and_counts_it(hand):
    """Open is a run in any status that is not final, and that is not deleted."""
    one = made(hand)
    (run,) = fire(hand, one, EPOCH + HOUR).started
    for n, status in enumerate((Status.PENDING, Status.LEASED, Status.PAUSED), 2):
        if status is Status.LEASED:
            claim = hand.take(run)
        elif status is Status.PAUSED:
            hand.release(claim)
            hand.pause(run)
        assert hand.status(run) is status
        fired = fire(hand, seen(hand), EPOCH + n * HOUR)
        assert (fired.started, fired.skipped) == ((), 1)
    after = seen(hand)
    assert (after.fired, after.skipped, after.last_skipped_at) == (1, 3, moment(EPOCH + 4 * HOUR))
    assert after.next_at == moment(EPOCH + 5 * HOUR)
    hand.delete(run)
    (other,) = fire(hand, after, EPOCH + 5 * HOUR).started
    end(hand, other)
    assert fire(hand, seen(hand), EPOCH + 6 * HOUR).started


@pytest.mark.spec("SCHED-1")
def test_of_several_times_at_once_skip_starts_the_first(hand):
    """The others find it open."""
    fired = fire(hand, made(hand), *(EPOCH + n * HOUR for n in (1, 2, 3)))
    assert (len(fired.started), fired.skipped) == (1, 2)


@pytest.mark.spec("SCHED-1")
def test_allow_starts_one_beside_the_other(hand):
    """As many as there are times."""
    one = made(hand, overlap=Overlap.ALLOW)
    fired = fire(hand, one, *(EPOCH + n * HOUR for n in (1, 2, 3)))
    assert len(fired.started) == 3
    assert seen(hand).last_at == moment(EPOCH + 3 * HOUR)


@pytest.mark.spec("SCHED-1")
def test_runs_of_allow_do_not_count_but_for_the_last_one_when_that_changes(hand):
    """They may be any number, so nobody keeps them in mind."""
    one = made(hand, overlap=Overlap.ALLOW)
    first, last = fire(hand, one, EPOCH + HOUR, EPOCH + 2 * HOUR).started
    made(hand, overlap=Overlap.SKIP)
    assert fire(hand, seen(hand), EPOCH + 3 * HOUR).skipped == 1
    hand.cancel(last)
    assert fire(hand, seen(hand), EPOCH + 4 * HOUR).started
    assert hand.status(first) is Status.PENDING


@pytest.mark.spec("SCHED-1")
def test_queue_starts_each_time_when_the_one_before_has_ended(hand):
    """In order, none lost, one at a time."""
    one = made(hand, overlap=Overlap.QUEUE)
    fired = fire(hand, one, *(EPOCH + n * HOUR for n in (1, 2, 3)), next_at=EPOCH + 50 * HOUR)
    (run,) = fired.started
    assert fired.queued == 2
    for n in (2, 3):
        waiting = seen(hand)
        assert instant(waiting.waiting[0]) == EPOCH + n * HOUR
        assert due(hand) == []
        assert fire(hand, waiting, EPOCH + n * HOUR, by=FiredBy.QUEUE).answer == "lost"
        end(hand, run)
        assert due(hand) == ["nightly"]
        assert hand.due().chore_at <= hand.clock.now
        assert fire(hand, waiting, EPOCH + 9 * HOUR, by=FiredBy.QUEUE).answer == "lost"
        (run,) = fire(hand, waiting, EPOCH + n * HOUR, by=FiredBy.QUEUE).started
    after = seen(hand)
    assert (after.waiting, after.fired, after.next_at) == ((), 3, moment(EPOCH + 50 * HOUR))
    end(hand, run)
    assert due(hand) == []


@pytest.mark.spec("SCHED-1")
def test_a_new_time_goes_to_the_end_of_the_line(hand):
    """Also when the one before has ended, and nobody has called the first in line yet."""
    (run,) = fire(hand, made(hand, overlap=Overlap.QUEUE), EPOCH + HOUR, EPOCH + 2 * HOUR).started
    end(hand, run)
    assert fire(hand, seen(hand), EPOCH + 3 * HOUR).queued == 1
    assert [instant(at) for at in seen(hand).waiting] == [EPOCH + 2 * HOUR, EPOCH + 3 * HOUR]


@pytest.mark.spec("SCHED-1")
def test_a_line_has_an_end(hand):
    """What comes after is skipped, and counted."""
    one = made(hand, overlap=Overlap.QUEUE)
    fired = fire(hand, one, *(EPOCH + n for n in range(QUEUE_MAX + 3)))
    assert (len(fired.started), fired.queued, fired.skipped) == (1, QUEUE_MAX, 2)
