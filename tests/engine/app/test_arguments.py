"""Bad numbers, times and names are refused at once, in one line, by apps, definitions and contexts."""

from __future__ import annotations

import math
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.arguments import check_whole, to_seconds
from holdfast.clipped import clipped
from holdfast.errors import RetryAfter, UsageError
from holdfast.records import ANY, OutboxFilter
from tests.engine.kit import outcome

LONG = "x" * 5000
HUGE = 10**100_000  # more digits than Python prints
WHOLE = [True, 1.5, math.inf, math.nan, "3", 0, -1, 2**31, sys.maxsize, 10**30, HUGE]
SPANS = [-1, -0.001, math.nan, -math.inf, math.inf, 1e12, HUGE, True, "5", timedelta.max, timedelta(-1)]
NAMES = ["", LONG, "a\0b", "a\ud800", 7, None]
TIMES = [
    datetime(2030, 1, 1),  # noqa: DTZ001 - that it has no zone is the point
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=12))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=12))),
    date(2030, 1, 1),
    "2030-01-01T00:00:00Z",
    1_900_000_000,
]


async def body(_ctx):
    """A workflow that does nothing."""


def refused(call, *args, **options):
    """Assert that the call raises a UsageError of one short line, and return its text."""
    with pytest.raises(UsageError) as refusal:
        call(*args, **options)
    assert_clear(refusal.value)
    return str(refusal.value)


async def refused_async(call, *args, **options):
    with pytest.raises(UsageError) as refusal:
        await call(*args, **options)
    assert_clear(refusal.value)
    return str(refusal.value)


def assert_clear(error):
    assert len(str(error)) < 600
    assert "\n" not in str(error)


STARTS = [
    *(("max_attempts", value) for value in WHOLE),
    *(("priority", value) for value in (True, 1.5, math.inf, -1, 1000, 10**30, HUGE, "5", None)),
    *(("budget", value) for value in (True, 0, -1, math.nan, math.inf, 10**30, HUGE, "5")),
    *((field, value) for field in ("delay", "timeout") for value in SPANS),
    *(("ttl", value) for value in SPANS if value != math.inf),
    *(("run_at", value) for value in TIMES),
    *((field, value) for field in ("key", "limit_key") for value in NAMES[:-1]),
    *(("tenant", value) for value in NAMES),
    *(("id", value) for value in (LONG, 7, "")),
    *(("parent", value) for value in (LONG, 7)),
    ("labels", {"a": LONG, 1: 2}),
    (LONG, 1),
]


@pytest.mark.spec("START-10", "START-5")
async def test_start_many_answers_a_bad_item_with_its_error(app):
    """One item with max_attempts=2**31 must not fail the whole call."""
    good = ("shop.order.v1", {"n": 1})
    bad = [("shop.order.v1", None, {field: value}) for field, value in STARTS]
    bad += [
        (f"shop.{LONG}.v1", None),
        ("shop", None),
        (7, None),
        ("shop.order.v1", None, 7),
        (),
        "shop.order.v1",
    ]
    answers = await app.start_many([good, *bad, good])
    assert [type(answers[0]).__name__, type(answers[-1]).__name__] == ["Handle", "Handle"]
    for one, answer in zip(bad, answers[1:-1], strict=True):
        assert isinstance(answer, UsageError), clipped(one)
        assert_clear(answer)
    assert len(await app.list()) == 2


@pytest.mark.spec("START-10", "START-1")
async def test_a_start_with_a_bad_option_raises_the_error(app):
    message = await refused_async(app.start, "shop.order.v1", max_attempts=2**31)
    assert message == (
        "max_attempts is 2147483648: give a whole number from 1 to 2,147,483,647; the first execution counts"
    )
    message = await refused_async(app.start, "shop.order.v1", run_at=TIMES[0])
    assert message.startswith("run_at datetime.datetime(2030, 1, 1, 0, 0) has no time zone: give one")
    assert list(await app.list()) == []


