"""Cost of limits on Postgres: pages read, before the planner has statistics and after."""

from __future__ import annotations

import pytest

from holdfast.records import SECOND, Ask
from holdfast.testing.contract.driver import TYPE
from holdfast.testing.contract.limits import limit, started
from tests.laws.effort import longer
from tests.stores.postgres.kit import database
from tests.stores.postgres.session import Session

OTHER = "other.type.v1"
DAY = 86_400
EMPTY = """
truncate workflow.workflow_run, workflow.workflow_step, workflow.workflow_event, workflow.workflow_limit_use,
    workflow.workflow_limit_place, workflow.workflow_limit_book;
analyze workflow.workflow_run; analyze workflow.workflow_limit_use
"""
FILL = """
insert into workflow_run (id, tenant, type, limit_key, run_at, priority, max_attempts, rev)
select format('00000000-0000-7%%s-8000-%%s', 100 + %(salt)s::int, lpad(to_hex(n), 12, '0'))::uuid,
    %(tenant)s::text || case when %(tenants)s then n::text else '' end, %(type)s,
    %(key)s::text || case when %(keys)s then n::text else '' end, clock() + %(later)s * interval '1 second',
    %(priority)s, 3, 1
from generate_series(1, %(count)s) as n
"""
KNOWN = "analyze workflow.workflow_run; analyze workflow.workflow_limit_use"


@pytest.fixture
def session(driver):
    """A session whose planner has seen empty tables, where any plan costs the same."""
    database()[1].execute(EMPTY)
    session = Session(driver.clock.now)
    yield session
    session.close()
    database()[1].execute(EMPTY)


def fill(
    session, count, salt, *, tenant="default", key=None, later=0, priority=50, tenants=False, keys=False
):
    """Pending runs, under one name or each under its own."""
    session._connection.execute(
        FILL,
        {"count": count, "salt": salt, "tenant": tenant, "type": TYPE, "key": key, "later": later}
        | {"priority": priority, "tenants": tenants, "keys": keys},
    )


def ask(count=10, types=(TYPE,), **fields):
    return Ask(worker="w", types=types, limit=count, **fields)


def idle(types=(TYPE,), **fields):
    return {
        "types": types,
        "tenants": None,
        "runtime": "python",
        "wait_timeouts": True,
        "besides": [],
    } | fields


def pages(session, verb, question):
    """The lowest of some calls, each rolled back: the first calls also read the catalog."""
    found = []
    for _ in range(4):
        session.begin()
        found.append(session.pages(verb, question))
        session.roll_back()
    return min(found)


def found(session, question):
    session.begin()
    claims = session.call("claim", question)
    session.roll_back()
    return len(claims)


def no_more(before, after):
    """A higher index needs some more reads."""
    return after <= 1.5 * before + 100


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1", "LEASE-13")
@pytest.mark.parametrize(
    ("scope", "tenants"),
    [
        ("type", None),
        ("tenant", ("default", "acme")),
        ("key", None),
        *longer(("type", ("default", "acme")), ("tenant", None), ("key", ("default", "acme"))),
    ],
)
def test_runs_of_a_full_name_are_not_walked_one_by_one(driver, session, scope, tenants):
    """With two thousand or a hundred thousand pending runs ahead of others, a claim and `due` do the same
    work.
    """
    limit(driver, scope, {"type": TYPE, "tenant": "acme", "key": "full"}[scope], concurrency=0)
    where = {"tenant": "acme" if scope == "tenant" else "default", "key": "full"}
    started(driver, 5, type=OTHER)
    started(driver, 5, limit_key="free")
    questions = [
        ("claim", ask(types=(TYPE, OTHER), tenants=tenants)),
        ("due", idle((TYPE, OTHER), tenants=tenants)),
    ]
    for verb, question in questions:
        session.call(verb, question) if verb == "due" else found(
            session, question
        )  # planned on an empty table
    fill(session, 2_000, 1, **where)
    before = [pages(session, *each) for each in questions]
    fill(session, 18_000, 2, **where)
    assert found(session, questions[0][1]) == (5 if scope == "type" else 10)
    unknown = [pages(session, *each) for each in questions]
    session.run(KNOWN)
    after = [pages(session, *each) for each in questions]
    assert all(map(no_more, before, unknown)), (before, unknown)
    assert all(map(no_more, before, after)), (before, after)


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1", "LEASE-13")
def test_a_full_head_before_very_many_free_names_is_skipped_in_order(driver, session):
    """With sixty runs of one full customer and ten thousand others, nothing is done for each of them."""
    limit(driver, "key", "customer.%", concurrency=1)
    limit(driver, "key", "customer.full", concurrency=0)
    fill(session, 60, 1, key="customer.full", priority=10)
    fill(session, 20, 2, key="customer.", keys=True)
    before = pages(session, "claim", ask())
    fill(session, 10_000, 3, key="customer.", keys=True)
    assert found(session, ask()) == 10
    assert no_more(before, pages(session, "claim", ask()))


