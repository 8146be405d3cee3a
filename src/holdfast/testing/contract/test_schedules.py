"""Schedules: one run a time, whoever fires it, and what becomes of times that cannot start one."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast.errors import Conflict, UnknownSchedule
from holdfast.lifecycle import Status
from holdfast.records import ANY, CatchUp, FiredBy, Overlap, moment

from .hand import EPOCH
from .timetable import HOUR, due, end, fire, firing, made, runs, seen, shot


@pytest.mark.spec("SCHED-1")
def test_a_schedule_is_shown_as_it_was_made(hand):
    """What each of its runs gets, when, and how far it has come."""
    one = made(
        hand, params='{"n":1}', zone="Europe/Berlin", jitter_us=5, overlap=Overlap.QUEUE,
        catch_up=CatchUp.ALL, priority=7, max_attempts=2, timeout_seconds=60.0, ttl_seconds=30.0, budget=9,
        limit_key="k", labels='{"team":"billing"}', anchor_at=EPOCH,
    )  # fmt: skip
    assert seen(hand) == one
    assert (one.params, one.labels, one.next_at) == ({"n": 1}, {"team": "billing"}, moment(EPOCH + HOUR))
    assert (one.cron, one.zone, one.every, one.jitter_us) == ("0 * * * *", "Europe/Berlin", None, 5)
    assert (one.overlap, one.catch_up, one.priority) == (Overlap.QUEUE, CatchUp.ALL, 7)
    assert (one.max_attempts, one.timeout_seconds, one.ttl_seconds) == (2, 60.0, 30.0)
    assert (one.budget_units, one.limit_key, one.anchor_at) == (9, "k", moment(EPOCH))
    assert (one.paused, one.waiting, one.fired, one.skipped, one.last_run) == (False, (), 0, 0, None)


@pytest.mark.spec("SCHED-1")
def test_the_same_schedule_again_changes_nothing(hand):
    """However often an app says so at its start; also when it would now begin with another time."""
    one = made(hand, params='{"n":1}')
    hand.clock.turn(10)
    assert made(hand, params='{"n":1}', next_at=EPOCH + 2 * HOUR, anchor_at=5) == one


@pytest.mark.spec("SCHED-1")
def test_a_change_is_taken_over_and_only_another_rhythm_begins_anew(hand):
    """Its name is what it is known by: id, pause and counts stay."""
    one = made(hand, every_us=HOUR, cron=None, anchor_at=EPOCH)
    hand.clock.turn(10)
    other = made(hand, every_us=HOUR, cron=None, anchor_at=5, next_at=5, params="2", overlap=Overlap.ALLOW)
    assert (other.id, other.rev, other.params, other.overlap) == (one.id, one.rev + 1, 2, Overlap.ALLOW)
    assert (other.next_at, other.anchor_at, other.created_at) == (one.next_at, one.anchor_at, one.created_at)
    assert other.updated_at > one.updated_at
    for change in ({"every_us": 2 * HOUR, "cron": None}, {"cron": "5 * * * *"}, {"zone": "Asia/Tokyo"}):
        changed = made(hand, **change, next_at=hand.clock.now + 7, anchor_at=hand.clock.now)
        assert (changed.next_at, changed.id) == (moment(hand.clock.now + 7), one.id)


@pytest.mark.spec("SCHED-1")
def test_a_schedule_is_due_at_its_instant_and_never_before(hand):
    """Keepers are told when to look."""
    made(hand)
    assert hand.due().chore_at == EPOCH + HOUR
    hand.clock.now = EPOCH + HOUR - 1
    assert due(hand) == []
    hand.clock.now = EPOCH + HOUR
    assert due(hand) == ["nightly"]


@pytest.mark.spec("SCHED-1")
def test_firing_starts_the_run_and_moves_on_in_one_commit(hand):
    """Its time, its run, and what comes next."""
    one = made(hand, params='{"n":1}')
    hand.clock.turn(3600)
    fired = fire(hand, one, EPOCH + HOUR)
    (run,) = fired.started
    assert (fired.answer, fired.skipped, fired.queued) == ("applied", 0, 0)
    after = seen(hand)
    assert (after.next_at, after.last_at) == (moment(EPOCH + 2 * HOUR), moment(EPOCH + HOUR))
    assert (after.fired, after.last_run, after.rev) == (1, run, one.rev + 1)
    assert hand.told(run) == ["created"]
    assert hand.take(run).params == '{"n":1}'
    assert due(hand) == []


@pytest.mark.spec("SCHED-1")
def test_of_two_keepers_that_saw_the_same_one_fires(hand):
    """Whoever comes second changes nothing; nor does the same call again."""
    one = made(hand)
    hand.clock.turn(3600)
    first, second = firing(hand, one, EPOCH + HOUR), firing(hand, one, EPOCH + HOUR)
    answers = hand.run(_both(hand.store, first, second))
    assert sorted(answer.answer for answer in answers) == ["applied", "lost"]
    before = seen(hand), runs(hand)
    assert [hand.run(hand.store.fire_schedule(again)).answer for again in (first, second)] == ["lost", "lost"]
    assert (seen(hand), runs(hand)) == before
    assert len(runs(hand)) == 1


async def _both(store, *firings):
    return await asyncio.gather(*(store.fire_schedule(one) for one in firings))


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("meanwhile", ["changed", "paused", "removed", "made again"])
def test_a_schedule_that_has_changed_since_is_not_fired(hand, meanwhile):
    """What was worked out for what it was must not be done to what it is."""
    one = made(hand)
    hand.clock.turn(3600)
    late = firing(hand, one, EPOCH + HOUR)
    if meanwhile == "changed":
        made(hand, params="2")
    elif meanwhile == "paused":
        hand.run(hand.store.pause_schedule("nightly", "default"))
    else:
        assert hand.run(hand.store.unschedule("nightly", "default"))
    if meanwhile == "made again":
        made(hand)
    assert hand.run(hand.store.fire_schedule(late)).answer == "lost"
    assert runs(hand) == set()


@pytest.mark.spec("SCHED-1")
def test_a_time_whose_run_is_there_starts_no_other(hand):
    """A schedule is removed and made again, or the clock goes back: the id of a run names its time."""
    one = made(hand)
    hand.clock.turn(3600)
    fire(hand, one, shot(hand, one, EPOCH + HOUR, id=hand.id()))
    (run,) = runs(hand)
    hand.run(hand.store.unschedule("nightly", "default"))
    again = made(hand)
    fired = fire(hand, again, shot(hand, again, EPOCH + HOUR, id=run))
    assert (fired.answer, fired.started) == ("applied", ())
    assert runs(hand) == {run}
    after = seen(hand)
    assert (after.fired, after.next_at) == (0, moment(EPOCH + 2 * HOUR))
    # It is a run of this schedule all the same: the next time finds it open.
    assert fire(hand, after, EPOCH + 2 * HOUR).skipped == 1


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("by", [FiredBy.RHYTHM, FiredBy.QUEUE])
def test_another_run_under_the_id_of_a_time_is_not_taken_for_that_time(hand, by):
    """Another tenant's, or one that was not started for it: the keeper is told, and nothing has changed."""
    one = made(hand, overlap=Overlap.QUEUE)
    if by is FiredBy.QUEUE:
        (run,) = fire(hand, one, EPOCH, EPOCH + HOUR).started
        end(hand, run)
        one = seen(hand)
    strange, other = hand.start(tenant="mallory"), hand.start(labels='{"schedule":"else"}')
    for run in (strange, other):
        fired = fire(hand, one, shot(hand, one, EPOCH + HOUR, id=run), by=by)
        assert (fired.answer, fired.taken, fired.started) == ("taken", (run,), ())
        assert seen(hand) == one
    assert fire(hand, one, EPOCH + HOUR, by=by).started


