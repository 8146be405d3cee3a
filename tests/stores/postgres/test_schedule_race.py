"""Schedules under many keepers at once: each time is fired once, and what changed meanwhile is not fired."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.records import NewRun, Overlap
from holdfast.testing.contract.hand import EPOCH, TYPE
from holdfast.testing.contract.timetable import HOUR, firing, made, new, runs, seen, shot
from tests.stores.postgres.kit import database


def known_runs():
    return database()[1].execute("select run_id from workflow.workflow_firing").fetchall()


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("overlap", list(Overlap))
def test_of_two_keepers_at_once_one_fires(hand, sessions, overlap):
    """The other one waits for it, and sees that there is nothing left to do."""
    one, two = sessions
    schedule = made(hand, overlap=overlap)
    first, second = (firing(hand, schedule, EPOCH + HOUR) for _ in range(2))
    one.begin()
    assert one.call("fire_schedule", first)["answer"] == "applied"
    waiting = two.waits("fire_schedule", second)
    one.commit()
    assert waiting.result() == {"answer": "lost"}
    assert runs(hand) == {first.fires[0].run.id}


@pytest.mark.spec("SCHED-1")
def test_a_keeper_that_dies_while_it_fires_leaves_the_time_to_another(hand, sessions):
    one, two = sessions
    schedule = made(hand)
    first, second = (firing(hand, schedule, EPOCH + HOUR) for _ in range(2))
    one.begin()
    one.call("fire_schedule", first)
    waiting = two.waits("fire_schedule", second)
    one.roll_back()
    assert waiting.result()["started"] == [str(second.fires[0].run.id)]
    assert runs(hand) == {second.fires[0].run.id}
    assert (seen(hand).fired, len(known_runs())) == (1, 1)


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("meanwhile", ["pause_schedule", "unschedule", "schedule"])
def test_what_is_changed_at_that_moment_is_not_fired(hand, sessions, meanwhile):
    """Paused, removed, or said to be another one."""
    one, two = sessions
    schedule = made(hand)
    args = {
        "pause_schedule": ("nightly", "default", "Ann"),
        "unschedule": ("nightly", "default"),
        "schedule": (new(hand, params="2"),),
    }[meanwhile]
    one.begin()
    one.call(meanwhile, *args)
    waiting = two.waits("fire_schedule", firing(hand, schedule, EPOCH + HOUR))
    one.commit()
    assert waiting.result() == {"answer": "lost"}
    assert (runs(hand), known_runs()) == (set(), [])


@pytest.mark.spec("SCHED-1")
def test_a_schedule_that_is_removed_while_it_fires_leaves_nothing_behind(hand, sessions):
    """The run that was started goes on."""
    one, two = sessions
    schedule = made(hand)
    one.begin()
    one.call("fire_schedule", firing(hand, schedule, EPOCH + HOUR))
    waiting = two.waits("unschedule", "nightly", "default")
    one.commit()
    assert waiting.result() is True
    assert (len(runs(hand)), known_runs()) == (1, [])


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("undone", [False, True])
def test_an_app_that_says_its_schedule_in_two_places_at_once_has_one(hand, sessions, undone):
    one, two = sessions
    first, second = new(hand), new(hand)
    one.begin()
    one.call("schedule", first)
    waiting = two.waits("schedule", second)
    if undone:
        one.roll_back()
    else:
        one.commit()
    there = waiting.result()
    assert (there["id"], there["rev"]) == (str(second.id if undone else first.id), 1)
    assert str(seen(hand).id) == there["id"]


@pytest.mark.spec("SCHED-1")
def test_a_schedule_that_goes_while_it_is_said_again_is_made_anew(hand, sessions):
    one, two = sessions
    made(hand)
    again = new(hand)
    one.begin()
    one.call("unschedule", "nightly", "default")
    waiting = two.waits("schedule", again)
    one.commit()
    assert (waiting.result()["id"], seen(hand).id) == (str(again.id), again.id)


@pytest.mark.spec("SCHED-1")
def test_another_run_that_takes_the_id_of_a_time_at_that_moment_is_told(hand, sessions):
    """The call is made again, as a store does when two are in each other's way; nothing is half done."""
    one, two = sessions
    schedule = made(hand)
    strange = NewRun(id=hand.id(), type=TYPE, tenant="mallory")
    shots = (shot(hand, schedule, EPOCH + HOUR, id=strange.id),)
    fires = firing(hand, schedule, *shots)
    one.begin()
    one.call("start", [strange])
    waiting = two.waits("fire_schedule", fires)
    one.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        waiting.result()
    assert seen(hand) == schedule
    assert hand.run(hand.store.fire_schedule(fires)).taken == (strange.id,)


@pytest.mark.spec("SCHED-1")
def test_the_same_time_that_is_started_at_that_moment_is_no_other_run(hand, sessions):
    """A run that was started for it before, by a schedule of that name that is gone."""
    one, two = sessions
    schedule = made(hand)
    same = shot(hand, schedule, EPOCH + HOUR)
    one.begin()
    one.call("start", [same.run])
    waiting = two.waits("fire_schedule", firing(hand, schedule, same))
    one.commit()
    answer = waiting.result()
    assert (answer["answer"], answer["started"]) == ("applied", [])
    assert (runs(hand), known_runs()) == ({same.run.id}, [(same.run.id,)])
