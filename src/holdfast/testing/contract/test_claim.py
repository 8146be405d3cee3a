"""claim: who takes what, in which order, and how much of it."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.lifecycle import Status
from holdfast.records import Presence, moment

from .hand import TYPE, done


def _crashed(hand, times):
    """A run whose lease expired so often, due again now."""
    run = hand.id()
    hand.start(id=run, tenant=str(run))
    for _ in range(times):
        hand.take(run, tenants=(str(run),))
        hand.clock.turn(30.000001)
        hand.tick()
        hand.clock.turn(60)
    return run


@pytest.mark.spec("LEASE-1")
def test_claims_go_by_priority_then_time_then_id(hand):
    """Lower priority number first, then run_at, then id; at most `limit`."""
    now = hand.clock.now
    last = hand.start(priority=200, run_at=now - 9)
    second, third = hand.start(run_at=now - 1), hand.start(run_at=now - 1)
    first = hand.start(run_at=now - 2)
    urgent = hand.start(priority=0)
    order = [urgent, first, second, third, last]
    assert [claim.id for claim in hand.claim(limit=2)] == order[:2]
    assert [claim.id for claim in hand.claim(limit=100)] == order[2:]


@pytest.mark.spec("LEASE-1", "TRAIL-1")
def test_a_claim_sets_the_lease_in_one_commit_and_returns_all_that_is_needed(hand):
    """Status, worker, lease_until, attempt + 1, fence + 1; run and steps come back."""
    before = hand.get(hand.start(params="7", max_attempts=4, timeout_seconds=99.0))
    claim = hand.take(before.id, worker="alice")
    seen = hand.get(claim.id)
    until = hand.clock.now + 30_000_000
    assert (seen.status, seen.leased_by, seen.lease_until) == (Status.LEASED, "alice", moment(until))
    assert (seen.attempt, seen.fence) == (claim.attempt, claim.fence) == (1, before.fence + 1)
    assert (claim.lease_until, claim.params, claim.max_attempts) == (until, "7", 4)
    assert claim.timeout_at == claim.created_at + 99_000_000
    assert hand.last(claim.id, "leased") == {"worker": "alice", "attempt": 1, "fence": claim.fence}


def test_a_claim_brings_the_labels(hand):
    """Of whatever kind the run is; one without any has none."""
    plan = hand.plan("A", labels='{"n":"1"}')
    code, bare = hand.start("shop.code.v1", labels='{"n":"2"}', budget=5), hand.start("shop.code.v1")
    claims = {claim.id: claim.labels for claim in hand.claim(types=(TYPE, "shop.code.v1"))}
    assert claims == {plan: {"n": "1"}, code: {"n": "2"}, bare: {}}


@pytest.mark.spec("LEASE-1")
def test_a_later_claim_brings_every_step_by_seq_and_the_number_of_logs(hand):
    """A claim returns the run with all its steps, in the order in which their outcomes became known."""
    from holdfast.records import TrailWrite

    claim = hand.held()
    rows = ('{"message":"code","log_no":1}', '{"message":"code","log_no":2}', '{"message":"hi","step":"b"}')
    hand.checkpoint(claim, done("b", cost=3), trail=tuple(TrailWrite("log", row) for row in rows))
    hand.checkpoint(claim, done("a", output='{"x":[]}'))
    hand.release(claim)
    again = hand.take(claim.id)
    assert [(step.seq, step.key, step.output, step.cost) for step in again.steps] == [
        (1, "b", "1", 3),
        (2, "a", '{"x":[]}', 0),
    ]
    assert again.steps == tuple(hand.steps(claim.id))
    assert again.logs == 2
    assert hand.last(claim.id, "log") == {"message": "hi", "step": "b"}


@pytest.mark.spec("LEASE-2")
def test_claimers_get_disjoint_sets(hand):
    """A run that is held is never claimed by another, nor again by its holder."""
    runs = [hand.start() for _ in range(5)]
    first, second = hand.claim(limit=3, worker="a"), hand.claim(limit=3, worker="b")
    assert [claim.id for claim in first + second] == runs
    assert hand.claim(worker="a") == []


@pytest.mark.spec("ROUTE-3", "LEASE-12")
def test_a_claim_takes_only_the_types_and_tenants_it_names(hand):
    """v1 and v2 coexist and a run keeps its version; types are compared literally, case counts."""
    v1, v2 = hand.start("shop.order.v1"), hand.start("shop.order.v2")
    hand.start("shop.Order.v1")
    acme = hand.start("shop.order.v1", tenant="acme")
    assert [claim.id for claim in hand.claim(types=("shop.order.v1",), tenants=("default",))] == [v1]
    assert [claim.id for claim in hand.claim(types=("shop.order.v1",), tenants=("acme", "x"))] == [acme]
    assert [claim.id for claim in hand.claim(types=("shop.order.v2", "none.at.v1"))] == [v2]
    assert hand.claim(types=()) == []


@pytest.mark.spec("LEASE-15")
def test_looking_for_work_and_finding_none_writes_nothing(hand):
    """A claim, a tick, a delivery and a renewal that find nothing leave everything as it was."""
    run = hand.start(delay_seconds=60.0)
    before = hand.everything(), hand.snapshot(run)
    assert hand.claim() == []
    assert hand.tick().total == 0
    assert hand.deliver() == 0
    assert hand.renew().held == ()
    assert (hand.everything(), hand.snapshot(run)) == before


@pytest.mark.spec("LEASE-6")
def test_a_worker_takes_few_runs_that_have_crashed(hand):
    """Once the claim holds as many with >= k crashes as it may, one that crashed so often is passed over."""
    twice = [_crashed(hand, 2) for _ in range(2)]
    once = [_crashed(hand, 1) for _ in range(3)]
    fresh = [hand.start() for _ in range(2)]
    taken = {claim.id for claim in hand.claim(crashed=(2, 1))}
    assert taken == {twice[0], once[0], *fresh}
    assert {claim.id for claim in hand.claim()} == {twice[1], *once[1:]}


@pytest.mark.spec("LEASE-6")
def test_beyond_the_list_its_last_number_counts(hand):
    """crashed[c-1] = how many runs that crashed c times or more it would still take; above: the last."""
    runs = [_crashed(hand, 3) for _ in range(3)]
    assert [claim.id for claim in hand.claim(crashed=(2,))] == runs[:2]


@pytest.mark.spec("LEASE-12")
def test_a_run_that_no_live_worker_can_take_is_seen_and_burns_no_attempt(hand):
    """Due runs by type that nobody present can run are in the stats; presence ends after 45 s or by word."""
    run = hand.start()
    hand.start(tenant="acme")
    hand.start(delay_seconds=1.0)
    assert hand.stats().unclaimable == {TYPE: 2}
    hand.run(hand.store.present(Presence(worker="w1", types=(TYPE,), tenants=("acme",), slots=3)))
    assert hand.stats().unclaimable == {TYPE: 1}
    hand.run(hand.store.present(Presence(worker="w2", types=(TYPE, "a.b.v1"))))
    assert hand.stats().unclaimable == {}
    assert [worker.worker for worker in hand.stats().workers] == ["w1", "w2"]
    hand.run(hand.store.absent("w2"))
    assert hand.stats().unclaimable == {TYPE: 1}
    hand.clock.turn(45)
    assert [worker.worker for worker in hand.stats().workers] == ["w1"]
    hand.clock.turn(0.000001)
    assert hand.stats().workers == ()
    assert (hand.get(run).attempt, hand.status(run)) == (0, Status.PENDING)


@pytest.mark.spec("LEASE-12", "PLAN-15")
def test_what_a_worker_says_of_itself_is_shown_as_it_said_it(hand):
    """All of it, and the last word counts."""
    said = Presence(
        worker="w1",
        types=(TYPE,),
        patterns=("shop.%",),
        tenants=("acme",),
        runtime="go",
        slots=3,
        stragglers=1,
        sinks=("mail",),
        lacking={"shop.fulfil.v1": ("A", "B")},
    )
    for presence in (said, Presence(worker="w1", types=())):
        hand.run(hand.store.present(presence))
        assert hand.stats().workers == (msgspec.structs.replace(presence, seen_at=hand.clock.now),)


def test_stats_count_by_status_and_know_the_oldest_due_run(hand):
    """The store at a glance."""
    hand.held()
    due_at = hand.clock.now
    hand.start()
    hand.start(delay_seconds=5.0)
    hand.clock.turn(1)
    stats = hand.stats()
    assert {status: n for status, n in stats.by_status.items() if n} == {"leased": 1, "pending": 2}
    assert (stats.oldest_due_at, stats.now) == (due_at, hand.clock.now)


def test_due_tells_when_a_claim_may_next_find_something(hand):
    """claim_at is the earliest run_at of the pending runs of these types and tenants."""
    assert hand.due().claim_at is None
    later = hand.clock.now + 5_000_000
    hand.start(run_at=later)
    hand.start("other.type.v1")
    hand.start(tenant="acme")
    assert hand.due(tenants=("default",)).claim_at == later
    assert hand.due().claim_at == hand.clock.now