@pytest.mark.spec("SCHED-1")
def test_a_schedule_can_be_left_out_of_what_is_due(hand):
    """As it was seen: what cannot be fired hides no later time, until it is changed."""
    one = made(hand, overlap=Overlap.QUEUE)
    (run,) = fire(hand, one, EPOCH + HOUR, EPOCH + 2 * HOUR).started
    end(hand, run)
    made(hand, name="other", next_at=EPOCH + 9 * HOUR)
    one = seen(hand)
    assert hand.due().chore_at == 0
    assert hand.due(besides=[(one.id, one.rev)]).chore_at == EPOCH + 9 * HOUR
    assert hand.due(besides=[(one.id, one.rev - 1), (hand.id(), one.rev)]).chore_at == 0
    other = seen(hand, "other")
    assert hand.due(besides=[(one.id, one.rev), (other.id, other.rev)]).chore_at is None


@pytest.mark.spec("SCHED-1")
def test_a_paused_schedule_is_not_due_and_goes_on_where_it_is_told(hand):
    """Twice is once; what stands in line waits too."""
    (run,) = fire(hand, made(hand, overlap=Overlap.QUEUE), EPOCH + HOUR, EPOCH + 2 * HOUR).started
    end(hand, run)
    one = hand.run(hand.store.pause_schedule("nightly", "default", by="Ann"))
    assert (one.paused, one.paused_by) == (True, "Ann")
    assert hand.run(hand.store.pause_schedule("nightly", "default", by="Bob")) == one
    hand.clock.turn(10 * 3600)
    assert due(hand) == []
    assert hand.due().chore_at is None
    with pytest.raises(Conflict):
        hand.run(hand.store.resume_schedule("nightly", one.rev - 1, EPOCH + 11 * HOUR, "default"))
    after = hand.run(hand.store.resume_schedule("nightly", one.rev, EPOCH + 11 * HOUR, "default"))
    assert (after.paused, after.paused_by, after.next_at) == (False, None, moment(EPOCH + 11 * HOUR))
    assert hand.run(hand.store.resume_schedule("nightly", 1, 5, "default")) == after
    assert due(hand) == ["nightly"]


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("by", [FiredBy.RHYTHM, FiredBy.QUEUE])
def test_a_paused_schedule_is_fired_by_no_keeper(hand, by):
    """Also by one who has seen that it is paused."""
    (run,) = fire(hand, made(hand, overlap=Overlap.QUEUE), EPOCH + HOUR, EPOCH + 2 * HOUR).started
    end(hand, run)
    paused = hand.run(hand.store.pause_schedule("nightly", "default"))
    assert fire(hand, paused, EPOCH + 2 * HOUR, by=by).answer == "lost"
    assert seen(hand) == paused