@pytest.mark.spec("START-10")
async def test_the_largest_values_are_accepted(app):
    kept = await app.start(
        f"shop.{'x' * 247}.v1", max_attempts=2**31 - 1, priority=999, ttl=math.inf, timeout=hf.days(365_000),
        run_at=datetime.max.replace(tzinfo=UTC), budget=10**9,
    )  # fmt: skip
    found = await app.get(kept.id)
    assert (found.max_attempts, found.priority, found.run_at.year) == (2**31 - 1, 999, 9999)


@pytest.mark.spec("START-10", "LIMIT-1", "SCHED-1", "TTL-1", "READ-1", "EVENT-8")
async def test_verbs_refuse_bad_numbers_times_and_names(app):
    run = (await app.start("shop.order.v1")).id
    calls = [
        *((app.limit, (), {"key": "k", "concurrency": value}) for value in (*WHOLE[:5], -1, 2**40, HUGE)),
        *((app.limit, (), {"key": "k", "rate": (value, 60)}) for value in WHOLE),
        *((app.limit, (), {"key": "k", "rate": (1, value)}) for value in (*SPANS, 0)),
        *((app.limit, (), {"tenant": "t", "weight": value}) for value in (True, 0, math.nan, math.inf, HUGE)),
        *((app.limit, (), {scope: LONG, "concurrency": 1}) for scope in ("type", "tenant", "key")),
        *((app.pause_key, ("k", value), {}) for value in (*SPANS, *TIMES[:3])),
        *((app.register, (value,), {}) for value in NAMES),
        *((app.append_step, (run, "A", value), {}) for value in WHOLE),
        *((app.set_priority, (run, value), {}) for value in (-1, 1000, 1.5, True, "5", None)),
        *((app.append_step, (run, value), {}) for value in NAMES),
        *((app.list, (None, value), {}) for value in (*WHOLE[:5], -1, 2**31, HUGE)),
        (app.list, (None, 1, LONG), {}),
        *((app.search, (value,), {}) for value in ("", "x" * 201, "a\0b", 7, None)),
        *((app.search, ("x", None, value), {}) for value in (*WHOLE[:5], -1, 0, 2**31, HUGE)),
        *((app.search, ("x", *value), {}) for value in (("failed",), (None, 1, LONG))),
        *((app.trail, (), {"limit": value}) for value in (True, 1.5, -1, 2**31)),
        *((app.trail, (), {"after": value}) for value in (True, 1.5, -1, 2**63, HUGE)),
        *((app.trail, (), {field: value}) for field in ("since", "until") for value in TIMES),
        (app.trail, (), {"types": "created"}),
        *((app.outbox, (), {"limit": value}) for value in (True, 1.5, -1, 2**31)),
        *((app.outbox, (), {"after": value}) for value in (True, 1.5, -1, 2**63)),
        (app.outbox, (OutboxFilter(sink="a\0b"),), {}),
        (app.outbox, (OutboxFilter(run="x"),), {}),
        (app.list, (hf.RunFilter(parent="x"),), {}),
        *((app.list, (hf.RunFilter(statuses=value),), {}) for value in ("failed", ("done",), None, (7,))),
        (app.list, (hf.RunFilter(waiting_on="people"),), {}),
        (app.bulk.retry, (hf.RunFilter(statuses=("done",)),), {}),
        (app.outbox, (OutboxFilter(statuses="dead"),), {}),
        *((app.approvals, (), {"limit": value}) for value in (True, 1.5, -1, 2**31)),
        *((app.purge, (), {field: -1}) for field in ("older_than", "deleted_after")),
        *((app.purge, (), {"older_than": value}) for value in (True, "5", timedelta.max, math.nan)),
        *((app.emit, ("t",), {"keep": value}) for value in (-1, math.nan, HUGE, timedelta.max)),
        *((app.emit, (value,), {}) for value in NAMES),
        *((app.emit, ("t",), {"id": value}) for value in NAMES[:-1]),
        *((app.final, (run, value), {}) for value in SPANS),
        *((app.schedule, (value, "shop.order.v1"), {"every": 60}) for value in NAMES),
        *((app.schedule, ("s", "shop.order.v1"), {"every": value}) for value in (*SPANS, 0, HUGE)),
        *((app.schedule, ("s", "shop.order.v1"), {"every": 60, "jitter": value}) for value in SPANS),
        *((app.schedule, ("s", "shop.order.v1"), {"every": 60, "max_attempts": value}) for value in WHOLE),
        *((app.schedule, ("s", "shop.order.v1"), {"every": 60, "priority": value}) for value in (True, -1)),
        (app.schedule, ("s", "shop.order.v1"), {"cron": LONG}),
        (app.schedule, ("s", "shop.order.v1"), {"cron": "* * * * *", "zone": LONG}),
        *((app.rates, (value,), {}) for value in TIMES),
        *((app.rates, (), {"until": value}) for value in TIMES),
        *((app.rates, (), {"limit": value}) for value in (True, 1.5, -1, "3", HUGE)),
        (app.remove_webhook, (LONG,), {}),
        (app.start_many, ("shop.order.v1",), {}),
    ]
    for call, args, options in calls:
        await refused_async(call, *args, **options)
    assert (await app.limits(), await app.registry(), await app.schedules(ANY)) == ([], [], [])


