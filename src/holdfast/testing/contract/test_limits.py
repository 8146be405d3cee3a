"""Limits: how many runs of a type, of a tenant and under a key are leased at once, and how often they are
claimed.
"""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status
from holdfast.records import SECOND, Hold, Limit, moment

from .driver import TYPE, listen
from .limits import claimed, held_back, limit, limits, started, unlimit

OTHER = "other.type.v1"
BOTH = (TYPE, OTHER)


@pytest.mark.spec("LIMIT-1")
@pytest.mark.parametrize("scope", ["type", "tenant", "key"])
def test_no_more_than_the_limit_are_leased_and_the_rest_is_passed_over(driver, scope):
    """This holds for every kind of limit and any number of claims; runs after the held-back ones go on."""
    name = {"type": TYPE, "tenant": "acme", "key": "k"}[scope]
    limit(driver, scope, name, concurrency=2)
    held = started(driver, 3, tenant="acme", limit_key="k")
    free = started(driver, 2, type=OTHER)
    assert claimed(driver, limit=1, types=BOTH) == held[:1]
    assert claimed(driver, types=BOTH) == [held[1], *free]
    assert claimed(driver, types=BOTH) == []
    (why,) = held_back(driver, held[2])
    assert why == Hold(why="concurrency", scope=scope, name=name, rule=name, used=2, allowed=2)


@pytest.mark.spec("LIMIT-1")
def test_a_slot_is_free_when_the_holder_loses_the_run(driver):
    """End, park, retry, release, cancel, pause, delete and expiry free it, and nothing else does."""
    limit(driver, concurrency=1)
    ways = {
        "complete": driver.complete,
        "fail": driver.fail,
        "park": lambda claim: driver.park(claim, listen()),
        "retry": driver.retry,
        "cancel": lambda claim: driver.cancel(claim.id),
        "delete": lambda claim: driver.delete(claim.id),
        "pause": lambda claim: (driver.pause(claim.id), driver.checkpoint(claim)),
    }
    for way, let_go in ways.items():
        (run,) = started(driver, 1, priority=0)
        started(driver, 1)
        claim = driver.take(run, limit=100)
        assert claimed(driver) == [], way
        driver.checkpoint(claim)
        assert claimed(driver) == [], way
        let_go(claim)
        driver.complete(driver.take())
    assert claimed(driver) == []


@pytest.mark.spec("LIMIT-1", "LEASE-6")
def test_recovery_never_exceeds_a_limit(driver):
    """An expired lease keeps its slot until a keeper takes the run back; then one run goes on."""
    limit(driver, "key", "k", concurrency=1)
    first, second = started(driver, 2, limit_key="k")
    zombie = driver.take(first)
    driver.clock.turn(31)
    assert claimed(driver, worker="w2") == []
    driver.tick()
    (taken,) = claimed(driver, worker="w2")
    assert driver.complete(zombie).answer == "lost"
    assert claimed(driver, worker="w3") == []
    assert [run.id for run in map(driver.get, (first, second)) if run.status is Status.LEASED] == [taken]


@pytest.mark.spec("LIMIT-1")
def test_a_lowered_limit_waits_and_a_raised_or_removed_one_lets_runs_go(driver):
    """Leased runs stay; no further run is claimed until the number is below the limit."""
    started(driver, 5)
    first, *_ = driver.claim(limit=3)
    limit(driver, concurrency=2)
    assert claimed(driver) == []
    driver.complete(first)
    assert claimed(driver) == []
    limit(driver, concurrency=3)
    assert len(claimed(driver)) == 1
    assert unlimit(driver)
    assert len(claimed(driver)) == 1
    assert not unlimit(driver)


@pytest.mark.spec("LIMIT-1")
def test_a_limit_of_zero_holds_all_back(driver):
    """Runs are held back until the limit is removed."""
    limit(driver, "tenant", "default", concurrency=0)
    run = driver.start()
    assert claimed(driver) == []
    unlimit(driver, "tenant", "default")
    driver.take(run)


