"""Weights: tenants that have due runs share the claims, whatever the backlog of another."""

from __future__ import annotations

import pytest

from .hand import TYPE
from .limiting import claimed, limit, started, unlimit

OTHER = "other.type.v1"
BOTH = (TYPE, OTHER)


@pytest.mark.spec("LIMIT-3")
def test_tenants_share_by_weight_whatever_the_backlog_of_another(hand):
    """Also one claim at a time; within a tenant the order is as ever."""
    limit(hand, "tenant", "%", weight=1.0)
    limit(hand, "tenant", "big", weight=3.0)
    many = started(hand, 400, tenant="flood", priority=1)
    big, small = started(hand, 30, tenant="big"), started(hand, 10, tenant="small")
    urgent = hand.start(tenant="small", priority=0)
    taken = [claimed(hand, limit=1)[0] for _ in range(50)]
    assert [run for run in taken if run in small or run == urgent] == [urgent, *small[:9]]
    assert [run for run in taken if run in big] == big
    assert [run for run in taken if run in many] == many[:10]
    # Any stretch of ten is within one claim of its share.
    whose = ["big" if run in big else "small" if run in small or run == urgent else "flood" for run in taken]
    for at in range(40):
        assert whose[at : at + 10].count("small") in {1, 2, 3}
        assert whose[at : at + 10].count("big") in {5, 6, 7}


@pytest.mark.spec("LIMIT-3")
def test_a_claim_of_many_shares_as_many_claims_of_one_do(hand):
    """And a tenant that has nothing left leaves its share to the others."""
    limit(hand, "tenant", "%", weight=1.0)
    flood, small = started(hand, 30, tenant="flood"), started(hand, 4, tenant="small")
    assert sorted(claimed(hand, limit=8)) == sorted([*flood[:4], *small])
    assert claimed(hand, limit=26) == flood[4:]


@pytest.mark.spec("LIMIT-3")
def test_a_tenant_that_was_away_does_not_save_up_claims(hand):
    """It begins where the others are: no burst for it, and no wait."""
    limit(hand, "tenant", "%", weight=1.0)
    flood = started(hand, 100, tenant="flood")
    for _ in range(50):
        claimed(hand, limit=1)
    late = started(hand, 10, tenant="late")
    taken = [claimed(hand, limit=1)[0] for _ in range(10)]
    assert [run for run in taken if run in late] == late[:5]
    assert len([run for run in taken if run in flood]) == 5


@pytest.mark.spec("LIMIT-3")
def test_a_share_goes_to_those_that_the_claim_may_take(hand):
    """A tenant that is full, or another worker's, has no turn; it is not owed one later either."""
    limit(hand, "tenant", "%", weight=1.0)
    limit(hand, "tenant", "full", concurrency=1)
    full, open_ = started(hand, 20, tenant="full"), started(hand, 40, tenant="open")
    (held,) = [claim for claim in hand.claim(limit=2) if claim.id in full]
    assert claimed(hand, limit=9) == open_[1:10]
    assert claimed(hand, limit=3, tenants=("open", "absent")) == open_[10:13]
    hand.complete(held)
    assert sorted(claimed(hand, limit=2)) == sorted([full[1], open_[13]])


@pytest.mark.spec("LIMIT-3")
def test_without_weights_the_queue_is_one_line_for_all_tenants(hand):
    """Also after the last weight was removed."""
    limit(hand, "tenant", "a", weight=5.0)
    first = started(hand, 3, tenant="b")
    second = started(hand, 6, tenant="a")
    assert claimed(hand, limit=6) == [*second[:5], first[0]]
    unlimit(hand, "tenant", "a")
    assert claimed(hand, limit=3) == [*first[1:], second[5]]


def _whose(hand, **fields):
    """Whose run one claim takes."""
    (run,) = claimed(hand, limit=1, **fields)
    return hand.get(run).tenant


@pytest.mark.spec("LIMIT-3")
@pytest.mark.parametrize("others", [1, 3])
def test_what_workers_of_other_types_claim_moves_nobody(hand, others):
    """However fast they are: among those whom a worker may take each gets its share, and nobody starves."""
    limit(hand, "tenant", "b", weight=3.0)
    started(hand, 200, type=OTHER, tenant="other")
    started(hand, 60, tenant="a")
    started(hand, 60, tenant="b")
    taken = []
    for _ in range(40):
        assert [_whose(hand, types=(OTHER,), worker="x") for _ in range(others)] == ["other"] * others
        taken.append(_whose(hand))
    assert (taken.count("a"), taken.count("b")) == (10, 30)
    assert {taken[at : at + 8].count("a") for at in range(32)} == {2}


