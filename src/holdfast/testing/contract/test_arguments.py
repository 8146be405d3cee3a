"""Arguments that no store can keep: every store refuses them with the same words, and changes nothing."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from enum import IntEnum
from uuid import UUID

import pytest

from holdfast.errors import UsageError
from holdfast.lifecycle import Move, Status
from holdfast.records import (
    ANY,
    SECOND,
    Ask,
    Definition,
    Fire,
    Firing,
    NewEvent,
    NewRun,
    NewSchedule,
    Outbound,
    PlanStep,
    Presence,
    RelayAsk,
    Relayed,
    RunFilter,
    Started,
    StepWrite,
    Webhook,
)

from .driver import EPOCH, TYPE, call, done, sleep

LATE = 253_402_300_800 * SECOND  # the first instant of the year 10000
LONG = "x" * 5000
HUGE = 10**100_000  # more digits than Python prints

# Values that are no whole number of 32 bits from 1 on.
NOT_WHOLE = [True, 1.5, math.inf, math.nan, "3", 2**31, sys.maxsize, 10**30, HUGE, -(2**31) - 1]
NOT_COUNTED = [*NOT_WHOLE, 0, -1]
NO_SPAN = [-1.0, -1e30, math.nan, -math.inf, "5", True]
NO_TIME = [LATE, 2**63, 10**30, math.inf, 1.5, True, "now"]
NO_NAME = ["", LONG, "a\0b", "a\x1fb", 7]

WRONG_RUNS = [
    *(("max_attempts", value) for value in NOT_COUNTED),
    *(("priority", value) for value in (True, 1.5, math.nan, -1, 1000, 10**30, "5", None)),
    *(("budget", value) for value in (True, 1.5, 0, -1, 10**30, math.inf)),
    *((field, value) for field in ("delay_seconds", "timeout_seconds", "ttl_seconds") for value in NO_SPAN),
    *(("run_at", value) for value in NO_TIME),
    *((field, value) for field in ("tenant", "key", "limit_key") for value in NO_NAME),
    ("tenant", "\U0001f680" * 129),  # 516 bytes
    *(("type", value) for value in (f"shop.{LONG}.v1", f"shop.{'x' * 250}.v1", "shop", "", 7)),
]


def refused(driver, verb, *args, **fields):
    """Return the words of a refusal: one line of bounded length."""
    with pytest.raises(UsageError) as refusal:
        driver.run(getattr(driver.store, verb)(*args, **fields))
    assert_clear(refusal.value)
    return str(refusal.value)


def assert_clear(error):
    assert isinstance(error, UsageError)
    assert len(str(error)) < 500
    assert "\n" not in str(error)


@contextmanager
def unchanged(driver):
    """Check that nothing has changed at the end of the block."""
    driver.start()
    before = driver.everything()
    yield
    assert driver.everything() == before


@pytest.mark.spec("START-10", "START-5")
def test_a_bad_run_is_answered_by_its_error_and_the_others_are_started(driver):
    good = [NewRun(id=driver.id(), type=TYPE) for _ in range(len(WRONG_RUNS) + 1)]
    bad = [NewRun(**{"id": driver.id(), "type": TYPE, field: value}) for field, value in WRONG_RUNS]
    mixed = [good[0], *(run for pair in zip(bad, good[1:], strict=True) for run in pair)]
    answers = driver.start_many(mixed)
    assert answers[::2] == [Started(run.id, created=True) for run in good]
    for (field, _), error in zip(WRONG_RUNS, answers[1::2], strict=True):
        assert isinstance(error, UsageError), field
        assert_clear(error)
    assert {run.id for run in driver.run(driver.store.list(RunFilter(), 1000))} == {run.id for run in good}


@pytest.mark.spec("START-10")
def test_a_call_with_bad_runs_alone_starts_nothing(driver):
    (error,) = driver.start_many([NewRun(id=driver.id(), type=TYPE, max_attempts=2**31)])
    assert str(error) == (
        "max_attempts is 2147483648: give a whole number from 1 to 2,147,483,647; the first execution counts"
    )
    assert driver.run(driver.store.list(RunFilter())) == []


@pytest.mark.spec("START-10")
def test_the_largest_values_that_are_taken_come_back(driver):
    widest = f"shop.{'x' * 247}.v1"
    run = driver.start(
        widest, max_attempts=2**31 - 1, priority=999, run_at=LATE - 1, key="k" * 255, tenant="t" * 255,
        limit_key="l" * 255, budget=10**15,
    )  # fmt: skip
    shown = driver.get(run)
    assert len(shown.type) == 255
    assert (shown.max_attempts, shown.priority, shown.run_at.year) == (2**31 - 1, 999, 9999)
    assert (shown.key, shown.budget_units) == ("k" * 255, 10**15)


def _steps(run):
    return [
        *(done("a", attempts=value) for value in (True, 1.5, 2**31, -1, HUGE)),
        *(done("a", cost=value) for value in (True, 1.5, -1, 10**30, math.inf)),
        *(sleep("nap", value) for value in NO_SPAN),
        *(sleep("nap", 1.0, due_at=value) for value in NO_TIME),
        done("a", started_at=LATE),
        *(done(key) for key in ("", LONG, 7)),
        sleep("nap", 1.0, topic=LONG),
        call("child", run, max_attempts=2**31),
        call("child", run, type=f"shop.{LONG}.v1"),
        call("child", run, priority=True),
        call("child", run, delay_seconds=-1.0),
    ]


@pytest.mark.spec("START-10")
def test_a_step_that_no_store_can_keep_is_refused_with_its_batch(driver):
    """Neither the item nor any other item of the same commit is applied."""
    first, second = driver.held(), driver.held()
    before = driver.everything()
    for write in _steps(driver.id()):
        move = Move.PARK if write.kind != "task" else Move.CHECKPOINT
        good = driver.item(first, Move.CHECKPOINT, done("a"))
        with pytest.raises(UsageError) as refusal:
            driver.send(good, driver.item(second, move, write))
        assert_clear(refusal.value)
    assert driver.everything() == before
    assert (driver.status(first.id), driver.status(second.id)) == (Status.LEASED, Status.LEASED)


@pytest.mark.spec("START-10")
def test_an_item_that_no_store_can_keep_is_refused(driver):
    claim = driver.held()
    before = driver.everything()
    for fields in (
        {"delay_seconds": -1.0},
        {"started_at": LATE},
        {"lease_seconds": math.nan},
        {"fence": 2**63},
        {"fence": True},
        {"number": 1.5},
        {"events": (NewEvent(topic=LONG, id="e"),)},
        {"events": (NewEvent(topic="t", id=LONG),)},
        {"events": (NewEvent(topic="t", id="e", keep_seconds=-1.0),)},
        {"outbox": (Outbound(id="m", sink=LONG),)},
        {"outbox": (Outbound(id="m", sink="s", key=""),)},
        {"move": Move.COMPLETE, "starts": (NewRun(id=UUID(int=1), type=TYPE, max_attempts=2**31),)},
        {"move": Move.ADVANCE, "plan": (PlanStep(name="A", max_attempts=2**31),)},
    ):
        with pytest.raises(UsageError) as refusal:
            driver.commit(claim, **{"move": Move.RETRY, **fields})
        assert_clear(refusal.value)
    assert driver.everything() == before


@pytest.mark.spec("START-10")
def test_a_claim_for_no_number_of_runs_takes_none(driver):
    with unchanged(driver):
        for wrong in (
            *({"limit": value} for value in NOT_WHOLE),
            {"worker": LONG},
            {"worker": 7},
            {"types": (f"shop.{LONG}.v1",)},
            {"tenants": ("",)},
            {"runtime": LONG},
            {"lease_seconds": math.nan},
            {"lease_seconds": -1.0},
            {"crashed": (True,)},
        ):
            refused(driver, "claim", Ask(**{"worker": "w", "types": (TYPE,), "limit": 1, **wrong}))


COUNTS = [
    ("list", (RunFilter(),), "limit", NOT_WHOLE),
    ("outlines", (RunFilter(),), "limit", NOT_WHOLE),
    ("trail", (None, ANY), "limit", NOT_WHOLE),
    ("trail", (None, ANY), "after", [True, 1.5, 2**63, -1, "1"]),
    ("trail", (None, ANY), "between", [(LATE, None), (None, 1.5)]),
    ("follow", ([(UUID(int=1), 0)], ANY), "limit", NOT_WHOLE),
    ("follow", ([(UUID(int=1), 0)], ANY), "bytes", [True, 1.5, 2**63, "1"]),
    *(("follow_all", (ANY,), name, [True, 1.5, 2**63, "1"]) for name in ("limit", "after", "bytes")),
    ("stuck", (), "limit", NOT_WHOLE),
    ("approvals", ("default",), "limit", NOT_WHOLE),
    ("outbox", (), "limit", NOT_WHOLE),
    ("outbox", (), "after", [True, 1.5, 2**63, -1]),
    ("schedules", ("default",), "limit", NOT_WHOLE),
    ("due_schedules", (), "limit", NOT_WHOLE),
    ("tick", (), "limit", NOT_COUNTED),
    ("deliver", (), "limit", NOT_COUNTED),
    ("purge", (), "limit", NOT_COUNTED),
    ("purge", (), "ttl_seconds", NO_SPAN),
    ("purge", (), "deleted_seconds", NO_SPAN),
    ("append_step", (UUID(int=1), "A", ANY), "max_attempts", NOT_COUNTED),
    ("append_step", (UUID(int=1),), "name", ["", LONG, 7]),
    ("set_priority", (UUID(int=1),), "priority", [*NOT_WHOLE, -1, 1000, None]),
    ("limit", ("key", "k"), "concurrency", [*NOT_WHOLE, -1, 2**40]),
    ("limit", ("key", "k"), "rate", [(value, 60.0) for value in NOT_COUNTED]),
    ("limit", ("key", "k"), "rate", [(1, value) for value in (*NO_SPAN, 0.0)]),
    ("limit", ("tenant", "k"), "weight", [True, math.nan, math.inf, 0, -1, 10**30, "1"]),
    ("limit", ("key",), "name", [*NO_NAME, "a\ud800"]),
    ("pause_key", ("k",), "delay_seconds", NO_SPAN),
    ("pause_key", ("k",), "until", NO_TIME),
    ("pause_key", (), "key", [*NO_NAME, "a\ud800"]),
    ("register", (), "name", ["", LONG, f"shop.{LONG}", 7]),
    ("register", ("shop.order",), "runtime", NO_NAME),
    ("register", ("shop.order",), "description", ["x" * 10_001, "a\0b", 7]),
    ("resume_schedule", ("s",), "rev", [True, 1.5, 2**63, -1]),
]


MORE = {
    ("resume_schedule", "rev"): {"next_at": None, "tenant": "default"},
    ("append_step", "name"): {"tenant": ANY},
    ("set_priority", "priority"): {"tenant": ANY},
}


@pytest.mark.spec("START-10")
def test_a_verb_refuses_what_is_no_number_no_time_and_no_name(driver):
    """The refusal is bounded in time and length, also for a number of 100,000 digits, which Python does not
    print.
    """
    with unchanged(driver):
        for verb, args, field, values in COUNTS:
            more = MORE.get((verb, field), {})
            for value in values:
                refused(driver, verb, *args, **{field: value}, **more)


NEW = {"id": UUID(int=7), "name": "s", "type": TYPE, "every_us": SECOND, "anchor_at": EPOCH, "next_at": EPOCH}


@pytest.mark.spec("START-10", "SCHED-1")
def test_a_schedule_that_no_store_can_keep_is_refused(driver):
    with unchanged(driver):
        for field, values in (
            ("name", NO_NAME),
            ("tenant", NO_NAME),
            ("limit_key", NO_NAME),
            ("type", [f"shop.{LONG}.v1", "shop"]),
            ("max_attempts", NOT_COUNTED),
            ("priority", [True, -1, 1000, 1.5]),
            ("budget", [True, 0, 10**30]),
            ("timeout_seconds", NO_SPAN),
            ("ttl_seconds", NO_SPAN),
            ("every_us", [True, 0, 1.5, 10**30]),
            ("jitter_us", [True, -1, 1.5, 10**30]),
            ("anchor_at", NO_TIME),
            ("next_at", NO_TIME),
            ("cron", [LONG]),
            ("zone", [LONG]),
        ):
            for value in values:
                refused(driver, "schedule", NewSchedule(**{**NEW, field: value}))
        assert driver.run(driver.store.schedules(ANY)) == []


RECORDS = [
    ("emit", NewEvent(topic=LONG, id="e")),
    ("emit", NewEvent(topic="t", id=LONG)),
    ("emit", NewEvent(topic="t", id="e", tenant="")),
    ("emit", NewEvent(topic="t", id="e", keep_seconds=-1.0)),
    ("emit", NewEvent(topic="t", id="e", keep_seconds=math.nan)),
    ("publish", [Definition(type=TYPE, max_attempts=sys.maxsize)]),
    ("publish", [Definition(type=TYPE, max_attempts=math.inf)]),
    ("publish", [Definition(type=TYPE), Definition(type=f"shop.{LONG}.v1")]),
    ("publish", [Definition(type=TYPE, timeout_seconds=-1.0)]),
    ("publish", [Definition(type=TYPE, budget=10**30)]),
    ("publish", [Definition(type=TYPE, kind="plan", steps=(PlanStep(name="A", max_attempts=2**31),))]),
    ("publish", [Definition(type=TYPE, kind="plan", steps=(PlanStep(name="A", timeout_seconds=-1.0),))]),
    ("publish", [Definition(type=TYPE, kind="plan", steps=(PlanStep(name=LONG),))]),
    ("present", Presence(worker=LONG, types=(TYPE,))),
    ("present", Presence(worker="w", types=(TYPE,), slots=2**40)),
    ("present", Presence(worker="w", types=(TYPE,), slots=True)),
    ("fire_schedule", Firing(schedule=UUID(int=7), name="s", tenant="default", rev=2**63)),
    ("fire_schedule", Firing(schedule=UUID(int=7), name="s", tenant="default", rev=1, next_at=LATE)),
    (
        "fire_schedule",
        Firing(
            schedule=UUID(int=7), name="s", tenant="default", rev=1,
            fires=(Fire(EPOCH, NewRun(id=UUID(int=8), type=TYPE, priority=True)),),
        ),
    ),
    ("relay", RelayAsk(relay="r", limit=2**40)),
    ("relay", RelayAsk(relay="r", each=True)),
    ("relay", RelayAsk(relay="r", lease_seconds=-1.0)),
    ("relay", RelayAsk(relay="r", bounds={"mail": 1.5})),
    ("relay", RelayAsk(relay=LONG)),
    ("relayed", [Relayed(id="m", fence=True, answer="sent")]),
    ("relayed", [Relayed(id="m", fence=1, answer="failed", delay_seconds=-1.0)]),
    ("put_webhook", Webhook(name=LONG, target="{}")),
]  # fmt: skip


@pytest.mark.spec("START-10")
def test_a_record_that_no_store_can_keep_is_refused(driver):
    with unchanged(driver):
        for verb, record in RECORDS:
            refused(driver, verb, record)
        assert list(driver.run(driver.store.definitions())) == []
        assert driver.stats().workers == ()


@pytest.mark.spec("START-10")
def test_a_renewal_for_no_time_renews_nothing(driver):
    claim = driver.held()
    before = driver.snapshot(claim.id)
    for lease in (math.nan, -1.0, "5"):
        with pytest.raises(UsageError):
            driver.renew(claim, lease=lease)
    with pytest.raises(UsageError):
        driver.renew(claim, worker=LONG)
    assert driver.snapshot(claim.id) == before


@pytest.mark.spec("START-10")
def test_the_words_of_a_refusal_are_the_same_on_every_store(driver):
    """A reader of the message need not know the store."""
    claim = driver.held()
    with pytest.raises(UsageError) as refusal:
        driver.park(claim, StepWrite(key="nap", kind="sleep", status="waiting", delay_seconds=-1.0))
    said = [
        str(refusal.value),
        refused(driver, "limit", "key", "k", concurrency=2**40),
        refused(driver, "list", RunFilter(), True),
        refused(driver, "tick", 0),
        refused(driver, "pause_key", "k", LATE),
        refused(driver, "trail", None, ANY, after=HUGE),
    ]
    assert said == [
        "delay of a step is -1.0 s: a duration of 0 s or more",
        "concurrency is 1099511627776: give a whole number from 0 to 2,147,483,647",
        "limit is True: give a whole number from -2,147,483,647 to 2,147,483,647",
        "limit is 0: give a whole number from 1 to 2,147,483,647",
        "until 253402300800000000: give microseconds since 1970, for a time in the years 1 to 9999",
        "after is <a whole number of 332,193 bits>: give a whole number from 0 to 9,223,372,036,854,775,807",
    ]


class Markup(str):
    """A text of a subclass of str."""

    __slots__ = ()


@pytest.mark.spec("START-10")
def test_subclasses_of_text_and_numbers_are_refused_alike(driver):
    claim = driver.held()
    odd, number = Markup("x"), IntEnum("Size", {"S": 1}).S
    with unchanged(driver):
        answers = driver.start_many(
            [NewRun(id=driver.id(), type=TYPE, key=odd), NewRun(id=driver.id(), type=TYPE, priority=number)]
        )
        said = [
            *map(str, answers),
            refused(driver, "cancel", claim.id, ANY, by=odd),
            refused(driver, "get", claim.id, odd),
            refused(driver, "list", RunFilter(tenant=odd)),
            refused(driver, "unschedule", odd, "default"),
            refused(driver, "pause_key", odd),
            refused(driver, "limit", "key", "k", concurrency=number),
            refused(driver, "emit", NewEvent(topic=odd, payload="1", id="e")),
        ]
        with pytest.raises(UsageError) as refusal:
            driver.checkpoint(claim, done(odd))
        said.append(str(refusal.value))
    assert said == [
        *(
            "key 'x' is of type Markup: give a plain str",
            "priority <Size.S: 1> is of type Size: give a plain int",
        ),
        "by 'x' is of type Markup: give a plain str",
        "tenant 'x' is of type Markup: give a plain str",
        "tenant 'x' is of type Markup: give a plain str",
        "name 'x' is of type Markup: give a plain str",
        "key 'x' is of type Markup: give a plain str",
        "concurrency <Size.S: 1> is of type Size: give a plain int",
        "topic 'x' is of type Markup: give a plain str",
        "key 'x' is of type Markup: give a plain str",
    ]
