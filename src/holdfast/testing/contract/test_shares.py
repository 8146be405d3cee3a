"""Weights: tenants that have due runs share the claims, whatever the backlog of another."""

from __future__ import annotations

import pytest

from .limiting import claimed, limit, started, unlimit


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
    second = started(hand, 3, tenant="a")
    assert sorted(claimed(hand, limit=2)) == sorted([first[0], second[0]])
    unlimit(hand, "tenant", "a")
    assert claimed(hand, limit=3) == [*first[1:], second[1]]