@pytest.mark.spec("LIMIT-1")
def test_all_limits_that_concern_a_run_hold(driver):
    """Type, tenant and key are counted separately; the narrowest limit decides."""
    limit(driver, concurrency=4)
    limit(driver, "tenant", "acme", concurrency=2)
    limit(driver, "key", "k", concurrency=1)
    started(driver, 2, tenant="acme", limit_key="k")
    started(driver, 2, tenant="acme", limit_key="l")
    started(driver, 5)
    taken = driver.claim()
    shown = [(driver.get(one.id).tenant, driver.get(one.id).limit_key) for one in taken]
    assert shown == [("acme", "k"), ("acme", "l"), ("default", None), ("default", None)]


@pytest.mark.spec("LIMIT-1", "LIMIT-2")
def test_a_name_that_ends_in_a_percent_sign_limits_each_name_with_that_prefix_on_its_own(driver):
    """The exact name comes first, then the longest prefix; a field that one leaves open comes from the
    next.
    """
    limit(driver, "key", "api.%", concurrency=1)
    limit(driver, "key", "api.big.%", concurrency=2)
    limit(driver, "key", "api.big.one", concurrency=3, rate=(9, 60.0))
    limit(driver, "key", "%", rate=(4, 60.0))
    keys = ("api.a", "api.b", "api.big.two", "api.big.one", "web")
    for key in keys:
        started(driver, 5, limit_key=key)
    taken = [driver.get(run).limit_key for run in claimed(driver)]
    assert {key: taken.count(key) for key in keys} == {
        "api.a": 1, "api.b": 1, "api.big.two": 2, "api.big.one": 3, "web": 4,
    }  # fmt: skip
    run = driver.start(limit_key="api.c")
    driver.take(run)
    (why,) = held_back(driver, driver.start(limit_key="api.c"))
    assert (why.name, why.rule, why.used, why.allowed) == ("api.c", "api.%", 1, 1)


@pytest.mark.spec("LIMIT-1", "LEASE-1")
def test_the_order_among_claimable_runs_stays(driver):
    """The order is priority, run_at, id, also when very many runs before them are held back."""
    limit(driver, "key", "full", concurrency=0)
    limit(driver, "tenant", "crowded", concurrency=0)
    started(driver, 150, limit_key="full")
    started(driver, 150, tenant="crowded")
    last = started(driver, 2, priority=300, limit_key="l")
    middle = [driver.start(limit_key=key, tenant=tenant) for key in (None, "l", "m") for tenant in ("a", "b")]
    urgent = driver.start(priority=5, tenant="b", limit_key="m")
    order = [urgent, *middle, *last]
    assert claimed(driver, limit=3) == order[:3]
    assert claimed(driver, limit=3, tenants=("default", "a", "b")) == order[3:6]
    assert claimed(driver) == order[6:]


@pytest.mark.spec("LIMIT-2")
def test_no_span_of_one_period_sees_more_claims_than_the_rate(driver):
    """A claim at t counts until t + period: the period begins with each claim, not with the minute."""
    limit(driver, rate=(3, 10.0))
    started(driver, 10)
    assert len(claimed(driver, limit=2)) == 2
    driver.clock.turn(6)
    assert len(claimed(driver)) == 1
    free_at = driver.clock.now + 4 * SECOND
    assert driver.due().claim_at == free_at
    driver.clock.turn(3.999999)
    assert claimed(driver) == []
    driver.clock.turn(0.000001)
    assert len(claimed(driver)) == 2
    assert driver.due().claim_at == free_at + 6 * SECOND
    driver.clock.turn(6)
    assert len(claimed(driver)) == 1