@pytest.mark.slow
@pytest.mark.spec("LIMIT-1", "LIMIT-3", "LEASE-13")
@pytest.mark.parametrize("what", ["keys", "tenants", "weights"])
def test_an_idle_worker_does_nothing_for_each_name_that_has_runs_for_later(driver, session, what):
    """With ten thousand keys or tenants, all due tomorrow, a few lookups answer that, and when."""
    limits = {"keys": ("key", {"concurrency": 1}), "tenants": ("tenant", {"rate": (1, 60.0)})}
    scope, fields = limits.get(what, ("tenant", {"weight": 1.0}))
    limit(driver, scope, "%", **fields)
    names = {"key": "k", "keys": True} if what == "keys" else {"tenant": "t", "tenants": True}
    fill(session, 20, 1, later=DAY, **names)
    before = pages(session, "due", idle())
    fill(session, 10_000, 2, later=DAY, **names)
    assert session.call("due", idle())["claim_at"] == driver.clock.now + DAY * SECOND
    assert no_more(before, pages(session, "due", idle()))


@pytest.mark.slow
@pytest.mark.spec("LIMIT-2")
def test_a_rate_looks_at_few_of_the_claims_it_counts(driver, session):
    """A window with fifty thousand claims costs two lookups."""
    limit(driver, rate=(100_000, float(DAY)))
    started(driver, 3)
    driver.claim(limit=1)
    before = pages(session, "claim", ask(1))
    session.run(
        "insert into workflow_limit_use (scope, name, at, number, taken, gone_at)"
        " select scope, name, at - n * interval '1 microsecond', number - n, 1, gone_at"
        " from workflow_limit_use, generate_series(1, 50000) as n"
    )
    assert found(session, ask(1)) == 1
    assert no_more(before, pages(session, "claim", ask(1)))


@pytest.mark.slow
@pytest.mark.spec("LEASE-13")
@pytest.mark.parametrize("tenants", [None, ("default", "acme")], ids=["any", "bound"])
def test_when_something_is_due_is_known_however_much_is_for_later(driver, session, tenants):
    """Only the first run of each priority is read; other tenants and types are not."""
    question = idle((TYPE, OTHER), tenants=tenants)
    session.call("due", question)
    fill(session, 100, 1, later=DAY)
    before = pages(session, "due", question)
    fill(session, 10_000, 2, later=2 * DAY)
    fill(session, 10_000, 3, later=3 * DAY, tenant="foreign", priority=60)
    assert session.call("due", question)["claim_at"] == driver.clock.now + DAY * SECOND
    unknown = pages(session, "due", question)
    session.run(KNOWN)
    assert no_more(before, unknown)
    assert no_more(before, pages(session, "due", question))


def test_where_nothing_is_set_a_claim_looks_at_no_limit(driver, session):
    """The claim only asks whether there is a limit; nothing is counted, locked or stored."""
    started(driver, 3)
    looked = (
        "select coalesce(sum(pg_stat_get_xact_function_calls(p.oid)), 0) from pg_proc as p"
        " where p.pronamespace = 'workflow'::regnamespace and p.proname = any(%s)"
    )
    session.run("set track_functions = 'all'")
    session.begin()
    names = ["choose_limited", "quotas", "rules_of", "lane_heads", "open_types", "lock_limits", "note_uses"]
    assert len(session.call("claim", ask())) == 3
    assert session.run(looked, names) == [(0,)]
    session.roll_back()
    limit(driver, concurrency=1)
    session.begin()
    session.call("claim", ask())
    assert session.run(looked, names)[0][0] > 0
    session.roll_back()


def test_what_a_rate_does_not_count_any_more_is_removed_with_later_claims(driver, session):
    """The table does not grow with names that are never used again, however many a claim counts."""
    limit(driver, "key", "%", rate=(1, 1.0))
    for n in range(8):
        for i in range(60):
            started(driver, 1, limit_key=f"k{n}.{i}")
        assert len(driver.claim(limit=60)) == 60
        driver.clock.turn(2)
    assert session.run("select count(*) from workflow_limit_use")[0][0] <= 120


def test_a_place_is_kept_only_of_those_who_wait(driver, session):
    """A tenant that came once leaves no row behind."""
    limit(driver, "tenant", "%", weight=1.0)
    for n in range(20):
        started(driver, 1, tenant=f"t{n:02}")
        started(driver, 1, tenant="flood")
        driver.claim(limit=2)
    assert session.run("select count(*) from workflow_limit_place") == [(2,)]
