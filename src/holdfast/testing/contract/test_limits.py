"""Limits: how much of a type, of a tenant and under a key may be held at once, and claimed how often."""

from __future__ import annotations

import pytest

from holdfast.lifecycle import Status
from holdfast.records import SECOND, Hold, Limit, moment

from .hand import TYPE, listen
from .limiting import claimed, held_back, limit, limits, started, unlimit

OTHER = "other.type.v1"
BOTH = (TYPE, OTHER)


@pytest.mark.spec("LIMIT-1")
@pytest.mark.parametrize("scope", ["type", "tenant", "key"])
def test_no_more_than_the_limit_are_leased_and_the_rest_is_passed_over(hand, scope):
    """Whatever is limited, and however many claims it takes; others behind the held back ones go on."""
    name = {"type": TYPE, "tenant": "acme", "key": "k"}[scope]
    limit(hand, scope, name, concurrency=2)
    held = started(hand, 3, tenant="acme", limit_key="k")
    free = started(hand, 2, type=OTHER)
    assert claimed(hand, limit=1, types=BOTH) == held[:1]
    assert claimed(hand, types=BOTH) == [held[1], *free]
    assert claimed(hand, types=BOTH) == []
    (why,) = held_back(hand, held[2])
    assert why == Hold(why="concurrency", scope=scope, name=name, rule=name, used=2, allowed=2)


@pytest.mark.spec("LIMIT-1")
def test_a_place_is_free_with_the_fence_however_the_holder_lost_it(hand):
    """End, park, retry, release, cancel, pause, delete and expiry all free it, and nothing else does."""
    limit(hand, concurrency=1)
    ways = {
        "complete": hand.complete,
        "fail": hand.fail,
        "park": lambda claim: hand.park(claim, listen()),
        "retry": hand.retry,
        "cancel": lambda claim: hand.cancel(claim.id),
        "delete": lambda claim: hand.delete(claim.id),
        "pause": lambda claim: (hand.pause(claim.id), hand.checkpoint(claim)),
    }
    for way, let_go in ways.items():
        (run,) = started(hand, 1, priority=0)
        started(hand, 1)
        claim = hand.take(run, limit=100)
        assert claimed(hand) == [], way
        hand.checkpoint(claim)
        assert claimed(hand) == [], way
        let_go(claim)
        hand.complete(hand.take())
    assert claimed(hand) == []


@pytest.mark.spec("LIMIT-1", "LEASE-6")
def test_recovery_never_exceeds_a_limit(hand):
    """A lease that has run out keeps its place until a keeper takes the run back; then one goes on."""
    limit(hand, "key", "k", concurrency=1)
    first, second = started(hand, 2, limit_key="k")
    zombie = hand.take(first)
    hand.clock.turn(31)
    assert claimed(hand, worker="w2") == []
    hand.tick()
    (taken,) = claimed(hand, worker="w2")
    assert hand.complete(zombie).answer == "lost"
    assert claimed(hand, worker="w3") == []
    assert [run.id for run in map(hand.get, (first, second)) if run.status is Status.LEASED] == [taken]


@pytest.mark.spec("LIMIT-1")
def test_a_limit_that_is_lowered_waits_and_one_that_is_raised_or_removed_lets_go(hand):
    """What is leased is left alone; nothing more is claimed until there is room."""
    started(hand, 5)
    first, *_ = hand.claim(limit=3)
    limit(hand, concurrency=2)
    assert claimed(hand) == []
    hand.complete(first)
    assert claimed(hand) == []
    limit(hand, concurrency=3)
    assert len(claimed(hand)) == 1
    assert unlimit(hand)
    assert len(claimed(hand)) == 1
    assert not unlimit(hand)


@pytest.mark.spec("LIMIT-1")
def test_a_limit_of_zero_holds_all_back(hand):
    """Until it is removed."""
    limit(hand, "tenant", "default", concurrency=0)
    run = hand.start()
    assert claimed(hand) == []
    unlimit(hand, "tenant", "default")
    hand.take(run)