@pytest.mark.spec("SCHED-1")
@pytest.mark.parametrize("paused", [False, True])
def test_by_hand_a_run_starts_at_once_outside_the_rhythm(hand, paused):
    """Whatever is open, and also while it is paused; the next time stays."""
    one = made(hand)
    fire(hand, one, EPOCH + HOUR)
    if paused:
        hand.run(hand.store.pause_schedule("nightly", "default"))
    before = seen(hand)
    fired = fire(hand, before, hand.clock.now, by=FiredBy.HAND, next_at=None)
    assert len(fired.started) == 1
    after = seen(hand)
    assert (after.next_at, after.fired, after.last_run) == (before.next_at, 2, fired.started[0])


@pytest.mark.spec("SCHED-1")
def test_times_that_are_not_caught_up_start_nothing_and_are_noted(hand):
    """It moves on all the same."""
    fired = fire(hand, made(hand), next_at=EPOCH + 9 * HOUR, missed_at=EPOCH + 8 * HOUR)
    assert (fired.answer, fired.started) == ("applied", ())
    after = seen(hand)
    assert (after.next_at, after.last_missed_at) == (moment(EPOCH + 9 * HOUR), moment(EPOCH + 8 * HOUR))


def test_a_schedule_without_a_further_time_is_never_due(hand):
    """A leap day fifty years ahead is none."""
    fire(hand, made(hand), EPOCH + HOUR, next_at=None)
    hand.clock.turn(1e9)
    assert (seen(hand).next_at, due(hand)) == (None, [])