@pytest.mark.spec("START-10")
async def test_a_filter_takes_texts_of_statuses_and_ids(app):
    run = await app.start("shop.order.v1")
    child = await app.start("shop.order.v1", parent=run.id)
    where = hf.RunFilter(statuses=("pending",), parent=str(run.id))
    assert [one.id for one in await app.list(where)] == [child.id]


async def test_workers_apps_and_sinks_refuse_bad_options_when_they_are_created(app):
    for field in ("slots", "batch"):
        for value in WHOLE:
            refused(app.worker, **{field: value})
    for field in ("lease", "grace", "poll"):
        for value in SPANS:
            refused(app.worker, **{field: value})
    for value in NAMES:
        refused(app.worker, name=value)
        refused(app.sink, value)
        refused(hf.App, app.store, name=value)
    for options in ({"tenants": "acme"}, {"patterns": "billing.%"}, {"patterns": (LONG,)}, {"runtime": LONG}):
        refused(app.worker, **options)
    for value in WHOLE:
        refused(hf.App, app.store, threads=value)
    for value in SPANS:
        refused(app.sink, "mail", timeout=value)
    for value in (5, Path("runs.db")):
        assert "give a URL, as in 'sqlite:///holdfast.db'" in refused(hf.App, value)
    assert app.worker(name="n" * 255).id.startswith("n" * 255 + ":")


@pytest.mark.spec("START-10", "RETRY-1")
def test_a_definition_refuses_bad_options_when_it_is_created(app):
    """attempts=sys.maxsize must not stop the app on Postgres, and math.inf must not become 3."""
    for value in WHOLE:
        for policy in (hf.Backoff.fixed, hf.Backoff.exponential, hf.Backoff.linear, hf.Backoff.quadratic):
            refused(policy, attempts=value)
        refused(hf.Backoff.of, [1, 2], attempts=value)
        refused(hf.Backoff.of, float, attempts=value)
        refused(app.workflow("shop.order.v1", steps_max=value), body)
        refused(app.plan, "shop.plan.v1", [hf.Task("A")], max_waits=value)
        refused(app.plan, "shop.plan.v1", [hf.Task("A", attempts=value)])
    for value in SPANS:
        refused(hf.Backoff.fixed, value)
        refused(hf.Backoff.exponential, value)
        refused(hf.Backoff.exponential, cap=value)
        refused(hf.Backoff.of, [1, value])
        for option in ("timeout", "refresh"):
            refused(app.workflow("shop.order.v1", **{option: value}), body)
        for option in ("timeout", "no_handler_after"):
            refused(app.plan, "shop.plan.v1", [hf.Task("A")], **{option: value})
        refused(app.plan, "shop.plan.v1", [hf.Sleep("A", value)])
        refused(app.plan, "shop.plan.v1", [hf.Wait("A", "t", timeout=value)])
        refused(app.plan, "shop.plan.v1", [hf.Approval("A", timeout=value)])
    for value in (True, -1, math.nan, math.inf, "1", 10**30):
        refused(hf.Backoff.fixed, jitter=value)
        refused(app.workflow("shop.order.v1", budget=value), body)
    for value in (True, 1.5, -1, 10, "6"):
        refused(hf.Compress, level=value)
    for value in (True, 1.5, -1, 10**30, "6"):
        refused(hf.Compress, min_bytes=value)
    for fatal in ("ValueError", (ValueError(),), 7):
        refused(hf.Backoff.fixed, fatal=fatal)
    refused(app.workflow(f"shop.{LONG}.v1"), body)
    assert app.workflows == {}