@pytest.mark.spec("LIMIT-1")
def test_all_limits_that_concern_a_run_hold(hand):
    """Type, tenant and key: the narrowest counts, and each is counted for itself."""
    limit(hand, concurrency=4)
    limit(hand, "tenant", "acme", concurrency=2)
    limit(hand, "key", "k", concurrency=1)
    started(hand, 2, tenant="acme", limit_key="k")
    started(hand, 2, tenant="acme", limit_key="l")
    started(hand, 5)
    taken = hand.claim()
    shown = [(hand.get(one.id).tenant, hand.get(one.id).limit_key) for one in taken]
    assert shown == [("acme", "k"), ("acme", "l"), ("default", None), ("default", None)]


@pytest.mark.spec("LIMIT-1", "LIMIT-2")
def test_a_name_that_ends_in_a_percent_sign_limits_each_name_with_that_prefix_on_its_own(hand):
    """The exact name comes first, then the longest prefix; what one leaves open the next may say."""
    limit(hand, "key", "api.%", concurrency=1)
    limit(hand, "key", "api.big.%", concurrency=2)
    limit(hand, "key", "api.big.one", concurrency=3, rate=(9, 60.0))
    limit(hand, "key", "%", rate=(4, 60.0))
    keys = ("api.a", "api.b", "api.big.two", "api.big.one", "web")
    for key in keys:
        started(hand, 5, limit_key=key)
    taken = [hand.get(run).limit_key for run in claimed(hand)]
    assert {key: taken.count(key) for key in keys} == {
        "api.a": 1, "api.b": 1, "api.big.two": 2, "api.big.one": 3, "web": 4,
    }  # fmt: skip
    run = hand.start(limit_key="api.c")
    hand.take(run)
    (why,) = held_back(hand, hand.start(limit_key="api.c"))
    assert (why.name, why.rule, why.used, why.allowed) == ("api.c", "api.%", 1, 1)


@pytest.mark.spec("LIMIT-1", "LEASE-1")
def test_the_order_among_those_that_fit_is_as_ever(hand):
    """Priority, then run_at, then id; also when very many are held back before them."""
    limit(hand, "key", "full", concurrency=0)
    limit(hand, "tenant", "crowded", concurrency=0)
    started(hand, 150, limit_key="full")
    started(hand, 150, tenant="crowded")
    last = started(hand, 2, priority=300, limit_key="l")
    middle = [hand.start(limit_key=key, tenant=tenant) for key in (None, "l", "m") for tenant in ("a", "b")]
    urgent = hand.start(priority=5, tenant="b", limit_key="m")
    order = [urgent, *middle, *last]
    assert claimed(hand, limit=3) == order[:3]
    assert claimed(hand, limit=3, tenants=("default", "a", "b")) == order[3:6]
    assert claimed(hand) == order[6:]


@pytest.mark.spec("LIMIT-2")
def test_no_span_of_one_period_sees_more_claims_than_the_rate(hand):
    """Counted from each claim on, not by the minute: a claim at t counts until t + period, and no longer."""
    limit(hand, rate=(3, 10.0))
    started(hand, 10)
    assert len(claimed(hand, limit=2)) == 2
    hand.clock.turn(6)
    assert len(claimed(hand)) == 1
    free_at = hand.clock.now + 4 * SECOND
    assert hand.due().claim_at == free_at
    hand.clock.turn(3.999999)
    assert claimed(hand) == []
    hand.clock.turn(0.000001)
    assert len(claimed(hand)) == 2
    assert hand.due().claim_at == free_at + 6 * SECOND
    hand.clock.turn(6)
    assert len(claimed(hand)) == 1


