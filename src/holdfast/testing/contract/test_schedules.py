"""Schedules: one run for each time, whoever fires it, and times that cannot start one."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast.errors import Conflict, UnknownSchedule, UsageError
from holdfast.lifecycle import Status
from holdfast.records import ANY, CatchUp, Fire, FiredBy, NewRun, Overlap, RunFilter, moment

from .driver import EPOCH
from .schedules import HOUR, due, end, fire, firing, made, runs, seen, shot


@pytest.mark.spec("SCHED-1")
def test_a_schedule_is_shown_as_it_was_made(driver):
    """It shows the fields of its runs, its times, and its progress."""
    one = made(
        driver, params='{"n":1}', zone="Europe/Berlin", jitter_us=5, overlap=Overlap.QUEUE,
        catch_up=CatchUp.ALL, priority=7, max_attempts=2, timeout_seconds=60.0, ttl_seconds=30.0, budget=9,
        limit_key="k", labels='{"team":"billing"}', anchor_at=EPOCH,
    )  # fmt: skip
    assert seen(driver) == one
    assert (one.params, one.labels, one.next_at) == ({"n": 1}, {"team": "billing"}, moment(EPOCH + HOUR))
    assert (one.cron, one.zone, one.every, one.jitter_us) == ("0 * * * *", "Europe/Berlin", None, 5)
    assert (one.overlap, one.catch_up, one.priority) == (Overlap.QUEUE, CatchUp.ALL, 7)
    assert (one.max_attempts, one.timeout_seconds, one.ttl_seconds) == (2, 60.0, 30.0)
    assert (one.budget_units, one.limit_key, one.anchor_at) == (9, "k", moment(EPOCH))
    assert (one.paused, one.waiting, one.fired, one.skipped, one.last_run) == (False, (), 0, 0, None)


@pytest.mark.spec("SCHED-1")
def test_the_same_schedule_again_changes_nothing(driver):
    """An app may repeat it at every start, also when its first time would now be another."""
    one = made(driver, params='{"n":1}')
    driver.clock.turn(10)
    assert made(driver, params='{"n":1}', next_at=EPOCH + 2 * HOUR, anchor_at=5) == one


@pytest.mark.spec("SCHED-1")
def test_a_change_is_taken_over_and_only_another_rhythm_begins_anew(driver):
    """A schedule is known by its name: id, pause and counts stay."""
    one = made(driver, every_us=HOUR, cron=None, anchor_at=EPOCH)
    driver.clock.turn(10)
    other = made(driver, every_us=HOUR, cron=None, anchor_at=5, next_at=5, params="2", overlap=Overlap.ALLOW)
    assert (other.id, other.rev, other.params, other.overlap) == (one.id, one.rev + 1, 2, Overlap.ALLOW)
    assert (other.next_at, other.anchor_at, other.created_at) == (one.next_at, one.anchor_at, one.created_at)
    assert other.updated_at > one.updated_at
    for change in ({"every_us": 2 * HOUR, "cron": None}, {"cron": "5 * * * *"}, {"zone": "Asia/Tokyo"}):
        changed = made(driver, **change, next_at=driver.clock.now + 7, anchor_at=driver.clock.now)
        assert (changed.next_at, changed.id) == (moment(driver.clock.now + 7), one.id)


@pytest.mark.spec("SCHED-1")
def test_a_schedule_is_due_at_its_instant_and_never_before(driver):
    """Keepers are told when to look."""
    made(driver)
    assert driver.due().chore_at == EPOCH + HOUR
    driver.clock.now = EPOCH + HOUR - 1
    assert due(driver) == []
    driver.clock.now = EPOCH + HOUR
    assert due(driver) == ["nightly"]


@pytest.mark.spec("SCHED-1")
def test_firing_starts_the_run_and_moves_on_in_one_commit(driver):
    """The commit has the time, the run, and the next time."""
    one = made(driver, params='{"n":1}')
    driver.clock.turn(3600)
    fired = fire(driver, one, EPOCH + HOUR)
    (run,) = fired.started
    assert (fired.answer, fired.skipped, fired.queued) == ("applied", 0, 0)
    after = seen(driver)
    assert (after.next_at, after.last_at) == (moment(EPOCH + 2 * HOUR), moment(EPOCH + HOUR))
    assert (after.fired, after.last_run, after.rev) == (1, run, one.rev + 1)
    assert driver.told(run) == ["created"]
    assert driver.take(run).params == '{"n":1}'
    assert due(driver) == []


@pytest.mark.spec("SCHED-1")
def test_of_two_keepers_that_saw_the_same_one_fires(driver):
    """The second call changes nothing; nor does a repeat."""
    one = made(driver)
    driver.clock.turn(3600)
    first, second = firing(driver, one, EPOCH + HOUR), firing(driver, one, EPOCH + HOUR)
    answers = driver.run(_both(driver.store, first, second))
    assert sorted(answer.answer for answer in answers) == ["applied", "lost"]
    before = seen(driver), runs(driver)
    assert [driver.run(driver.store.fire_schedule(again)).answer for again in (first, second)] == [
        "lost",
        "lost",
    ]
    assert (seen(driver), runs(driver)) == before
    assert len(runs(driver)) == 1


async def _both(store, *firings):
    return await asyncio.gather(*(store.fire_schedule(one) for one in firings))


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("meanwhile", ["changed", "paused", "removed", "made again"])
def test_a_schedule_that_has_changed_since_is_not_fired(driver, meanwhile):
    """A firing that was computed for the old schedule is refused."""
    one = made(driver)
    driver.clock.turn(3600)
    late = firing(driver, one, EPOCH + HOUR)
    if meanwhile == "changed":
        made(driver, params="2")
    elif meanwhile == "paused":
        driver.run(driver.store.pause_schedule("nightly", "default"))
    else:
        assert driver.run(driver.store.unschedule("nightly", "default"))
    if meanwhile == "made again":
        made(driver)
    assert driver.run(driver.store.fire_schedule(late)).answer == "lost"
    assert runs(driver) == set()


@pytest.mark.spec("SCHED-1")
def test_a_time_whose_run_is_there_starts_no_other(driver):
    """After a removed schedule is made again, or the clock goes back, the id of a run names its time."""
    one = made(driver)
    driver.clock.turn(3600)
    fire(driver, one, shot(driver, one, EPOCH + HOUR, id=driver.id()))
    (run,) = runs(driver)
    driver.run(driver.store.unschedule("nightly", "default"))
    again = made(driver)
    fired = fire(driver, again, shot(driver, again, EPOCH + HOUR, id=run))
    assert (fired.answer, fired.started) == ("applied", ())
    assert runs(driver) == {run}
    after = seen(driver)
    assert (after.fired, after.next_at) == (0, moment(EPOCH + 2 * HOUR))
    # It is a run of this schedule all the same: the next time finds it open.
    assert fire(driver, after, EPOCH + 2 * HOUR).skipped == 1


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("by", [FiredBy.RHYTHM, FiredBy.QUEUE])
def test_another_run_under_the_id_of_a_time_is_not_taken_for_that_time(driver, by):
    """For a run of another tenant, or one of another origin, the keeper is told, and nothing changes."""
    one = made(driver, overlap=Overlap.QUEUE)
    if by is FiredBy.QUEUE:
        (run,) = fire(driver, one, EPOCH, EPOCH + HOUR).started
        end(driver, run)
        one = seen(driver)
    strange, other = driver.start(tenant="mallory"), driver.start(labels='{"schedule":"else"}')
    for run in (strange, other):
        fired = fire(driver, one, shot(driver, one, EPOCH + HOUR, id=run), by=by)
        assert (fired.answer, fired.taken, fired.started) == ("taken", (run,), ())
        assert seen(driver) == one
    assert fire(driver, one, EPOCH + HOUR, by=by).started


@pytest.mark.spec("SCHED-1")
def test_a_schedule_can_be_left_out_of_what_is_due(driver):
    """A schedule that cannot be fired hides no later time; it is left out until it is changed."""
    one = made(driver, overlap=Overlap.QUEUE)
    (run,) = fire(driver, one, EPOCH + HOUR, EPOCH + 2 * HOUR).started
    end(driver, run)
    made(driver, name="other", next_at=EPOCH + 9 * HOUR)
    one = seen(driver)
    assert driver.due().chore_at == 0
    assert driver.due(besides=[(one.id, one.rev)]).chore_at == EPOCH + 9 * HOUR
    assert driver.due(besides=[(one.id, one.rev - 1), (driver.id(), one.rev)]).chore_at == 0
    other = seen(driver, "other")
    assert driver.due(besides=[(one.id, one.rev), (other.id, other.rev)]).chore_at is None


@pytest.mark.spec("SCHED-1")
def test_a_paused_schedule_is_not_due_and_goes_on_where_it_is_told(driver):
    """A second pause changes nothing; queued times wait too."""
    (run,) = fire(driver, made(driver, overlap=Overlap.QUEUE), EPOCH + HOUR, EPOCH + 2 * HOUR).started
    end(driver, run)
    one = driver.run(driver.store.pause_schedule("nightly", "default", by="Ann"))
    assert (one.paused, one.paused_by) == (True, "Ann")
    assert driver.run(driver.store.pause_schedule("nightly", "default", by="Bob")) == one
    driver.clock.turn(10 * 3600)
    assert due(driver) == []
    assert driver.due().chore_at is None
    with pytest.raises(Conflict):
        driver.run(driver.store.resume_schedule("nightly", one.rev - 1, EPOCH + 11 * HOUR, "default"))
    after = driver.run(driver.store.resume_schedule("nightly", one.rev, EPOCH + 11 * HOUR, "default"))
    assert (after.paused, after.paused_by, after.next_at) == (False, None, moment(EPOCH + 11 * HOUR))
    assert driver.run(driver.store.resume_schedule("nightly", 1, 5, "default")) == after
    assert due(driver) == ["nightly"]


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("by", [FiredBy.RHYTHM, FiredBy.QUEUE])
def test_a_paused_schedule_is_fired_by_no_keeper(driver, by):
    """This holds also for a keeper that has read it as paused."""
    (run,) = fire(driver, made(driver, overlap=Overlap.QUEUE), EPOCH + HOUR, EPOCH + 2 * HOUR).started
    end(driver, run)
    paused = driver.run(driver.store.pause_schedule("nightly", "default"))
    assert fire(driver, paused, EPOCH + 2 * HOUR, by=by).answer == "lost"
    assert seen(driver) == paused


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("paused", [False, True])
def test_by_hand_a_run_starts_at_once_outside_the_rhythm(driver, paused):
    """It starts whatever is open, and also while paused; the next time stays."""
    one = made(driver)
    fire(driver, one, EPOCH + HOUR)
    if paused:
        driver.run(driver.store.pause_schedule("nightly", "default"))
    before = seen(driver)
    fired = fire(driver, before, driver.clock.now, by=FiredBy.HAND, next_at=None)
    assert len(fired.started) == 1
    after = seen(driver)
    assert (after.next_at, after.fired, after.last_run) == (before.next_at, 2, fired.started[0])


@pytest.mark.spec("SCHED-1")
def test_times_that_are_not_caught_up_start_nothing_and_are_noted(driver):
    """The schedule moves on."""
    fired = fire(driver, made(driver), next_at=EPOCH + 9 * HOUR, missed_at=EPOCH + 8 * HOUR)
    assert (fired.answer, fired.started) == ("applied", ())
    after = seen(driver)
    assert (after.next_at, after.last_missed_at) == (moment(EPOCH + 9 * HOUR), moment(EPOCH + 8 * HOUR))


def test_a_schedule_without_a_further_time_is_never_due(driver):
    """A leap day fifty years ahead counts as none."""
    fire(driver, made(driver), EPOCH + HOUR, next_at=None)
    driver.clock.turn(1e9)
    assert (seen(driver).next_at, due(driver)) == (None, [])


@pytest.mark.spec("SCHED-1")
def test_tenants_have_schedules_of_the_same_name(driver):
    """Each tenant sees its own."""
    one, other = made(driver), made(driver, tenant="acme", params="2")
    made(driver, tenant="acme", name="daily")
    assert one.id != other.id
    assert seen(driver, tenant="acme") == other
    listed = [(a.tenant, a.name) for a in driver.run(driver.store.schedules(ANY))]
    assert listed == [("acme", "daily"), ("acme", "nightly"), ("default", "nightly")]
    page = driver.run(driver.store.schedules(ANY, limit=2))
    rest = driver.run(driver.store.schedules(ANY, after=(page[-1].tenant, page[-1].name)))
    assert [(a.tenant, a.name) for a in (*page, *rest)] == listed
    assert len(driver.run(driver.store.schedules(ANY, "nightly"))) == 2
    driver.clock.turn(3600)
    (run,) = fire(driver, other, EPOCH + HOUR).started
    assert driver.get(run).tenant == "acme"
    assert driver.run(driver.store.unschedule("nightly", "acme"))
    assert not driver.run(driver.store.unschedule("nightly", "acme"))
    assert seen(driver) == one


def test_due_schedules_come_in_pages(driver):
    """A schedule that cannot be fired does not hide others of the same instant."""
    for n in range(5):
        made(driver, name=f"s{n}")
    driver.clock.turn(3600)
    page = driver.run(driver.store.due_schedules(limit=3))
    rest = driver.run(driver.store.due_schedules(limit=3, after=page[-1].id))
    assert sorted(one.name for one in (*page, *rest)) == [f"s{n}" for n in range(5)]


@pytest.mark.parametrize("verb", ["pause_schedule", "resume_schedule"])
def test_an_unknown_schedule_is_said_to_be_so(driver, verb):
    """The error has its name and tenant."""
    made(driver, tenant="acme")
    rest = (1, None) if verb == "resume_schedule" else ()
    with pytest.raises(UnknownSchedule, match="nightly"):
        driver.run(getattr(driver.store, verb)("nightly", *rest, "default"))
    assert driver.run(driver.store.schedules("default", "nightly")) == []
    assert not driver.run(driver.store.unschedule("nightly", "default"))


@pytest.mark.spec("SCHED-1", "START-2")
def test_runs_of_a_type_that_nobody_has_published_are_started(driver):
    """A start needs no worker and no definition."""
    one = made(driver, type="not.known.v9")
    (run,) = fire(driver, one, EPOCH + HOUR).started
    assert driver.get(run).type == "not.known.v9"


@pytest.mark.spec("SCHED-1", "START-6")
def test_a_bare_name_is_kept_and_the_keeper_says_which_version_is_started(driver):
    """Two keepers that see different newest versions start one run, of the version of the first one."""
    schedule = made(driver, type="shop.order")
    assert schedule.type == seen(driver).type == "shop.order"
    assert made(driver, type="shop.order").rev == schedule.rev
    driver.clock.turn(3600)
    run_id, labels = driver.id(), f'{{"schedule":"nightly","fire_at":"{EPOCH + HOUR}"}}'
    old, new_one = (
        Fire(EPOCH + HOUR, NewRun(id=run_id, type=f"shop.order.v{n}", labels=labels)) for n in (9, 10)
    )
    assert fire(driver, schedule, new_one).started == (run_id,)
    assert fire(driver, schedule, old).answer == "lost"
    # A keeper that died after its commit, and one of the other version, that sees the schedule anew.
    again = fire(driver, seen(driver), old)
    assert (again.answer, again.started) == ("applied", ())
    (run,) = driver.run(driver.store.list(RunFilter(tenant=ANY)))
    assert (run.id, run.type) == (run_id, "shop.order.v10")
    assert seen(driver).type == "shop.order"


@pytest.mark.parametrize(
    "name", ["shop", "shop.v1", "shop.v0", "shop order.x", "shop.order.v1.", "", "x" * 256]
)
def test_a_name_that_is_neither_a_type_nor_a_bare_name_is_refused(driver, name):
    with pytest.raises(UsageError, match="is not a workflow type"):
        made(driver, type=name)
    assert driver.run(driver.store.schedules(ANY)) == []


@pytest.mark.spec("SCHED-1")
def test_a_schedule_is_removed_and_its_runs_go_on(driver):
    """Its queue is removed with it."""
    (run,) = fire(driver, made(driver, overlap=Overlap.QUEUE), EPOCH + HOUR, EPOCH + 2 * HOUR).started
    assert driver.run(driver.store.unschedule("nightly", "default"))
    assert driver.status(run) is Status.PENDING
    end(driver, run)
    driver.clock.turn(86400)
    assert due(driver) == []
    again = made(driver, overlap=Overlap.QUEUE)
    assert (again.waiting, again.fired, again.rev) == ((), 0, 1)


def test_params_of_any_kind_come_back(driver):
    """Schedule and run have them as given."""
    params = json.dumps({"text": "größer", "list": [1, None, True]})
    one = made(driver, params=params)
    assert one.params == json.loads(params)
    (run,) = fire(driver, one, EPOCH + HOUR).started
    assert driver.get(run).params == json.loads(params)
