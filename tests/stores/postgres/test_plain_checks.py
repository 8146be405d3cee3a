"""What a stranger hands to the functions of docs/sql.md is refused as his insert is, and as Python is."""

from __future__ import annotations

import json
import re

import psycopg
import pytest

from holdfast.arguments import check_name, check_priority, check_topic, check_type
from holdfast.errors import UsageError
from holdfast.lifecycle import Status
from holdfast.records import RunFilter
from holdfast.testing.contract.hand import TYPE, gate, task

FAR = 253_402_300_800_000_000  # the first microsecond of the year 10000, which no Python reader can show
INSERT = "insert into workflow.workflow_run ({}) values ({}) returning id"
START = "select workflow.start(:'runs')"


def new(hand, **fields):
    said = {"type": TYPE, "params": "1", "digest": "d", "tenant": "default", "priority": 100}
    return {"id": str(hand.id()), **said, **fields}


def words(plain, text, **values):
    """A refusal in one line, of the code that says: whoever called is wrong."""
    with pytest.raises(psycopg.Error) as caught:
        plain(text, **values)
    assert caught.value.diag.sqlstate == "HF007", caught.value
    assert "\n" not in caught.value.diag.message_primary
    return caught.value.diag.message_primary


# A field of a start, a column of an insert, and what neither takes.
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
def test_a_start_by_the_function_is_refused_in_the_words_of_an_insert(hand, plain, field, column, value, how):
    """All of the call, however it is started: nothing is there afterwards."""
    parent = hand.start() if how == "with a parent" else None
    if how == "as a plan":
        hand.publish(gate("A"), task("B"))
    before = hand.everything()
    bad = new(hand, **{field: value}, **({"parent": str(parent)} if parent else {}))
    runs = [new(hand), bad, new(hand)] if how == "among others" else [bad]
    typed = {} if column == "type" else {"type": TYPE}
    columns = {**typed, column: value}
    insert = INSERT.format(", ".join(columns), ", ".join(f":'{name}'" for name in columns))
    said = words(plain, insert, **columns)
    assert words(plain, START, runs=json.dumps(runs)) == said.replace("idempotency_key", "key")
    assert hand.everything() == before


@pytest.mark.spec("SQL-5")
@pytest.mark.parametrize("run_at", [FAR, 9 * 10**18, -62_135_596_800_000_001])
@pytest.mark.parametrize("kind", ["code", "plan"])
def test_a_start_for_a_time_that_nobody_can_show_is_refused(hand, plain, run_at, kind):
    """In the words of an insert. Lists, and whoever reads them, go on."""
    if kind == "plan":
        hand.publish(task("A"))
    said = words(plain, START, runs=json.dumps([new(hand, run_at=run_at)]))
    assert said == f"run_at {run_at}: a time from 1970 to 9998"
    assert re.sub(
        r" .*:", ":", words(plain, INSERT.format("type, run_at", f"'{TYPE}', 'infinity'"))
    ) == re.sub(r" .*:", ":", said)
    assert hand.run(hand.store.list(RunFilter())) == []


@pytest.mark.spec("SQL-5")
@pytest.mark.parametrize("run_at", [FAR - 1, -62_135_596_800_000_000, 0])
def test_a_time_that_python_can_show_is_taken(hand, plain, run_at):
    """As the other stores take it."""
    ((answer,),) = plain(START, runs=json.dumps([new(hand, run_at=run_at)]))
    assert answer[0]["created"]
    (shown,) = hand.run(hand.store.list(RunFilter()))
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
def test_the_words_are_those_of_the_library(hand, plain, check, field, value):
    """As far as they do not guess what was meant."""
    with pytest.raises(UsageError) as caught:
        check(value)
    said = words(plain, START, runs=json.dumps([new(hand, **{field: value})]))
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
def test_an_event_is_refused_in_the_words_of_the_library(hand, plain, verb, field, value, said):
    event = {"topic": "parcel", "id": "e", "payload": "1", field: value}
    before = hand.everything()
    assert words(plain, EMIT.format(verb), event=json.dumps(event)) == said
    assert hand.everything() == before
    if field == "topic":
        with pytest.raises(UsageError, match=re.escape(said)):
            check_topic(value)


@pytest.mark.parametrize("field", ["topic", "id"])
def test_an_event_without_topic_or_id_is_refused(plain, field):
    event = {"topic": "parcel", "id": "e", "payload": "1"}
    del event[field]
    assert "1 to " in words(plain, EMIT.format("emit"), event=json.dumps(event))


SCHEDULE = {
    "id": "0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10", "name": "n", "tenant": "default", "type": TYPE,
    "params": "1", "cron": None, "zone": "UTC", "every_us": 10**6, "anchor_at": 0, "next_at": 10**15,
    "jitter_us": 0, "overlap": "skip", "catch_up": "one", "priority": 100,
}  # fmt: skip


@pytest.mark.spec("SQL-5")
@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("next_at", FAR, f"next_at {FAR}: a time from 1970 to 9998"),
        ("anchor_at", 9 * 10**18, f"anchor_at {9 * 10**18}: a time from 1970 to 9998"),
        ("name", "", "schedule '': 1 to 255 characters of text, without NUL or U+001F"),
        ("tenant", "", "tenant '': 1 to 255 characters of text, without NUL or U+001F"),
        ("priority", 1000, "priority 1000: a whole number from 0 to 999, lower goes first"),
        ("labels", "[]", "labels []: an object of text"),
    ],
)
def test_a_schedule_that_could_not_be_shown_or_fired_is_refused(hand, plain, field, value, said):
    call = "select workflow.schedule(:'new')"
    plain(call, new=json.dumps(SCHEDULE))
    assert words(plain, call, new=json.dumps({**SCHEDULE, "every_us": 2 * 10**6, field: value})).startswith(
        said
    )
    assert len(hand.run(hand.store.schedules("default"))) == 1


@pytest.mark.spec("SQL-5")
def test_a_pause_until_a_time_that_nobody_can_show_is_refused(hand, plain):
    call = "select workflow.pause_key('k', :'until', null)"
    assert words(plain, call, until=FAR) == f"until {FAR}: a time from 1970 to 9998"
    assert hand.run(hand.store.limits()) == []


@pytest.mark.spec("SQL-5")
def test_a_schedule_goes_on_at_a_time_that_can_be_shown(hand, plain):
    plain("select workflow.schedule(:'new')", new=json.dumps(SCHEDULE))
    plain("select workflow.pause_schedule('n', 'default', 'me')")
    call = "select workflow.resume_schedule('n', 2, :'at', 'default')"
    assert words(plain, call, at=FAR) == f"next_at {FAR}: a time from 1970 to 9998"


@pytest.mark.parametrize("at", ["'infinity'", "'-infinity'", "'20000-01-01'", "'4000-01-01 BC'"])
def test_a_row_with_an_absurd_time_breaks_no_list(hand, plain, at):
    """Whoever wrote it past all triggers: it is shown with the nearest time that there is a word for."""
    run, other = hand.start(), hand.start()
    plain(
        f"update workflow.workflow_run set run_at = {at}, timeout_at = {at}, rev = rev + 1 where id = '{run}'"
    )
    assert {one.id for one in hand.run(hand.store.list(RunFilter()))} == {run, other}
    assert hand.get(run).run_at.year in {1, 9999}