def bad_requests(ctx):
    """Everything that a running workflow can ask for, each with something wrong in it."""
    return {
        "sleep": lambda: ctx.sleep(-1),
        "sleep inf": lambda: ctx.sleep(math.inf),
        "sleep units": lambda: ctx.sleep(days=10**9),
        "sleep text": lambda: ctx.sleep("5"),
        "sleep unknown": lambda: ctx.sleep(years=1),
        "sleep_until": lambda: ctx.sleep_until(TIMES[0]),
        "sleep_until date": lambda: ctx.sleep_until(TIMES[3]),
        "await_event": lambda: ctx.await_event("t", timeout=-1),
        "await_event topic": lambda: ctx.await_event(LONG),
        "approval": lambda: ctx.approval("ok?", timeout=math.inf),
        "approval name": lambda: ctx.approval(LONG),
        "call": lambda: ctx.call("shop.else.v1", max_attempts=2**31),
        "call priority": lambda: ctx.call("shop.else.v1", priority=True),
        "call type": lambda: ctx.call(f"shop.{LONG}.v1"),
        "start": lambda: ctx.start("shop.else.v1", max_attempts=sys.maxsize),
        "start delay": lambda: ctx.start("shop.else.v1", delay=-1),
        "start run_at": lambda: ctx.start("shop.else.v1", run_at=TIMES[0]),
        "map": lambda: ctx.map("m", len, ["a"], limit=True),
        "map limit": lambda: ctx.map("m", len, ["a"], limit=math.inf),
        "step name": lambda: ctx.step(LONG, len, "a"),
        "step timeout": lambda: ctx.step("s", len, "a", timeout=-1),
        "step retry": lambda: ctx.step("s", len, "a", retry=3),
        "step cost": lambda: ctx.step("s", ctx.cost, -1),
        "step cost text": lambda: ctx.step("s", ctx.cost, "5"),
        "step cost nan": lambda: ctx.step("s", ctx.cost, math.nan),
        "step cost sum": lambda: ctx.step("s", lambda: (ctx.cost(10**9), ctx.cost(1))),
        "retry after": lambda: ctx.step("s", _later),
        "emit": lambda: ctx.emit(LONG),
        "send": lambda: ctx.send(LONG),
        "progress": lambda: ctx.progress("abc"),
        "progress inf": lambda: ctx.progress(1, 10**400),
        "log": lambda: ctx.log("m", level=LONG),
    }


def _later():
    raise RetryAfter(HUGE)


