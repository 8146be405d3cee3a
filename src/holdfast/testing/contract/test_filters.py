"""Filters of lists: each alone, combined with others, and over pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations
from uuid import UUID

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Status, StepKind
from holdfast.records import ANY, SECOND, Error, NewRun, RunFilter, moment
from holdfast.records.shown import outline

from .driver import TYPE, call, done, listen, sleep

HOUR = 3600.0
RANDOM = "ffffffff-ffff-4fff-8fff-{:012x}"  # an id that says nothing about its time


def ids(driver, limit=100, after=None, **where):
    """Return the ids of a page. The page of outlines has the same runs."""
    asked = RunFilter(**where), limit, after
    found = driver.run(driver.store.list(*asked))
    assert [*driver.run(driver.store.outlines(*asked))] == [*map(outline, found)]
    return [run.id for run in found]


def page_of(driver, limit, after, where):
    """Return the ids of a page, without a look at its outlines."""
    return [run.id for run in driver.run(driver.store.list(RunFilter(**where), limit, after))]


def every(driver, limit, **where):
    """Read all pages."""
    found, after = [], None
    while page := page_of(driver, limit, after, where):
        assert len(page) <= limit
        found += page
        after = page[-1]
    return found


def labels(**names):
    return msgspec.json.encode(names).decode()


def failed(driver, message="no card", type="ValueError", step="charge", kind="fatal", **fields):
    """Start a run, and let it fail."""
    claim = driver.held(**fields)
    error = msgspec.json.encode(Error(kind=kind, type=type, message=message, step=step)).decode()
    tenant = fields.get("tenant", "default")
    driver.fail(claim, error=error, last_error=f"{kind}: {message}", kind=kind, tenant=tenant)
    return claim.id


def now(driver):
    return moment(driver.clock.now)


@pytest.mark.spec("READ-2")
def test_lists_filter_by_labels(driver):
    """A value must be equal, None asks only whether the label is there; all of them must hold."""
    both = driver.start(labels=labels(customer="42", team="billing"))
    one = driver.start(labels=labels(customer="42"))
    other = driver.start(labels=labels(customer="43", team=""))
    driver.start()
    assert ids(driver, labels={"customer": "42"}) == [one, both]
    assert ids(driver, labels={"customer": None}) == [other, one, both]
    assert ids(driver, labels={"customer": "42", "team": None}) == [both]
    assert ids(driver, labels={"customer": "42", "team": "shipping"}) == []
    assert ids(driver, labels={"team": ""}) == [other]
    assert ids(driver, labels={"Customer": "42"}) == ids(driver, labels={"cust": None}) == []


@pytest.mark.spec("READ-2")
def test_long_and_many_labels_are_found_as_far_as_they_are_kept_for_it(driver):
    """The first hundred labels count. A value of more characters than a filter may have is only present."""
    long = driver.start(labels=labels(a="x" * 300, b="é" * 255))
    many = driver.start(labels=labels(**{f"n{n:03}": "v" for n in range(150)}))
    assert ids(driver, labels={"a": None}) == ids(driver, labels={"b": "é" * 255}) == [long]
    assert ids(driver, labels={"a": "x" * 255}) == []
    assert ids(driver, labels={"n099": "v"}) == [many]
    assert ids(driver, labels={"n100": None}) == []


@pytest.mark.spec("READ-2")
def test_the_label_of_a_purged_run_is_forgotten(driver):
    """Also when another run has the same one."""
    run = driver.start(labels=labels(team="billing"), ttl_seconds=0.0)
    other = driver.start(labels=labels(team="billing"))
    driver.cancel(run)
    driver.clock.turn(1)
    driver.run(driver.store.purge())
    assert ids(driver, labels={"team": "billing"}, deleted=True) == [other]


@pytest.mark.spec("READ-2")
def test_children_have_the_labels_that_they_were_started_with(driver):
    """A run of a step is found like any other."""
    parent, child = driver.held(), driver.id()
    driver.park(parent, call("kid", child, labels=labels(team="billing")), known=0)
    assert ids(driver, labels={"team": "billing"}) == [child]


@pytest.mark.spec("READ-2")
def test_lists_of_roots_leave_out_children(driver):
    """A run that was started beside its parent is a child too."""
    parent = driver.start()
    driver.start(parent=parent)
    other = driver.start()
    assert ids(driver, roots=True) == [other, parent]
    assert ids(driver, roots=True, parent=parent) == []


@pytest.mark.spec("READ-2")
def test_lists_filter_by_the_time_of_start(driver):
    """`since` is included, `until` is not; whatever the ids are."""
    first = now(driver)
    early, odd = driver.start(), driver.start(id=UUID(RANDOM.format(1)))
    driver.clock.turn(HOUR)
    second = now(driver)
    late, odd_late = driver.start(), driver.start(id=UUID(int=7))
    driver.clock.turn(30 * 24 * HOUR)
    third = now(driver)
    last = driver.start()
    assert ids(driver, created_since=second) == [last, late, odd_late]
    assert ids(driver, created_until=second) == [odd, early]
    assert ids(driver, created_since=second, created_until=third) == [late, odd_late]
    assert ids(driver, created_since=first, created_until=third) == [odd, late, early, odd_late]
    assert ids(driver, created_since=third, created_until=second) == []
    assert every(driver, 1, created_until=third) == [odd, late, early, odd_late]


@pytest.mark.spec("READ-2")
def test_lists_filter_by_the_time_of_the_end(driver):
    """Runs that are kept for a time of their own too; open runs have no end."""
    first = now(driver)
    driver.start("shop.open.v1")
    early, kept = driver.held(), driver.held(ttl_seconds=HOUR)
    driver.complete(early)
    driver.complete(kept)
    driver.clock.turn(60)
    second = now(driver)
    late = driver.start()
    driver.cancel(late)
    driver.clock.turn(60)
    assert ids(driver, finished_since=first) == [late, kept.id, early.id]
    assert ids(driver, finished_since=second) == [late]
    assert ids(driver, finished_until=second) == [kept.id, early.id]
    assert ids(driver, finished_since=now(driver)) == []


@pytest.mark.spec("READ-2")
def test_lists_filter_by_the_time_of_the_last_change(driver):
    """By the time that a list shows, whatever the change was: a start, a claim, a step, a park, a wake-up, an
    end, or a person's.
    """
    made = {}
    for name in ("pending", "leased", "stepped", "parked", "woken", "ended", "retried", "paused", "deleted"):
        made[name] = driver.start(f"shop.{name}.v1")
    driver.clock.turn(60)
    claims = {
        name: driver.take(types=(f"shop.{name}.v1",), lease=HOUR)
        for name in ("leased", "stepped", "parked", "woken", "ended", "retried")
    }
    driver.clock.turn(60)
    middle = now(driver)
    driver.checkpoint(claims["stepped"], done("a"))
    driver.park(claims["parked"], sleep("nap", 10 * HOUR), known=0)
    driver.park(claims["woken"], listen("w", "t"), known=0)
    driver.complete(claims["ended"])
    driver.retry(claims["retried"], delay_seconds=HOUR)
    driver.clock.turn(60)
    late = now(driver)
    driver.emit("t")
    driver.pause(made["paused"])
    driver.delete(made["deleted"])
    driver.clock.turn(60)
    where = {"tenant": ANY, "deleted": True}
    shown = {run.id: run.updated_at for run in driver.run(driver.store.list(RunFilter(**where)))}
    for since, until in [(middle, None), (None, middle), (middle, late), (late, None), (None, late)]:
        wanted = [
            run for run, at in shown.items()
            if (since is None or at >= since) and (until is None or at < until)
        ]  # fmt: skip
        assert ids(driver, updated_since=since, updated_until=until, **where) == wanted
        assert wanted
    assert made["stepped"] in ids(driver, updated_since=middle, updated_until=late)
    assert ids(driver, updated_since=late, **where) == [made["deleted"], made["paused"], made["woken"]]


@pytest.mark.spec("READ-2")
def test_lists_filter_by_the_fingerprint_of_the_error(driver):
    """Type, step and the beginning of the message; equal, a prefix, or one of several."""
    card = failed(driver)
    ship = failed(driver, step="ship")
    bare = failed(driver, "it broke", type="", step=None, kind="timeout")
    long = failed(driver, "a\nb\tc" + "x" * 300, type="KeyError")
    inner = failed(driver, "step 'pay' failed: IOError: down: again", type="StepFailed", step="pay")
    odd = failed(driver, "step pay failed", type="StepFailed", step="pay")
    driver.start()
    prints = {run: driver.get(run).fingerprint for run in (card, ship, bare, long, inner, odd)}
    assert prints == {
        inner: "IOError at pay: down: again", odd: "StepFailed at pay: step pay failed",
        card: "ValueError at charge: no card", ship: "ValueError at ship: no card",
        bare: "timeout: it broke", long: "KeyError at charge: a b c" + "x" * 195,
    }  # fmt: skip
    for run, text in prints.items():
        assert ids(driver, error=text) == [run]
    assert ids(driver, error="ValueError%") == [ship, card]
    assert ids(driver, error="ValueError at ship%") == [ship]
    assert ids(driver, error="%") == [odd, inner, long, bare, ship, card]
    assert ids(driver, error=(prints[card], prints[bare], "else")) == [bare, card]
    assert ids(driver, error="ValueError") == ids(driver, error="valueerror%") == []
    assert ids(driver, error="ValueErro_ at charge%") == []


@pytest.mark.spec("READ-2")
def test_a_run_that_goes_on_has_no_fingerprint(driver):
    """Neither after a retry of the run, nor between its attempts."""
    run = failed(driver)
    trying = driver.held()
    driver.retry(trying, delay_seconds=HOUR)
    driver.run(driver.store.retry_run(run, ANY))
    assert driver.get(run).fingerprint is driver.get(trying.id).fingerprint is None
    assert ids(driver, error="%") == []


def mixed(driver):
    """Start runs that differ in everything that filters ask for; return filters with some of them."""
    root = driver.start("shop.root.v1")
    for n in range(24):
        fields = {"labels": labels(customer=str(n % 3), **({"vip": "1"} if n % 4 == 0 else {}))}
        if n % 2:
            fields["parent"] = root
        elif n % 3 < 2:
            fields["tenant"] = "acme"
        if n % 5 == 0:
            fields["id"] = UUID(RANDOM.format(n))
        if n % 3 == 0:
            failed(driver, step=f"s{n % 2}", **fields)
        elif n % 3 == 1:
            driver.complete(driver.held(**fields))
        else:
            driver.start("shop.later.v1", **fields)
        driver.clock.turn(600)
    start = datetime.fromtimestamp(driver.clock.now // SECOND, UTC) - timedelta(minutes=240)
    return [
        {"labels": {"customer": "0"}}, {"labels": {"vip": None}}, {"roots": True}, {"parent": root},
        {"statuses": (Status.FAILED,)}, {"statuses": (Status.PENDING,)},
        {"statuses": (Status.SUCCEEDED, Status.FAILED)}, {"type": "shop.l%"}, {"tenant": "acme"},
        {"error": "ValueError at s0: no card"}, {"error": "ValueError%"},
        {"created_since": start + timedelta(minutes=55)}, {"created_until": start + timedelta(minutes=150)},
        {"finished_since": start + timedelta(minutes=100)},
        {"finished_until": start + timedelta(minutes=205)},
        {"updated_since": start + timedelta(minutes=35)}, {"updated_until": start + timedelta(minutes=185)},
        {"waiting_on": StepKind.SLEEP},
    ]  # fmt: skip


def matches(run, where):
    """Say the same as a filter, from what a list shows."""
    between = all(
        at is not None and (at >= wanted if name.endswith("since") else at < wanted)
        for name, wanted in where.items()
        if name.endswith(("since", "until"))
        for at in [getattr(run, name.replace("since", "at").replace("until", "at"))]
    )
    error, kind = where.get("error"), where.get("type", "%")
    return (
        between
        and all(run.labels.get(name) in ({value} if value else run.labels.values()) and name in run.labels
                for name, value in where.get("labels", {}).items())
        and not (where.get("roots") and run.parent) and where.get("parent", run.parent) == run.parent
        and run.status in where.get("statuses", (run.status,)) and run.type.startswith(kind[:-1])
        and where["tenant"] in {ANY, run.tenant} and "waiting_on" not in where
        and (error is None or bool(run.fingerprint and run.fingerprint.startswith(error.rstrip("%"))))
    )  # fmt: skip


@pytest.mark.spec("READ-2")
def test_filters_are_combined_freely_and_over_pages(driver):
    """Every two, and every three with a label: what a list without filters shows, and nothing else."""
    check_combined(driver, mixed(driver))


def check_combined(driver, filters):
    """Compare each list with the filtered list of all runs."""
    whole = driver.run(driver.store.list(RunFilter(tenant=ANY)))
    pairs = [*((one,) for one in filters), *combinations(filters, 2)]
    for some in [*pairs, *((filters[0], *pair) for pair in combinations(filters[1:], 2))]:
        where = {"tenant": ANY}
        for one in some:
            where |= one
        wanted = [run.id for run in whole if matches(run, where)]
        assert ids(driver, **where) == wanted, where
        if len(some) < 3 and len(wanted) > 3:
            assert every(driver, 3, **where) == wanted, where


@pytest.mark.spec("READ-2", "START-9")
@pytest.mark.parametrize(
    "bad",
    [
        {"labels": {"a": 7}}, {"labels": {7: "a"}}, {"labels": {None: "a"}}, {"labels": ["a"]},
        {"labels": {"a": "x" * 256}}, {"labels": {"a\0": "b"}}, {"labels": {str(n): None for n in range(21)}},
        {"error": 7}, {"error": "x\0"}, {"error": "x" * 1000}, {"error": ("x", 7)}, {"error": ("x",) * 21},
        {"type": "a%b"}, {"type": "%b"},
        {"created_since": 7}, {"created_until": datetime(2026, 1, 1)}, {"updated_since": "2026-01-01"},  # noqa: DTZ001
    ],
    ids=str,
)  # fmt: skip
def test_a_filter_that_no_store_can_answer_is_refused(driver, bad):
    with pytest.raises(UsageError):
        ids(driver, **bad)


@pytest.mark.spec("READ-2")
def test_children_are_counted_at_their_parent(driver):
    """By status, without deleted ones; a run without children is left out."""
    parent, alone, other = driver.start("shop.a.v1"), driver.start("shop.a.v1"), driver.start("shop.a.v1")
    driver.start_many([NewRun(id=driver.id(), type=TYPE, parent=parent) for _ in range(5)])
    kid = driver.start("shop.b.v1", parent=other, max_attempts=1)
    claims = driver.claim()
    driver.complete(claims[0])
    driver.fail(claims[1])
    driver.delete(claims[2].id)

    def counted(*runs, **fields):
        return driver.run(driver.store.children(runs, **{"tenant": "default", **fields}))

    second, first = counted(other, parent, alone, driver.id(), parent)
    assert (first.run, first.by_status) == (parent, {"succeeded": 1, "failed": 1, "leased": 2})
    assert (first.total, first.ended, first.more) == (4, 2, False)
    assert (second.run, second.by_status) == (other, {"pending": 1})
    assert counted(kid) == counted() == counted(parent, tenant="acme") == []
    assert len(counted(parent, tenant=ANY)) == 1
    (some,) = counted(parent, most=3)
    assert (some.total, some.more) == (3, True)
    driver.delete(parent)
    assert counted(parent) == []
    with pytest.raises(UsageError, match="most"):
        counted(other, most=0)
