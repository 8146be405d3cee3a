"""Races of schedules: each time is fired once, and a schedule that has changed meanwhile is not fired."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.records import NewRun, Overlap
from holdfast.testing.contract.driver import EPOCH, TYPE
from holdfast.testing.contract.schedules import HOUR, firing, made, new, runs, seen, shot
from tests.stores.postgres.kit import database


def known_runs():
    return database()[1].execute("select run_id from workflow.workflow_firing").fetchall()


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("overlap", list(Overlap))
def test_of_two_keepers_at_once_one_fires(driver, sessions, overlap):
    """The other keeper waits for it, and sees that nothing is left to do."""
    one, two = sessions
    schedule = made(driver, overlap=overlap)
    first, second = (firing(driver, schedule, EPOCH + HOUR) for _ in range(2))
    one.begin()
    assert one.call("fire_schedule", first)["answer"] == "applied"
    waiting = two.waits("fire_schedule", second)
    one.commit()
    assert waiting.result() == {"answer": "lost"}
    assert runs(driver) == {first.fires[0].run.id}


@pytest.mark.spec("SCHED-1")
def test_a_keeper_that_dies_while_it_fires_leaves_the_time_to_another(driver, sessions):
    one, two = sessions
    schedule = made(driver)
    first, second = (firing(driver, schedule, EPOCH + HOUR) for _ in range(2))
    one.begin()
    one.call("fire_schedule", first)
    waiting = two.waits("fire_schedule", second)
    one.roll_back()
    assert waiting.result()["started"] == [str(second.fires[0].run.id)]
    assert runs(driver) == {second.fires[0].run.id}
    assert (seen(driver).fired, len(known_runs())) == (1, 1)


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("meanwhile", ["pause_schedule", "unschedule", "schedule"])
def test_what_is_changed_at_that_moment_is_not_fired(driver, sessions, meanwhile):
    """Paused, removed, or changed."""
    one, two = sessions
    schedule = made(driver)
    args = {
        "pause_schedule": ("nightly", "default", "Ann"),
        "unschedule": ("nightly", "default"),
        "schedule": (new(driver, params="2"),),
    }[meanwhile]
    one.begin()
    one.call(meanwhile, *args)
    waiting = two.waits("fire_schedule", firing(driver, schedule, EPOCH + HOUR))
    one.commit()
    assert waiting.result() == {"answer": "lost"}
    assert (runs(driver), known_runs()) == (set(), [])


@pytest.mark.spec("SCHED-1")
def test_a_schedule_that_is_removed_while_it_fires_leaves_nothing_behind(driver, sessions):
    """The run that was started goes on."""
    one, two = sessions
    schedule = made(driver)
    one.begin()
    one.call("fire_schedule", firing(driver, schedule, EPOCH + HOUR))
    waiting = two.waits("unschedule", "nightly", "default")
    one.commit()
    assert waiting.result() is True
    assert (len(runs(driver)), known_runs()) == (1, [])


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("undone", [False, True])
def test_an_app_that_says_its_schedule_in_two_places_at_once_has_one(driver, sessions, undone):
    one, two = sessions
    first, second = new(driver), new(driver)
    one.begin()
    one.call("schedule", first)
    waiting = two.waits("schedule", second)
    if undone:
        one.roll_back()
    else:
        one.commit()
    there = waiting.result()
    assert (there["id"], there["rev"]) == (str(second.id if undone else first.id), 1)
    assert str(seen(driver).id) == there["id"]


@pytest.mark.spec("SCHED-1")
def test_a_schedule_that_goes_while_it_is_said_again_is_made_anew(driver, sessions):
    one, two = sessions
    made(driver)
    again = new(driver)
    one.begin()
    one.call("unschedule", "nightly", "default")
    waiting = two.waits("schedule", again)
    one.commit()
    assert (waiting.result()["id"], seen(driver).id) == (str(again.id), again.id)


@pytest.mark.spec("SCHED-1")
def test_another_run_that_takes_the_id_of_a_time_at_that_moment_is_told(driver, sessions):
    """The call is sent again, as a store does after a collision; nothing is half done."""
    one, two = sessions
    schedule = made(driver)
    strange = NewRun(id=driver.id(), type=TYPE, tenant="mallory")
    shots = (shot(driver, schedule, EPOCH + HOUR, id=strange.id),)
    fires = firing(driver, schedule, *shots)
    one.begin()
    one.call("start", [strange])
    waiting = two.waits("fire_schedule", fires)
    one.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        waiting.result()
    assert seen(driver) == schedule
    assert driver.run(driver.store.fire_schedule(fires)).taken == (strange.id,)


@pytest.mark.spec("SCHED-1")
def test_the_same_time_that_is_started_at_that_moment_is_no_other_run(driver, sessions):
    """A run that a former schedule of that name started for this time."""
    one, two = sessions
    schedule = made(driver)
    same = shot(driver, schedule, EPOCH + HOUR)
    one.begin()
    one.call("start", [same.run])
    waiting = two.waits("fire_schedule", firing(driver, schedule, same))
    one.commit()
    answer = waiting.result()
    assert (answer["answer"], answer["started"]) == ("applied", [])
    assert (runs(driver), known_runs()) == ({same.run.id}, [(same.run.id,)])