@pytest.mark.spec("LIMIT-3")
def test_workers_that_overlap_share_each_for_itself(hand):
    """Three kinds of workers: whichever claims, in whatever order, all whom it may take have their turn."""
    limit(hand, "tenant", "%", weight=1.0)
    for tenant, types in {"a": (TYPE,), "b": BOTH, "c": (OTHER,)}.items():
        for type_ in types:
            started(hand, 90, type=type_, tenant=tenant)
    kinds = {(TYPE,): "ab", (OTHER,): "bc", BOTH: "abc"}
    taken = {types: [] for types in kinds}
    for turn in range(60):
        for number, types in enumerate(kinds):
            if turn % (number + 1) == 0:
                taken[types].append(_whose(hand, types=types))
    for types, tenants in kinds.items():
        counts = [taken[types].count(tenant) for tenant in tenants]
        assert sum(counts) == len(taken[types])
        assert max(counts) - min(counts) <= 1, types


@pytest.mark.spec("LIMIT-3")
def test_one_that_comes_anew_or_again_is_neither_ahead_nor_behind_for_long(hand):
    """Whatever was claimed before, here or by others: it has its share from the next claims on, no more."""
    limit(hand, "tenant", "%", weight=1.0)
    started(hand, 100, type=OTHER, tenant="other")
    started(hand, 60, tenant="flood")
    early = started(hand, 2, tenant="early")
    for _ in range(100):
        _whose(hand, types=(OTHER,), worker="x")
    assert len({*early} & {*(claimed(hand, limit=1)[0] for _ in range(4))}) == 2
    for _ in range(30):
        assert _whose(hand) == "flood"
    started(hand, 10, tenant="early")
    started(hand, 10, tenant="new")
    taken = [_whose(hand) for _ in range(15)]
    assert [taken.count(tenant) for tenant in ("flood", "early", "new")] == [5, 5, 5]


@pytest.mark.spec("LIMIT-3")
def test_those_who_come_but_once_do_not_starve_who_waits(hand):
    """Every claim meets a tenant that was never there: who has waited gets his turns between them."""
    limit(hand, "tenant", "%", weight=1.0)
    started(hand, 30, tenant="waits")
    taken = []
    for number in range(20):
        hand.start(tenant=f"new{number:02}")
        taken.append(_whose(hand))
    assert taken.count("waits") >= 4  # more and more others wait too


@pytest.mark.spec("LIMIT-3")
def test_another_weight_counts_from_the_next_claims_on(hand):
    """What a tenant was due under the weight it had is forgotten, whichever limit gave it."""
    limit(hand, "tenant", "a", weight=1.0)
    limit(hand, "tenant", "b%", weight=0.001)
    started(hand, 100, tenant="a")
    started(hand, 100, tenant="b")
    assert {_whose(hand) for _ in range(5)} == {"a"}
    limit(hand, "tenant", "b", weight=4.0)
    taken = [_whose(hand) for _ in range(20)]
    assert (taken.count("a"), taken.count("b")) == (4, 16)
    unlimit(hand, "tenant", "b")
    assert {_whose(hand) for _ in range(20)} == {"a"}
    limit(hand, "tenant", "b", weight=1.0)
    taken = [_whose(hand) for _ in range(20)]
    assert taken.count("b") == 10


@pytest.mark.spec("LIMIT-3")
def test_turns_that_nobody_has_asked_for_in_a_day_are_forgotten(hand):
    """The kinds of workers that there ever were are not remembered for ever."""
    limit(hand, "tenant", "%", weight=1.0)
    started(hand, 10, tenant="a")
    started(hand, 10, tenant="b")
    assert [_whose(hand) for _ in range(3)] == ["a", "b", "a"]
    hand.clock.turn(86_399)
    assert [_whose(hand) for _ in range(2)] == ["b", "a"]
    hand.clock.turn(86_400)
    assert _whose(hand, types=BOTH) == "a"
    assert _whose(hand) == "a"