@pytest.mark.spec("LIMIT-2")
@pytest.mark.parametrize("scope", ["type", "tenant", "key"])
def test_a_claim_counts_once_it_is_made_whatever_becomes_of_the_run(driver, scope):
    """It counts also when the run has ended, was given back, or its worker died."""
    name = {"type": TYPE, "tenant": "default", "key": "k"}[scope]
    limit(driver, scope, name, rate=(2, 60.0))
    first, second, third = started(driver, 3, limit_key="k")
    driver.complete(driver.take(first, limit=1))
    driver.release(driver.take(second, limit=1))
    assert claimed(driver) == []
    (why,) = held_back(driver, third)
    until = moment(driver.clock.now + 60 * SECOND)
    assert why == Hold(why="rate", scope=scope, name=name, rule=name, used=2, allowed=2, until=until)
    driver.clock.turn(60)
    assert held_back(driver, third) == ()
    assert claimed(driver) == [second, third]


@pytest.mark.spec("LIMIT-2")
def test_a_new_rate_forgets_claims_and_the_same_rate_does_not(driver):
    """Setting the same limit again allows no second burst."""
    limit(driver, rate=(2, 60.0))
    started(driver, 9)
    assert len(claimed(driver)) == 2
    limit(driver, rate=(2, 60.0))
    limit(driver, rate=(2, 60.0), concurrency=100)
    assert claimed(driver) == []
    limit(driver, rate=(3, 60.0))
    assert len(claimed(driver)) == 3
    assert claimed(driver) == []


@pytest.mark.spec("LIMIT-2")
def test_a_change_for_others_does_not_forget_what_a_rate_has_counted(driver):
    """A limit of a prefix does not affect a name that has its own rate."""
    limit(driver, "key", "api.own", rate=(2, 60.0))
    started(driver, 9, limit_key="api.own")
    started(driver, 9, limit_key="api.other")
    assert len(claimed(driver, limit=2)) == 2
    for change in ((100, 60.0), (3, 60.0), None):
        limit(driver, "key", "api.%", rate=change, concurrency=0)
        assert claimed(driver) == [], change
    limit(driver, "key", "%", rate=(1, 60.0))
    unlimit(driver, "key", "api.%")
    assert [driver.get(run).limit_key for run in claimed(driver)] == ["api.other"]
    limit(driver, "key", "api.%", rate=(1, 60.0))
    assert claimed(driver) == []  # by another limit, but the same rate
    limit(driver, "key", "api.%", rate=(2, 60.0))
    assert [driver.get(run).limit_key for run in claimed(driver)] == ["api.other"] * 2
    unlimit(driver, "key", "api.own")
    assert [driver.get(run).limit_key for run in claimed(driver)] == []


@pytest.mark.spec("LIMIT-2")
def test_a_clock_that_is_turned_back_does_not_loosen_a_rate_and_one_that_ran_away_does_not_hold_it(driver):
    """Claims a moment ahead of the clock still count; claims in another year do not."""
    limit(driver, rate=(1, 10.0))
    started(driver, 5, run_at=0)
    assert len(claimed(driver)) == 1
    driver.clock.turn(-5)
    assert claimed(driver) == []
    driver.clock.turn(15)
    assert len(claimed(driver)) == 1
    driver.clock.turn(400 * 86400)
    assert len(claimed(driver)) == 1
    driver.clock.turn(-400 * 86400)
    assert len(claimed(driver)) == 1
    assert claimed(driver) == []


@pytest.mark.spec("LIMIT-2")
def test_a_paused_key_is_not_claimed_before_its_time(driver):
    """`due` returns the time; the later of two pauses counts."""
    pause, resume = driver.store.pause_key, driver.store.resume_key
    run, other = driver.start(limit_key="api"), driver.start(limit_key="web")
    until = driver.clock.now + 30 * SECOND
    made = driver.run(pause("api", delay_seconds=30.0))
    assert made == Limit(scope="key", name="api", paused_until=moment(until))
    driver.run(pause("api", driver.clock.now + 10 * SECOND))
    assert claimed(driver) == [other]
    assert driver.due().claim_at == until
    assert held_back(driver, run) == (
        Hold(why="paused", scope="key", name="api", rule="api", until=moment(until)),
    )
    assert limits(driver) == [made]
    driver.clock.turn(29.999999)
    assert claimed(driver) == []
    driver.clock.turn(0.000001)
    assert limits(driver) == []
    assert claimed(driver) == [run]
    second = driver.start(limit_key="api")
    driver.run(pause("api", delay_seconds=30.0))
    assert (driver.run(resume("api")), driver.run(resume("api"))) == (True, False)
    assert claimed(driver) == [second]