@pytest.mark.spec("START-10", "RETRY-7")
async def test_a_mistake_inside_a_workflow_fails_it_with_kind_usage_at_once(app):
    """A bad argument of ctx.call must not crash the run until its crash limit."""
    executions = []

    @app.workflow("shop.order.v1", retry=hf.Backoff.fixed(0, attempts=5))
    async def order(ctx, how: str):
        executions.append(how)
        asked = bad_requests(ctx)[how]()
        if asked is not None:
            await asked

    hows = list(bad_requests(None))
    async with app.worker():
        for how in hows:
            run = await app.start(order, how)
            assert await outcome(app, run) == ("failed", "usage"), how
            found = await app.get(run.id)
            assert_clear(found.error.message)
            assert found.last_error.startswith("usage: "), how
            assert (found.crashes, found.attempt) == (0, 1), how
    assert executions == hows
    assert {run.type for run in await app.list(limit=1000)} == {"shop.order.v1"}


@pytest.mark.spec("START-10", "RETRY-7", "PLAN-16")
@pytest.mark.parametrize(
    "answer",
    [
        lambda _: hf.Waiting(timeout=-1),
        lambda _: hf.Waiting(LONG),
        lambda _: hf.Waiting(timeout=timedelta.max),
        lambda _: hf.Retry(delay=math.inf),
        lambda _: hf.Retry(delay=True),
        lambda _: hf.Retry(error=7),
        lambda _: hf.Dead(7),
        lambda _: hf.Completed(cost=math.nan),
        lambda _: hf.Completed(cost=-1),
        lambda _: hf.Completed(cost="5"),
        lambda _: hf.Completed(outbound=7),
        lambda task: task.cost(math.inf),
        lambda task: task.progress("abc"),
        lambda task: task.log("m", level=LONG),
    ],
)
async def test_a_mistake_in_a_plan_handler_fails_the_run_with_kind_usage_at_once(app, answer):
    seen = []
    plan = app.plan("shop.plan.v1", [hf.Task("SHIP")], retry=hf.Backoff.fixed(0, attempts=5))

    @plan.task("SHIP")
    def ship(task):
        seen.append(1)
        return answer(task)

    async with app.worker():
        run = await app.start(plan)
        assert await outcome(app, run) == ("failed", "usage")
    found = await app.get(run.id)
    assert (found.error.step, found.crashes, seen) == ("SHIP", 0, [1])


@pytest.mark.spec("START-10", "RETRY-7")
async def test_an_argument_that_only_the_store_refuses_fails_the_run_without_crashes(app, monkeypatch):
    """The last guard: an argument that the engine let through fails its own run alone, and at once."""
    monkeypatch.setattr("holdfast.engine.app.new_run.check_attempts", lambda _, attempts: attempts)

    @app.workflow("shop.order.v1")
    async def order(ctx, attempts: int):
        await ctx.start("shop.else.v1", max_attempts=attempts)
        return 1

    async with app.worker():
        bad, good = await app.start(order, 2**31), await app.start(order, 2)
        assert await good.result(60)
        assert await outcome(app, bad) == ("failed", "usage")
    found = await app.get(bad.id)
    assert found.crashes == 0
    assert found.error.message.startswith("max_attempts is 2147483648: give a whole number from 1")


def test_a_value_in_a_message_is_cut_however_large_it_is():
    for value in (
        LONG,
        HUGE,
        -HUGE,
        [HUGE] * 10**5,
        dict.fromkeys(range(10**6)),
        b"x" * 10**7,
        set(range(10**5)),
    ):
        message = refused(check_whole, "n", value)
        assert len(message) < 400
    assert clipped(3) == "3"
    assert clipped("ab") == "'ab'"
    assert clipped(HUGE) == "<a whole number of 332,193 bits>"


@pytest.mark.parametrize(
    ("value", "total"), [(5, 5.0), (0.5, 0.5), (hf.minutes(2), 120.0), (hf.seconds(90), 90.0)]
)
def test_a_duration_is_a_number_of_seconds_or_a_timedelta(value, total):
    assert to_seconds(value) == total


@pytest.mark.parametrize("make", [hf.seconds, hf.minutes, hf.hours, hf.days, hf.weeks])
@pytest.mark.parametrize("value", [math.inf, math.nan, 10**30, "5", None])
def test_duration_functions_refuse_values_that_are_no_duration(make, value):
    refused(make, value)
