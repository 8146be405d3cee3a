"""claim: which runs a worker takes, in which order, and how many."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.lifecycle import Status
from holdfast.records import Presence, moment

from .driver import TYPE, done, sleep


def _crashed(driver, times):
    """Return a run whose lease expired this number of times, due again now."""
    run = driver.id()
    driver.start(id=run, tenant=str(run))
    for _ in range(times):
        driver.take(run, tenants=(str(run),))
        driver.clock.turn(30.000001)
        driver.tick()
        driver.clock.turn(60)
    return run


@pytest.mark.spec("LEASE-1")
def test_claims_go_by_priority_then_time_then_id(driver):
    """The lower priority number comes first, then run_at, then id; at most `limit` runs are taken."""
    now = driver.clock.now
    last = driver.start(priority=200, run_at=now - 9)
    second, third = driver.start(run_at=now - 1), driver.start(run_at=now - 1)
    first = driver.start(run_at=now - 2)
    urgent = driver.start(priority=0)
    order = [urgent, first, second, third, last]
    assert [claim.id for claim in driver.claim(limit=2)] == order[:2]
    assert [claim.id for claim in driver.claim(limit=100)] == order[2:]


@pytest.mark.spec("LEASE-1", "TRAIL-1")
def test_a_claim_sets_the_lease_in_one_commit_and_returns_all_that_is_needed(driver):
    """It sets status, worker, lease_until, attempt + 1 and fence + 1, and returns the run with its steps."""
    before = driver.get(driver.start(params="7", max_attempts=4, timeout_seconds=99.0))
    claim = driver.take(before.id, worker="alice")
    seen = driver.get(claim.id)
    until = driver.clock.now + 30_000_000
    assert (seen.status, seen.leased_by, seen.lease_until) == (Status.LEASED, "alice", moment(until))
    assert (seen.attempt, seen.fence) == (claim.attempt, claim.fence) == (1, before.fence + 1)
    assert (claim.lease_until, claim.params, claim.max_attempts) == (until, "7", 4)
    assert claim.timeout_at == claim.created_at + 99_000_000
    assert driver.last(claim.id, "leased") == {"worker": "alice", "attempt": 1, "fence": claim.fence}


@pytest.mark.spec("OPS-2")
def test_a_claim_says_when_the_run_became_due(driver):
    """It is the run_at of the start."""
    now = driver.clock.now
    early, later = driver.start(run_at=now - 7_000_000), driver.start(delay_seconds=5)
    driver.clock.turn(8)
    assert {one.id: one.run_at for one in driver.claim()} == {early: now - 7_000_000, later: now + 5_000_000}


@pytest.mark.spec("OPS-2")
def test_a_claim_after_a_wait_says_when_the_wait_was_settled(driver):
    """Also under limits, which claim by another way."""
    driver.run(driver.store.limit("type", TYPE, concurrency=10))
    sleeper = driver.held()
    driver.park(sleeper, sleep("nap", 60))
    driver.clock.turn(61)
    driver.tick()
    woken = driver.clock.now
    driver.clock.turn(3)
    assert driver.take(sleeper.id).run_at == woken


def test_a_claim_brings_the_labels(driver):
    """This holds for code and plans; a run without labels has none."""
    plan = driver.plan("A", labels='{"n":"1"}')
    code, bare = driver.start("shop.code.v1", labels='{"n":"2"}', budget=5), driver.start("shop.code.v1")
    claims = {claim.id: claim.labels for claim in driver.claim(types=(TYPE, "shop.code.v1"))}
    assert claims == {plan: {"n": "1"}, code: {"n": "2"}, bare: {}}


@pytest.mark.spec("LEASE-1")
def test_a_later_claim_brings_every_step_by_seq_and_the_number_of_logs(driver):
    """A claim returns the run with all its steps, in the order in which their outcomes became known."""
    from holdfast.records import TrailWrite

    claim = driver.held()
    rows = ('{"message":"code","log_no":1}', '{"message":"code","log_no":2}', '{"message":"hi","step":"b"}')
    driver.checkpoint(claim, done("b", cost=3), trail=tuple(TrailWrite("log", row) for row in rows))
    driver.checkpoint(claim, done("a", output='{"x":[]}'))
    driver.release(claim)
    again = driver.take(claim.id)
    assert [(step.seq, step.key, step.output, step.cost) for step in again.steps] == [
        (1, "b", "1", 3),
        (2, "a", '{"x":[]}', 0),
    ]
    assert again.steps == tuple(driver.steps(claim.id))
    assert again.logs == 2
    assert driver.last(claim.id, "log") == {"message": "hi", "step": "b"}


@pytest.mark.spec("LEASE-2")
def test_claimers_get_disjoint_sets(driver):
    """A leased run is never claimed, neither by another worker nor by its holder."""
    runs = [driver.start() for _ in range(5)]
    first, second = driver.claim(limit=3, worker="a"), driver.claim(limit=3, worker="b")
    assert [claim.id for claim in first + second] == runs
    assert driver.claim(worker="a") == []


@pytest.mark.spec("ROUTE-3", "LEASE-12")
def test_a_claim_takes_only_the_types_and_tenants_it_names(driver):
    """Types are compared literally, with case; v1 and v2 coexist, and a run keeps its version."""
    v1, v2 = driver.start("shop.order.v1"), driver.start("shop.order.v2")
    driver.start("shop.Order.v1")
    acme = driver.start("shop.order.v1", tenant="acme")
    assert [claim.id for claim in driver.claim(types=("shop.order.v1",), tenants=("default",))] == [v1]
    assert [claim.id for claim in driver.claim(types=("shop.order.v1",), tenants=("acme", "x"))] == [acme]
    assert [claim.id for claim in driver.claim(types=("shop.order.v2", "none.at.v1"))] == [v2]
    assert driver.claim(types=()) == []


@pytest.mark.spec("LEASE-15")
def test_looking_for_work_and_finding_none_writes_nothing(driver):
    """A claim, a tick, a delivery and a renewal that find nothing leave everything as it was."""
    run = driver.start(delay_seconds=60.0)
    before = driver.everything(), driver.snapshot(run)
    assert driver.claim() == []
    assert driver.tick().total == 0
    assert driver.deliver() == 0
    assert driver.renew().held == ()
    assert (driver.everything(), driver.snapshot(run)) == before


@pytest.mark.spec("LEASE-6")
def test_a_worker_takes_few_runs_that_have_crashed(driver):
    """A claim passes over crashed runs beyond the number that it may take."""
    twice = [_crashed(driver, 2) for _ in range(2)]
    once = [_crashed(driver, 1) for _ in range(3)]
    fresh = [driver.start() for _ in range(2)]
    taken = {claim.id for claim in driver.claim(crashed=(2, 1))}
    assert taken == {twice[0], once[0], *fresh}
    assert {claim.id for claim in driver.claim()} == {twice[1], *once[1:]}


@pytest.mark.spec("LEASE-6")
def test_beyond_the_list_its_last_number_counts(driver):
    """crashed[c-1] is the number of runs with c or more crashes; beyond the list its last number counts."""
    runs = [_crashed(driver, 3) for _ in range(3)]
    assert [claim.id for claim in driver.claim(crashed=(2,))] == runs[:2]


@pytest.mark.spec("LEASE-12")
def test_a_run_that_no_live_worker_can_take_is_seen_and_burns_no_attempt(driver):
    """The stats count due runs by type that no present worker can run; presence ends after 45 s or by a
    goodbye.
    """
    run = driver.start()
    driver.start(tenant="acme")
    driver.start(delay_seconds=1.0)
    assert driver.stats().unclaimable == {TYPE: 2}
    driver.run(driver.store.present(Presence(worker="w1", types=(TYPE,), tenants=("acme",), slots=3)))
    assert driver.stats().unclaimable == {TYPE: 1}
    driver.run(driver.store.present(Presence(worker="w2", types=(TYPE, "a.b.v1"))))
    assert driver.stats().unclaimable == {}
    assert [worker.worker for worker in driver.stats().workers] == ["w1", "w2"]
    driver.run(driver.store.absent("w2"))
    assert driver.stats().unclaimable == {TYPE: 1}
    driver.clock.turn(45)
    assert [worker.worker for worker in driver.stats().workers] == ["w1"]
    driver.clock.turn(0.000001)
    assert driver.stats().workers == ()
    assert (driver.get(run).attempt, driver.status(run)) == (0, Status.PENDING)


@pytest.mark.spec("LEASE-12", "PLAN-15")
def test_the_description_of_a_worker_is_shown_as_given(driver):
    """All fields are kept, and the last description counts."""
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
        library="holdfast-go 0.1.0 (go)",
    )
    for presence in (said, Presence(worker="w1", types=())):
        driver.run(driver.store.present(presence))
        assert driver.stats().workers == (msgspec.structs.replace(presence, seen_at=driver.clock.now),)


def test_stats_count_by_status_and_know_the_oldest_due_run(driver):
    """The stats describe the whole store."""
    driver.held()
    due_at = driver.clock.now
    driver.start()
    driver.start(delay_seconds=5.0)
    driver.clock.turn(1)
    stats = driver.stats()
    assert {status: n for status, n in stats.by_status.items() if n} == {"leased": 1, "pending": 2}
    assert (stats.oldest_due_at, stats.now) == (due_at, driver.clock.now)


def test_due_tells_when_a_claim_may_next_find_something(driver):
    """claim_at is the earliest run_at of the pending runs of these types and tenants."""
    assert driver.due().claim_at is None
    later = driver.clock.now + 5_000_000
    driver.start(run_at=later)
    driver.start("other.type.v1")
    driver.start(tenant="acme")
    assert driver.due(tenants=("default",)).claim_at == later
    assert driver.due().claim_at == driver.clock.now