@pytest.mark.spec("LIMIT-2")
def test_a_pause_leaves_the_limits_of_its_key_as_they_are(driver):
    """This holds for limits of the key and of its prefix; limit keeps the pause, unlimit ends it."""
    limit(driver, "key", "api.%", concurrency=1)
    limit(driver, "key", "api.b", concurrency=2)
    driver.run(driver.store.pause_key("api.a", delay_seconds=30.0))
    driver.run(driver.store.pause_key("api.b", delay_seconds=30.0))
    for key in ("api.a", "api.b"):
        started(driver, 4, limit_key=key)
    assert claimed(driver) == []
    limit(driver, "key", "api.b", concurrency=3)
    assert claimed(driver) == []
    unlimit(driver, "key", "api.b")
    assert len(claimed(driver)) == 1
    driver.clock.turn(30)
    assert len(claimed(driver)) == 1
    driver.run(driver.store.pause_key("api.%", delay_seconds=30.0))
    started(driver, 1, limit_key="api.c")
    assert claimed(driver) == []


def test_limits_are_shown_by_scope_and_name(driver):
    """They are shown as given; a limit without any value is removed."""
    made = limit(driver, concurrency=3, rate=(10, 1.5))
    heavy = limit(driver, "tenant", "acme", weight=2.5)
    each = limit(driver, "key", "api.%", concurrency=1)
    assert limits(driver) == [each, heavy, made]
    assert made == Limit(scope="type", name=TYPE, concurrency=3, rate=10, period_seconds=1.5)
    assert limit(driver) == Limit(scope="type", name=TYPE)
    assert limits(driver) == [each, heavy]


@pytest.mark.spec("LEASE-15", "LIMIT-1")
def test_a_claim_that_finds_only_held_back_runs_writes_nothing(driver):
    """Nothing changes, and no claim is due."""
    limit(driver, "key", "k", concurrency=1, rate=(5, 60.0))
    limit(driver, "tenant", "%", weight=1.0)
    first, second = started(driver, 2, limit_key="k")
    claim = driver.take(first)
    before = driver.everything(), driver.snapshot(second), limits(driver)
    assert claimed(driver) == []
    assert driver.due().claim_at is None
    assert (driver.everything(), driver.snapshot(second), limits(driver)) == before
    driver.complete(claim)
    assert driver.due().claim_at is not None
    driver.take(second)


@pytest.mark.spec("LIMIT-1")
def test_runs_that_are_not_held_back_are_due_as_before(driver):
    """The first claimable run counts, by type, tenant and key."""
    limit(driver, "key", "full", concurrency=0)
    limit(driver, "tenant", "full", concurrency=0)
    limit(driver, "type", OTHER, concurrency=0)
    now = driver.clock.now
    driver.start(limit_key="full")
    driver.start(tenant="full")
    driver.start(OTHER)
    assert driver.due(BOTH).claim_at is None
    driver.start(limit_key="free", run_at=now + 9 * SECOND)
    driver.start(tenant="acme", run_at=now + 7 * SECOND)
    assert driver.due(BOTH).claim_at == now + 7 * SECOND
    assert driver.due(BOTH, tenants=("default",)).claim_at == now + 9 * SECOND
    assert driver.due(BOTH, tenants=("full",)).claim_at is None


@pytest.mark.spec("LIMIT-1", "LEASE-6")
def test_limits_and_the_quota_of_crashed_runs_hold_together(driver):
    """A run that is passed over for its crashes uses no slot of a limit."""
    limit(driver, concurrency=2)
    crashed = started(driver, 2)
    driver.claim(limit=2)
    driver.clock.turn(31)
    driver.tick()
    driver.clock.turn(60)
    fresh = started(driver, 2)
    assert claimed(driver, crashed=(1,)) == [crashed[0], fresh[0]]
