"""Arguments of the functions in docs/sql.md are refused like an insert, and like arguments in Python."""

from __future__ import annotations

import json
import re

import psycopg
import pytest

from holdfast.arguments import check_name, check_priority, check_topic, check_type
from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import RunFilter
from holdfast.testing.contract.driver import TYPE, gate, task

FAR = 253_402_300_800_000_000  # the first microsecond of the year 10000, which Python cannot show
INSERT = "insert into workflow.workflow_run ({}) values ({}) returning id"
START = "select workflow.start(:'runs')"


def new(driver, **fields):
    said = {"type": TYPE, "params": "1", "digest": "d", "tenant": "default", "priority": 100}
    return {"id": str(driver.id()), **said, **fields}


def words(user_sql, text, **values):
    """The text of a refusal: one line, with the code for a mistake of the caller."""
    with pytest.raises(psycopg.Error) as caught:
        user_sql(text, **values)
    assert caught.value.diag.sqlstate == "HF007", caught.value
    assert "\n" not in caught.value.diag.message_primary
    return caught.value.diag.message_primary


# A field of a start, a column of an insert, and a value that both refuse.
BAD = [
    ("type", "type", "shop"),
    ("type", "type", "shop.order.v0"),
    ("type", "type", TYPE + "\n"),
    ("tenant", "tenant", ""),
    ("tenant", "tenant", "a\x1fb"),
    ("tenant", "tenant", "x" * 256),
    ("key", "idempotency_key", ""),
    ("key", "idempotency_key", "a\x1fb"),
    ("key", "idempotency_key", "x" * 5000),
    ("limit_key", "limit_key", ""),
    ("limit_key", "limit_key", "x" * 256),
    ("priority", "priority", -1),
    ("priority", "priority", 1000),
    ("max_attempts", "max_attempts", 0),
    ("budget", "budget", 0),
    ("labels", "labels", "[1]"),
    ("labels", "labels", '{"n": 1}'),
]


@pytest.mark.spec("SQL-5", "SQL-7")
@pytest.mark.parametrize(("field", "column", "value"), BAD)
@pytest.mark.parametrize("how", ["alone", "among others", "with a parent", "as a plan"])
def test_a_start_by_the_function_is_refused_in_the_words_of_an_insert(
    driver, user_sql, field, column, value, how
):
    """The whole call is refused, however it is started, and nothing is written."""
    parent = driver.start() if how == "with a parent" else None
    if how == "as a plan":
        driver.publish(gate("A"), task("B"))
    before = driver.everything()
    bad = new(driver, **{field: value}, **({"parent": str(parent)} if parent else {}))
    runs = [new(driver), bad, new(driver)] if how == "among others" else [bad]
    typed = {} if column == "type" else {"type": TYPE}
    columns = {**typed, column: value}
    insert = INSERT.format(", ".join(columns), ", ".join(f":'{name}'" for name in columns))
    said = words(user_sql, insert, **columns)
    assert words(user_sql, START, runs=json.dumps(runs)) == said.replace("idempotency_key", "key")
    assert driver.everything() == before


@pytest.mark.spec("SQL-5")
@pytest.mark.parametrize("run_at", [FAR, 9 * 10**18, -62_135_596_800_000_001])
@pytest.mark.parametrize("kind", ["code", "plan"])
def test_a_start_for_a_time_that_nobody_can_show_is_refused(driver, user_sql, run_at, kind):
    """An insert is refused too, for its smaller range. Lists and their readers go on."""
    if kind == "plan":
        driver.publish(task("A"))
    said = words(user_sql, START, runs=json.dumps([new(driver, run_at=run_at)]))
    assert said == f"run_at {run_at}: a time in the years 1 to 9999"
    said = words(user_sql, INSERT.format("type, run_at", f"'{TYPE}', 'infinity'"))
    assert said == "run_at infinity: a time in the years 1970 to 9998"
    assert driver.run(driver.store.list(RunFilter())) == []


@pytest.mark.spec("SQL-5")
@pytest.mark.parametrize("run_at", [FAR - 1, -62_135_596_800_000_000, 0])
def test_a_time_that_python_can_show_is_taken(driver, user_sql, run_at):
    """The other stores accept it too."""
    ((answer,),) = user_sql(START, runs=json.dumps([new(driver, run_at=run_at)]))
    assert answer[0]["created"]
    (shown,) = driver.run(driver.store.list(RunFilter()))
    assert shown.status is Status.PENDING


@pytest.mark.parametrize(
    ("check", "field", "value"),
    [
        (check_type, "type", "shop"),
        (lambda said: check_name("tenant", said), "tenant", "x" * 256),
        (lambda said: check_name("key", said), "key", ""),
        (check_priority, "priority", 1000),
    ],
)
def test_the_words_are_those_of_the_library(driver, user_sql, check, field, value):
    """Except where the library guesses what was meant."""
    with pytest.raises(UsageError) as caught:
        check(value)
    said = words(user_sql, START, runs=json.dumps([new(driver, **{field: value})]))
    assert said.partition(", for example")[0] == str(caught.value).partition(", for example")[0]