@pytest.mark.spec("LIMIT-2")
@pytest.mark.parametrize("scope", ["type", "tenant", "key"])
def test_a_claim_counts_once_it_is_made_whatever_becomes_of_the_run(hand, scope):
    """Also when the run has ended, was given back or its worker died."""
    name = {"type": TYPE, "tenant": "default", "key": "k"}[scope]
    limit(hand, scope, name, rate=(2, 60.0))
    first, second, third = started(hand, 3, limit_key="k")
    hand.complete(hand.take(first, limit=1))
    hand.release(hand.take(second, limit=1))
    assert claimed(hand) == []
    (why,) = held_back(hand, third)
    until = moment(hand.clock.now + 60 * SECOND)
    assert why == Hold(why="rate", scope=scope, name=name, rule=name, used=2, allowed=2, until=until)
    hand.clock.turn(60)
    assert held_back(hand, third) == ()
    assert claimed(hand) == [second, third]


@pytest.mark.spec("LIMIT-2")
def test_another_rate_forgets_what_was_claimed_and_the_same_again_does_not(hand):
    """Setting the same limit twice gives nobody a second burst."""
    limit(hand, rate=(2, 60.0))
    started(hand, 9)
    assert len(claimed(hand)) == 2
    limit(hand, rate=(2, 60.0))
    limit(hand, rate=(2, 60.0), concurrency=100)
    assert claimed(hand) == []
    limit(hand, rate=(3, 60.0))
    assert len(claimed(hand)) == 3
    assert claimed(hand) == []


@pytest.mark.spec("LIMIT-2")
def test_a_change_for_others_does_not_forget_what_a_rate_has_counted(hand):
    """A limit of a prefix, set, changed or removed, leaves alone whoever has a rate of his own."""
    limit(hand, "key", "api.own", rate=(2, 60.0))
    started(hand, 9, limit_key="api.own")
    started(hand, 9, limit_key="api.other")
    assert len(claimed(hand, limit=2)) == 2
    for change in ((100, 60.0), (3, 60.0), None):
        limit(hand, "key", "api.%", rate=change, concurrency=0)
        assert claimed(hand) == [], change
    limit(hand, "key", "%", rate=(1, 60.0))
    unlimit(hand, "key", "api.%")
    assert [hand.get(run).limit_key for run in claimed(hand)] == ["api.other"]
    limit(hand, "key", "api.%", rate=(1, 60.0))
    assert claimed(hand) == []  # by another limit, but the same rate
    limit(hand, "key", "api.%", rate=(2, 60.0))
    assert [hand.get(run).limit_key for run in claimed(hand)] == ["api.other"] * 2
    unlimit(hand, "key", "api.own")
    assert [hand.get(run).limit_key for run in claimed(hand)] == []


@pytest.mark.spec("LIMIT-2")
def test_a_clock_that_is_turned_back_does_not_loosen_a_rate_and_one_that_ran_away_does_not_hold_it(hand):
    """What was claimed a moment ahead still counts; what was claimed in another year does not."""
    limit(hand, rate=(1, 10.0))
    started(hand, 5, run_at=0)
    assert len(claimed(hand)) == 1
    hand.clock.turn(-5)
    assert claimed(hand) == []
    hand.clock.turn(15)
    assert len(claimed(hand)) == 1
    hand.clock.turn(400 * 86400)
    assert len(claimed(hand)) == 1
    hand.clock.turn(-400 * 86400)
    assert len(claimed(hand)) == 1
    assert claimed(hand) == []


@pytest.mark.spec("LIMIT-2")
def test_a_paused_key_is_not_claimed_before_its_time(hand):
    """The time is told to whoever asks when to come again; the later of two pauses counts."""
    pause, resume = hand.store.pause_key, hand.store.resume_key
    run, other = hand.start(limit_key="api"), hand.start(limit_key="web")
    until = hand.clock.now + 30 * SECOND
    made = hand.run(pause("api", delay_seconds=30.0))
    assert made == Limit(scope="key", name="api", paused_until=moment(until))
    hand.run(pause("api", hand.clock.now + 10 * SECOND))
    assert claimed(hand) == [other]
    assert hand.due().claim_at == until
    assert held_back(hand, run) == (
        Hold(why="paused", scope="key", name="api", rule="api", until=moment(until)),
    )
    assert limits(hand) == [made]
    hand.clock.turn(29.999999)
    assert claimed(hand) == []
    hand.clock.turn(0.000001)
    assert limits(hand) == []
    assert claimed(hand) == [run]
    second = hand.start(limit_key="api")
    hand.run(pause("api", delay_seconds=30.0))
    assert (hand.run(resume("api")), hand.run(resume("api"))) == (True, False)
    assert claimed(hand) == [second]