@pytest.mark.spec("SCHED-1")
def test_tenants_have_schedules_of_the_same_name(hand):
    """And see their own."""
    one, other = made(hand), made(hand, tenant="acme", params="2")
    made(hand, tenant="acme", name="daily")
    assert one.id != other.id
    assert seen(hand, tenant="acme") == other
    listed = [(a.tenant, a.name) for a in hand.run(hand.store.schedules(ANY))]
    assert listed == [("acme", "daily"), ("acme", "nightly"), ("default", "nightly")]
    page = hand.run(hand.store.schedules(ANY, limit=2))
    rest = hand.run(hand.store.schedules(ANY, after=(page[-1].tenant, page[-1].name)))
    assert [(a.tenant, a.name) for a in (*page, *rest)] == listed
    assert len(hand.run(hand.store.schedules(ANY, "nightly"))) == 2
    hand.clock.turn(3600)
    (run,) = fire(hand, other, EPOCH + HOUR).started
    assert hand.get(run).tenant == "acme"
    assert hand.run(hand.store.unschedule("nightly", "acme"))
    assert not hand.run(hand.store.unschedule("nightly", "acme"))
    assert seen(hand) == one


def test_due_schedules_come_in_pages(hand):
    """Many at the same instant: none is left behind by one that cannot be fired."""
    for n in range(5):
        made(hand, name=f"s{n}")
    hand.clock.turn(3600)
    page = hand.run(hand.store.due_schedules(limit=3))
    rest = hand.run(hand.store.due_schedules(limit=3, after=page[-1].id))
    assert sorted(one.name for one in (*page, *rest)) == [f"s{n}" for n in range(5)]


@pytest.mark.parametrize("verb", ["pause_schedule", "resume_schedule"])
def test_an_unknown_schedule_is_said_to_be_so(hand, verb):
    """By its name, in its tenant."""
    made(hand, tenant="acme")
    rest = (1, None) if verb == "resume_schedule" else ()
    with pytest.raises(UnknownSchedule, match="nightly"):
        hand.run(getattr(hand.store, verb)("nightly", *rest, "default"))
    assert hand.run(hand.store.schedules("default", "nightly")) == []
    assert not hand.run(hand.store.unschedule("nightly", "default"))


@pytest.mark.spec("SCHED-1", "START-2")
def test_runs_of_a_type_that_nobody_has_published_are_started(hand):
    """A start needs no worker, and no definition."""
    one = made(hand, type="not.known.v9")
    (run,) = fire(hand, one, EPOCH + HOUR).started
    assert hand.get(run).type == "not.known.v9"


@pytest.mark.spec("SCHED-1")
def test_a_schedule_goes_and_its_runs_go_on(hand):
    """Its line goes with it."""
    (run,) = fire(hand, made(hand, overlap=Overlap.QUEUE), EPOCH + HOUR, EPOCH + 2 * HOUR).started
    assert hand.run(hand.store.unschedule("nightly", "default"))
    assert hand.status(run) is Status.PENDING
    end(hand, run)
    hand.clock.turn(86400)
    assert due(hand) == []
    again = made(hand, overlap=Overlap.QUEUE)
    assert (again.waiting, again.fired, again.rev) == ((), 0, 1)


def test_params_of_any_kind_come_back(hand):
    """As they were given, to the run too."""
    params = json.dumps({"text": "größer", "list": [1, None, True]})
    one = made(hand, params=params)
    assert one.params == json.loads(params)
    (run,) = fire(hand, one, EPOCH + HOUR).started
    assert hand.get(run).params == json.loads(params)
