"""Weights: tenants with due runs share the claims, however long the queue of another tenant is."""

from __future__ import annotations

import pytest

from .driver import TYPE
from .limits import claimed, limit, started, unlimit

OTHER = "other.type.v1"
BOTH = (TYPE, OTHER)


@pytest.mark.spec("LIMIT-3")
def test_tenants_share_by_weight_whatever_the_backlog_of_another(driver):
    """This holds also for one claim at a time; within a tenant the order stays."""
    limit(driver, "tenant", "%", weight=1.0)
    limit(driver, "tenant", "big", weight=3.0)
    many = started(driver, 400, tenant="flood", priority=1)
    big, small = started(driver, 30, tenant="big"), started(driver, 10, tenant="small")
    urgent = driver.start(tenant="small", priority=0)
    taken = [claimed(driver, limit=1)[0] for _ in range(50)]
    assert [run for run in taken if run in small or run == urgent] == [urgent, *small[:9]]
    assert [run for run in taken if run in big] == big
    assert [run for run in taken if run in many] == many[:10]
    # Any stretch of ten is within one claim of its share.
    whose = ["big" if run in big else "small" if run in small or run == urgent else "flood" for run in taken]
    for at in range(40):
        assert whose[at : at + 10].count("small") in {1, 2, 3}
        assert whose[at : at + 10].count("big") in {5, 6, 7}


@pytest.mark.spec("LIMIT-3")
def test_a_claim_of_many_shares_as_many_claims_of_one_do(driver):
    """A tenant without due runs leaves its share to the others."""
    limit(driver, "tenant", "%", weight=1.0)
    flood, small = started(driver, 30, tenant="flood"), started(driver, 4, tenant="small")
    assert sorted(claimed(driver, limit=8)) == sorted([*flood[:4], *small])
    assert claimed(driver, limit=26) == flood[4:]


@pytest.mark.spec("LIMIT-3")
def test_a_tenant_that_was_away_does_not_save_up_claims(driver):
    """It begins where the others are: without a burst and without a wait."""
    limit(driver, "tenant", "%", weight=1.0)
    flood = started(driver, 100, tenant="flood")
    for _ in range(50):
        claimed(driver, limit=1)
    late = started(driver, 10, tenant="late")
    taken = [claimed(driver, limit=1)[0] for _ in range(10)]
    assert [run for run in taken if run in late] == late[:5]
    assert len([run for run in taken if run in flood]) == 5


@pytest.mark.spec("LIMIT-3")
def test_a_share_goes_to_those_that_the_claim_may_take(driver):
    """A tenant that is at its limit, or that the worker may not take, has no turn, and gets none later for
    it.
    """
    limit(driver, "tenant", "%", weight=1.0)
    limit(driver, "tenant", "full", concurrency=1)
    full, open_ = started(driver, 20, tenant="full"), started(driver, 40, tenant="open")
    (held,) = [claim for claim in driver.claim(limit=2) if claim.id in full]
    assert claimed(driver, limit=9) == open_[1:10]
    assert claimed(driver, limit=3, tenants=("open", "absent")) == open_[10:13]
    driver.complete(held)
    assert sorted(claimed(driver, limit=2)) == sorted([full[1], open_[13]])


@pytest.mark.spec("LIMIT-3")
def test_a_tenant_keeps_its_place_while_no_run_of_its_type_may_be_claimed(driver):
    """The limit of a type is full, and holds all runs of the tenant back."""
    limit(driver, "tenant", "%", weight=1.0)
    limit(driver, "type", TYPE, concurrency=0)
    started(driver, 3, tenant="held")
    first = started(driver, 1, tenant="busy", type=OTHER)
    assert claimed(driver, limit=1, types=BOTH) == first
    second = started(driver, 1, tenant="busy", type=OTHER)
    waited = started(driver, 1, tenant="held", type=OTHER)
    assert claimed(driver, limit=1, types=BOTH) == waited
    assert claimed(driver, limit=1, types=BOTH) == second


@pytest.mark.spec("LIMIT-3")
def test_without_weights_all_tenants_have_one_queue(driver):
    """This holds also after the last weight was removed."""
    limit(driver, "tenant", "a", weight=5.0)
    first = started(driver, 3, tenant="b")
    second = started(driver, 6, tenant="a")
    assert claimed(driver, limit=6) == [*second[:5], first[0]]
    unlimit(driver, "tenant", "a")
    assert claimed(driver, limit=3) == [*first[1:], second[5]]


def _whose(driver, **fields):
    """Return the tenant of the run that one claim takes."""
    (run,) = claimed(driver, limit=1, **fields)
    return driver.get(run).tenant