@pytest.mark.spec("LIMIT-2")
def test_a_pause_leaves_the_limits_of_its_key_as_they_are(hand):
    """Those of the key itself and those of its prefix; limit keeps the pause, unlimit ends it."""
    limit(hand, "key", "api.%", concurrency=1)
    limit(hand, "key", "api.b", concurrency=2)
    hand.run(hand.store.pause_key("api.a", delay_seconds=30.0))
    hand.run(hand.store.pause_key("api.b", delay_seconds=30.0))
    for key in ("api.a", "api.b"):
        started(hand, 4, limit_key=key)
    assert claimed(hand) == []
    limit(hand, "key", "api.b", concurrency=3)
    assert claimed(hand) == []
    unlimit(hand, "key", "api.b")
    assert len(claimed(hand)) == 1
    hand.clock.turn(30)
    assert len(claimed(hand)) == 1
    hand.run(hand.store.pause_key("api.%", delay_seconds=30.0))
    started(hand, 1, limit_key="api.c")
    assert claimed(hand) == []


def test_limits_are_shown_by_scope_and_name(hand):
    """As they were given; nothing given removes one."""
    made = limit(hand, concurrency=3, rate=(10, 1.5))
    heavy = limit(hand, "tenant", "acme", weight=2.5)
    each = limit(hand, "key", "api.%", concurrency=1)
    assert limits(hand) == [each, heavy, made]
    assert made == Limit(scope="type", name=TYPE, concurrency=3, rate=10, period_seconds=1.5)
    assert limit(hand) == Limit(scope="type", name=TYPE)
    assert limits(hand) == [each, heavy]


@pytest.mark.spec("LEASE-15", "LIMIT-1")
def test_looking_for_what_is_held_back_writes_nothing_and_is_not_due(hand):
    """A claim that finds full limits only leaves everything as it was, and nothing is in sight."""
    limit(hand, "key", "k", concurrency=1, rate=(5, 60.0))
    limit(hand, "tenant", "%", weight=1.0)
    first, second = started(hand, 2, limit_key="k")
    claim = hand.take(first)
    before = hand.everything(), hand.snapshot(second), limits(hand)
    assert claimed(hand) == []
    assert hand.due().claim_at is None
    assert (hand.everything(), hand.snapshot(second), limits(hand)) == before
    hand.complete(claim)
    assert hand.due().claim_at is not None
    hand.take(second)


@pytest.mark.spec("LIMIT-1")
def test_what_is_not_held_back_is_due_as_ever(hand):
    """Of several the first that may be taken, by type, tenant and key."""
    limit(hand, "key", "full", concurrency=0)
    limit(hand, "tenant", "full", concurrency=0)
    limit(hand, "type", OTHER, concurrency=0)
    now = hand.clock.now
    hand.start(limit_key="full")
    hand.start(tenant="full")
    hand.start(OTHER)
    assert hand.due(BOTH).claim_at is None
    hand.start(limit_key="free", run_at=now + 9 * SECOND)
    hand.start(tenant="acme", run_at=now + 7 * SECOND)
    assert hand.due(BOTH).claim_at == now + 7 * SECOND
    assert hand.due(BOTH, tenants=("default",)).claim_at == now + 9 * SECOND
    assert hand.due(BOTH, tenants=("full",)).claim_at is None


@pytest.mark.spec("LIMIT-1", "LEASE-6")
def test_limits_and_the_room_for_crashed_runs_hold_together(hand):
    """What is passed over for its crashes takes nothing of a limit."""
    limit(hand, concurrency=2)
    crashed = started(hand, 2)
    hand.claim(limit=2)
    hand.clock.turn(31)
    hand.tick()
    hand.clock.turn(60)
    fresh = started(hand, 2)
    assert claimed(hand, crashed=(1,)) == [crashed[0], fresh[0]]
