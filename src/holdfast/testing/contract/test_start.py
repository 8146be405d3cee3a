"""start: an intent becomes a run, once."""

from __future__ import annotations

import pytest

from holdfast.arguments import LATEST
from holdfast.errors import DuplicateRun, KeyReused, UnknownRun
from holdfast.lifecycle import Status
from holdfast.records import Definition, NewRun, Started, moment

from .hand import TYPE, task


def _new(hand, **fields):
    return NewRun(**{"id": hand.id(), "type": TYPE, **fields})


@pytest.mark.spec("START-2")
def test_a_start_needs_no_worker(hand):
    """A run that was accepted is executed when a worker that can run its type appears."""
    run = hand.start(params='{"n": 1}')
    hand.clock.turn(86400)
    claim = hand.take(run)
    assert (claim.params, claim.attempt, claim.steps) == ('{"n": 1}', 1, ())


@pytest.mark.spec("START-3", "LEASE-1")
@pytest.mark.parametrize("later", ["run_at", "delay_seconds"])
def test_a_run_for_later_is_claimed_at_its_instant_and_never_before(hand, later):
    """Times are due at equality."""
    at = hand.clock.now + 10_000_000
    run = hand.start(**{later: at if later == "run_at" else 10.0})
    hand.clock.now = at - 1
    assert hand.claim() == []
    hand.clock.now = at
    assert hand.take(run).id == run


@pytest.mark.spec("START-4")
def test_the_same_key_gives_the_run_that_is_there(hand):
    """Same tenant and key: the existing id comes back with created=False, nothing is inserted."""
    run = hand.start(key="order:42", digest="d")
    before = hand.snapshot(run), hand.everything()
    assert hand.start_many([_new(hand, key="order:42", digest="d")]) == [Started(run, created=False)]
    assert (hand.snapshot(run), hand.everything()) == before


@pytest.mark.spec("START-4")
def test_the_same_key_with_another_digest_is_a_conflict(hand):
    """Same key with another type or params: a typed conflict error that names the run."""
    run = hand.start(key="order:42", digest="d")
    before = hand.snapshot(run), hand.everything()
    (answer,) = hand.start_many([_new(hand, key="order:42", digest="other")])
    assert isinstance(answer, KeyReused)
    assert (answer.key, answer.run_id) == ("order:42", run)
    assert (hand.snapshot(run), hand.everything()) == before


@pytest.mark.spec("START-4")
def test_a_key_belongs_to_its_tenant_and_null_keys_never_collide(hand):
    """Null keys never collide; another tenant may use the same key."""
    first = hand.start(key="k", digest="d")
    second = hand.start(key="k", digest="other", tenant="acme")
    third, fourth = hand.start(), hand.start()
    assert len({first, second, third, fourth}) == 4
    assert [hand.get(run).key for run in (first, second, third)] == ["k", "k", None]


@pytest.mark.spec("START-4")
def test_the_key_stays_taken_after_the_run_has_ended(hand):
    """A key is for good: the second call is answered with the run that ended."""
    claim = hand.held(key="k", digest="d")
    hand.complete(claim)
    assert hand.start_many([_new(hand, key="k", digest="d")]) == [Started(claim.id, created=False)]


@pytest.mark.spec("START-5", "START-4")
def test_many_starts_are_each_answered_on_their_own(hand):
    """A conflict is the answer for that item, the others are started."""
    old = hand.start(key="old", digest="d")
    new = [
        _new(hand),
        _new(hand, key="old", digest="d"),
        _new(hand, key="old", digest="other"),
        _new(hand, id=old),
        _new(hand, key="twice", digest="d"),
        _new(hand, key="twice", digest="d"),
    ]
    answers = hand.start_many(new)
    assert answers[0] == Started(new[0].id, created=True)
    assert answers[1] == Started(old, created=False)
    assert isinstance(answers[2], KeyReused)
    assert isinstance(answers[3], DuplicateRun)
    assert answers[4] == Started(new[4].id, created=True)
    assert answers[5] == Started(new[4].id, created=False)
    assert hand.stats().by_status[Status.PENDING] == 3


@pytest.mark.spec("START-5")
def test_a_thousand_starts_are_one_call(hand):
    """start_many starts thousands; each is durable when it returns."""
    answers = hand.start_many([_new(hand) for _ in range(1000)])
    assert all(answer.created for answer in answers)
    assert hand.stats().by_status[Status.PENDING] == 1000


@pytest.mark.spec("START-8")
def test_a_duplicate_id_is_refused_and_the_original_intact(hand):
    """A caller may supply the id; a duplicate is refused, whichever tenant asks."""
    run = hand.start(params="1")
    before = hand.snapshot(run)
    for tenant in ("default", "acme"):
        (answer,) = hand.start_many([_new(hand, id=run, params="2", tenant=tenant)])
        assert isinstance(answer, DuplicateRun)
        assert answer.run_id == run
    assert hand.snapshot(run) == before


def test_the_key_is_looked_at_before_the_id(hand):
    """The same call again, with key and id, is the same run and no duplicate."""
    run = hand.start(key="k", digest="d")
    assert hand.start_many([_new(hand, id=run, key="k", digest="d")]) == [Started(run, created=False)]