EMIT = "select workflow.{}(:'event')"


@pytest.mark.spec("SQL-5")
@pytest.mark.parametrize("verb", ["emit", "emit_at_once"])
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("topic", "", "topic '': 1 to 512 characters of text, without NUL"),
        ("topic", "x" * 513, f"topic '{'x' * 40}': 1 to 512 characters of text, without NUL"),
        ("id", "", "event id '': 1 to 255 characters of text, without NUL or U+001F"),
        ("id", "a\x1fb", "event id 'a b': 1 to 255 characters of text, without NUL or U+001F"),
        ("tenant", "x" * 256, f"tenant '{'x' * 40}': 1 to 255 characters of text, without NUL or U+001F"),
    ],
)
def test_an_event_is_refused_in_the_words_of_the_library(driver, user_sql, verb, field, value, said):
    event = {"topic": "parcel", "id": "e", "payload": "1", field: value}
    before = driver.everything()
    assert words(user_sql, EMIT.format(verb), event=json.dumps(event)) == said
    assert driver.everything() == before
    if field == "topic":
        with pytest.raises(UsageError, match=re.escape(said)):
            check_topic(value)


@pytest.mark.parametrize("field", ["topic", "id"])
def test_an_event_without_topic_or_id_is_refused(user_sql, field):
    event = {"topic": "parcel", "id": "e", "payload": "1"}
    del event[field]
    assert "1 to " in words(user_sql, EMIT.format("emit"), event=json.dumps(event))


SCHEDULE = {
    "id": "0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10", "name": "n", "tenant": "default", "type": TYPE,
    "params": "1", "cron": None, "zone": "UTC", "every_us": 10**6, "anchor_at": 0, "next_at": 10**15,
    "jitter_us": 0, "overlap": "skip", "catch_up": "one", "priority": 100,
}  # fmt: skip


@pytest.mark.spec("SQL-5")
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("next_at", FAR, f"next_at {FAR}: a time in the years 1 to 9999"),
        ("anchor_at", 9 * 10**18, f"anchor_at {9 * 10**18}: a time in the years 1 to 9999"),
        ("name", "", "schedule '': 1 to 255 characters of text, without NUL or U+001F"),
        ("tenant", "", "tenant '': 1 to 255 characters of text, without NUL or U+001F"),
        ("priority", 1000, "priority 1000: a whole number from 0 to 999, lower goes first"),
        ("labels", "[]", "labels []: an object of text"),
    ],
)
def test_a_schedule_that_could_not_be_shown_or_fired_is_refused(driver, user_sql, field, value, said):
    call = "select workflow.schedule(:'new')"
    user_sql(call, new=json.dumps(SCHEDULE))
    assert words(
        user_sql, call, new=json.dumps({**SCHEDULE, "every_us": 2 * 10**6, field: value})
    ).startswith(said)
    assert len(driver.run(driver.store.schedules("default"))) == 1


@pytest.mark.spec("SQL-5")
def test_a_pause_until_a_time_that_nobody_can_show_is_refused(driver, user_sql):
    call = "select workflow.pause_key('k', :'until', null)"
    assert words(user_sql, call, until=FAR) == f"until {FAR}: a time in the years 1 to 9999"
    assert driver.run(driver.store.limits()) == []


@pytest.mark.spec("SQL-5")
def test_a_schedule_goes_on_at_a_time_that_can_be_shown(driver, user_sql):
    user_sql("select workflow.schedule(:'new')", new=json.dumps(SCHEDULE))
    user_sql("select workflow.pause_schedule('n', 'default', 'me')")
    call = "select workflow.resume_schedule('n', 2, :'at', 'default')"
    assert words(user_sql, call, at=FAR) == f"next_at {FAR}: a time in the years 1 to 9999"


@pytest.mark.parametrize("at", ["'infinity'", "'-infinity'", "'20000-01-01'", "'4000-01-01 BC'"])
def test_a_row_with_an_absurd_time_breaks_no_list(driver, user_sql, at):
    """A time that was written past all triggers is shown as the nearest valid time."""
    run, other = driver.start(), driver.start()
    user_sql(
        f"update workflow.workflow_run set run_at = {at}, timeout_at = {at}, rev = rev + 1 where id = '{run}'"
    )
    assert {one.id for one in driver.run(driver.store.list(RunFilter()))} == {run, other}
    assert driver.get(run).run_at.year in {1, 9999}


@pytest.mark.parametrize(("type_", "tenant"), [("holdfast.bulk.v1", "default"), (TYPE, "holdfast.operator")])
def test_an_insert_with_a_name_of_the_engine_is_refused(driver, user_sql, type_, tenant):
    """A bulk operation of the operator may change the runs of all tenants."""
    insert = INSERT.format("type, tenant", ":'type', :'tenant'")
    assert "begin with holdfast. are reserved" in words(user_sql, insert, type=type_, tenant=tenant)
    user_sql(insert, type="holdfasts.bulk.v1", tenant="holdfasts")