@pytest.mark.spec("LIMIT-3")
@pytest.mark.parametrize("others", [1, 3])
def test_claims_of_workers_of_other_types_change_no_share(driver, others):
    """However fast they are, each tenant that a worker may take gets its share."""
    limit(driver, "tenant", "b", weight=3.0)
    started(driver, 200, type=OTHER, tenant="other")
    started(driver, 60, tenant="a")
    started(driver, 60, tenant="b")
    taken = []
    for _ in range(40):
        assert [_whose(driver, types=(OTHER,), worker="x") for _ in range(others)] == ["other"] * others
        taken.append(_whose(driver))
    assert (taken.count("a"), taken.count("b")) == (10, 30)
    assert {taken[at : at + 8].count("a") for at in range(32)} == {2}


@pytest.mark.spec("LIMIT-3")
def test_workers_that_overlap_share_each_for_itself(driver):
    """With three kinds of workers, in any order of claims, all tenants get their turns."""
    limit(driver, "tenant", "%", weight=1.0)
    for tenant, types in {"a": (TYPE,), "b": BOTH, "c": (OTHER,)}.items():
        for type_ in types:
            started(driver, 90, type=type_, tenant=tenant)
    kinds = {(TYPE,): "ab", (OTHER,): "bc", BOTH: "abc"}
    taken = {types: [] for types in kinds}
    for turn in range(60):
        for number, types in enumerate(kinds):
            if turn % (number + 1) == 0:
                taken[types].append(_whose(driver, types=types))
    for types, tenants in kinds.items():
        counts = [taken[types].count(tenant) for tenant in tenants]
        assert sum(counts) == len(taken[types])
        assert max(counts) - min(counts) <= 1, types


@pytest.mark.spec("LIMIT-3")
def test_a_new_or_returning_tenant_gets_its_share_at_once(driver):
    """Earlier claims do not matter: it has its share from the next claims on, no more."""
    limit(driver, "tenant", "%", weight=1.0)
    started(driver, 100, type=OTHER, tenant="other")
    started(driver, 60, tenant="flood")
    early = started(driver, 2, tenant="early")
    for _ in range(100):
        _whose(driver, types=(OTHER,), worker="x")
    assert len({*early} & {*(claimed(driver, limit=1)[0] for _ in range(4))}) == 2
    for _ in range(30):
        assert _whose(driver) == "flood"
    started(driver, 10, tenant="early")
    started(driver, 10, tenant="new")
    taken = [_whose(driver) for _ in range(15)]
    assert [taken.count(tenant) for tenant in ("flood", "early", "new")] == [5, 5, 5]


@pytest.mark.spec("LIMIT-3")
def test_tenants_that_come_once_do_not_starve_waiting_ones(driver):
    """Every claim meets a new tenant; the waiting tenant gets its turns between them."""
    limit(driver, "tenant", "%", weight=1.0)
    started(driver, 30, tenant="waits")
    taken = []
    for number in range(20):
        driver.start(tenant=f"new{number:02}")
        taken.append(_whose(driver))
    assert taken.count("waits") >= 4  # more and more others wait too


@pytest.mark.spec("LIMIT-3")
def test_another_weight_counts_from_the_next_claims_on(driver):
    """Turns that a tenant was due under its old weight are forgotten."""
    limit(driver, "tenant", "a", weight=1.0)
    limit(driver, "tenant", "b%", weight=0.001)
    started(driver, 100, tenant="a")
    started(driver, 100, tenant="b")
    assert {_whose(driver) for _ in range(5)} == {"a"}
    limit(driver, "tenant", "b", weight=4.0)
    taken = [_whose(driver) for _ in range(20)]
    assert (taken.count("a"), taken.count("b")) == (4, 16)
    unlimit(driver, "tenant", "b")
    assert {_whose(driver) for _ in range(20)} == {"a"}
    limit(driver, "tenant", "b", weight=1.0)
    taken = [_whose(driver) for _ in range(20)]
    assert taken.count("b") == 10


@pytest.mark.spec("LIMIT-3")
def test_turns_that_nobody_has_asked_for_in_a_day_are_forgotten(driver):
    """The store does not remember every kind of worker for ever."""
    limit(driver, "tenant", "%", weight=1.0)
    started(driver, 10, tenant="a")
    started(driver, 10, tenant="b")
    assert [_whose(driver) for _ in range(3)] == ["a", "b", "a"]
    driver.clock.turn(86_399)
    assert [_whose(driver) for _ in range(2)] == ["b", "a"]
    driver.clock.turn(86_400)
    assert _whose(driver, types=BOTH) == "a"
    assert _whose(driver) == "a"