@pytest.mark.spec("START-5")
def test_a_parent_is_a_run_of_the_same_tenant_that_is_there(hand):
    """Any other is the answer for its item; the others are started, also under a parent of the same call."""
    mine, foreign, deleted, unknown = hand.start(), hand.start(tenant="acme"), hand.start(), hand.id()
    hand.delete(deleted)
    first = _new(hand)
    good = [first, _new(hand, parent=first.id), _new(hand, parent=mine)]
    bad = [_new(hand, parent=parent) for parent in (foreign, deleted, unknown)]
    answers = hand.start_many([*bad, *good])
    assert [type(answer) for answer in answers[:3]] == [UnknownRun] * 3
    assert [answer.run_id for answer in answers[:3]] == [foreign, deleted, unknown]
    assert answers[3:] == [Started(one.id, created=True) for one in good]
    assert [hand.get(one.id) for one in bad] == [None] * 3


@pytest.mark.spec("START-4", "START-8")
def test_key_and_id_are_looked_at_before_the_parent(hand):
    """The same call again is the same run, though its parent has been deleted meanwhile."""
    parent = hand.start()
    run = hand.start(parent=parent, key="k", digest="d")
    hand.delete(parent)
    again = _new(hand, parent=parent, key="k", digest="d")
    same_id = _new(hand, id=run, parent=parent)
    answers = hand.start_many([again, same_id])
    assert answers[0] == Started(run, created=False)
    assert isinstance(answers[1], DuplicateRun)


@pytest.mark.spec("TRAIL-1", "READ-1")
def test_a_new_run_shows_what_it_was_started_with(hand):
    """Pending, attempt 0; all that start was given can be read back."""
    parent = hand.start()
    run = hand.start(
        params='{"a": [], "b": {}}', priority=7, max_attempts=9, timeout_seconds=60.0, ttl_seconds=5.0,
        budget=12, limit_key="shop", parent=parent, labels='{"team": "x"}', key="k",
    )  # fmt: skip
    seen = hand.get(run)
    assert (seen.status, seen.attempt, seen.crashes) == (Status.PENDING, 0, 0)
    assert (seen.params_json, seen.priority, seen.max_attempts) == ('{"a": [], "b": {}}', 7, 9)
    assert (seen.timeout_at, seen.timeout_seconds) == (moment(hand.clock.now + 60_000_000), 60.0)
    assert (seen.budget_units, seen.limit_key, seen.parent) == (12, "shop", parent)
    assert seen.labels == {"team": "x"}
    assert seen.created_at == seen.run_at == moment(hand.clock.now)
    assert (seen.started_at, seen.finished_at, seen.expires_at, seen.cursor) == (None,) * 4
    assert [(entry.type, entry.data) for entry in hand.trail(run)] == [("created", {"type": TYPE})]


def test_what_start_leaves_out_comes_from_the_published_definition(hand):
    """max_attempts and timeout: as given, else the definition's, else 3 and none."""
    plain = hand.start()
    hand.run(hand.store.publish([Definition(type=TYPE, max_attempts=5, timeout_seconds=60.0)]))
    published, given = hand.start(), hand.start(max_attempts=1, timeout_seconds=1.0)
    assert [hand.get(run).max_attempts for run in (plain, published, given)] == [3, 5, 1]
    due = [None, moment(hand.clock.now + 60_000_000), moment(hand.clock.now + 1_000_000)]
    assert [hand.get(run).timeout_at for run in (plain, published, given)] == due


@pytest.mark.spec("RETRY-9", "START-3")
@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("plan", [True, False])
def test_a_timeout_counts_from_when_the_run_is_due(hand, published, plan):
    """Else one that is shorter than the delay would end the run before anyone may claim it."""
    steps = (task("A"),) if plan else ()
    kind = "plan" if plan else "code"
    lasts = 60.0 if published else None
    hand.run(hand.store.publish([Definition(type=TYPE, kind=kind, steps=steps, timeout_seconds=lasts)]))
    given = {} if published else {"timeout_seconds": 60.0}
    now = hand.clock.now
    late, at, past = (
        hand.start(delay_seconds=100.0, **given),
        hand.start(run_at=now + 7_000_000, **given),
        hand.start(run_at=now - 7_000_000, **given),
    )
    seen = [hand.get(run).timeout_at for run in (late, at, past)]
    assert seen == [moment(now + 160_000_000), moment(now + 67_000_000), moment(now + 60_000_000)]
    hand.clock.turn(100)
    assert hand.tick().timed_out == 2
    assert hand.status(late) is Status.PENDING
    hand.clock.turn(60)
    assert hand.tick().timed_out == 1
    assert hand.get(late).error.kind == "timeout"


@pytest.mark.spec("RETRY-9", "START-10")
def test_a_timeout_ends_with_the_years_that_can_be_told(hand):
    run = hand.start(run_at=LATEST - 1, timeout_seconds=1000.0)
    assert hand.get(run).timeout_at == moment(LATEST)


def test_definitions_are_listed_by_type_and_a_change_is_taken_over(hand):
    """Publish makes workflows known; the same again changes nothing, a change is taken over."""
    one, two = Definition(type="b.two.v1"), Definition(type="a.one.v1", description="x")
    hand.run(hand.store.publish([one, two]))
    hand.run(hand.store.publish([one]))
    assert hand.run(hand.store.definitions()) == [two, one]
    changed = Definition(type="b.two.v1", max_attempts=7)
    hand.run(hand.store.publish([changed]))
    assert hand.run(hand.store.definitions()) == [two, changed]
