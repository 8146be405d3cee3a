"""User SQL keeps the limits of values: size, depth, characters and numbers, in every column that it may
write.
"""

from __future__ import annotations

import json
import time

import msgspec
import pytest

from holdfast.bounds import VALUE_BYTES
from holdfast.errors import BadValue, TooLarge
from holdfast.lifecycle import Status
from holdfast.records import RunFilter
from holdfast.testing.contract.driver import TYPE, done
from tests.stores.postgres.user_sql.user_sql import refused

ODD = {
    '"\\u0000"': "holds a NUL character, which no store can keep",
    '["a\\\\\\u0000"]': "holds a NUL character, which no store can keep",
    '"\\ud800"': "holds half of a surrogate pair, which is no text",
    '"\\uDC00x"': "holds half of a surrogate pair, which is no text",
    '{"\\udBff\\\\\\udc00": 1}': "holds half of a surrogate pair, which is no text",
    '"\\ud83d\\ud83d\\ude00"': "holds half of a surrogate pair, which is no text",
    "1e400": "holds the number 1e400, which no double holds",
    "[1, -1.8E+308]": r"holds the number -1.8E\+308, which no double holds",
    "1e00000": "holds the number 1e00000, which no double holds",
    "9" * 4301: "holds the number 99999999999999999999…, which no double holds",
    "9" * 400 + ".5": "holds the number 99999999999999999999…, which no double holds",
    "[" * 65 + "]" * 65: "is nested deeper than 64 levels",
    '{"[":' * 5000 + "1" + "}" * 5000: "is nested deeper than 64 levels",
    '"' + "x" * (VALUE_BYTES - 1) + '"': "is 4,194,305 bytes as JSON, the limit is 4,194,304",
}
FINE = [
    '"\\u0001\\ud83d\\ude00\\\\u0000 \\\\ud800"',
    '"1e400 \\" [[[ 1e400"',
    "[1.7976931348623157e308, 1e-320, 0.1e-99, " + "9" * 4300 + "]",
    "[" * 64 + "1" + "]" * 64,
    "[" + "[],{}," * 200 + '"' + "[" * 100 + '"]',
    '"' + "x" * (VALUE_BYTES - 2) + '"',
]
HELD = " where id = :'id' and leased_by = 'p1' returning id"
WRITES = {
    "payload": "insert into workflow.workflow_run (type, payload) values (:'type', :'value')",
    "result": "update workflow.workflow_run set status = 'succeeded', result = :'value'" + HELD,
    "progress": "update workflow.workflow_run set progress = :'value'" + HELD,
}
OBJECTS = {
    "labels": "insert into workflow.workflow_run (type, labels) values (:'type', :'value')",
    "error": "update workflow.workflow_run set status = 'failed', error = :'value'" + HELD,
    "data": "insert into workflow.workflow_event (workflow_id, event_type, data) "
    "values (:'id', 'n', :'value')",
}


@pytest.fixture
def run(driver, user_sql):
    """A run that user SQL holds."""
    found = driver.start()
    user_sql("take", type=TYPE, me="p1")
    return found


def write(user_sql, run, column, value):
    """The statement that writes a value into this column, where any value or only an object is allowed."""
    if column in WRITES:
        return WRITES[column], {"id": run, "type": TYPE, "value": value}
    inside = {"labels": '{{"team": "x", "a": {}}}', "error": '{{"kind": "k", "message": "m", "a": {}}}'}
    return OBJECTS[column], {
        "id": run, "type": TYPE, "value": inside.get(column, '{{"a": {}}}').format(value),
    }  # fmt: skip


@pytest.mark.spec("SQL-11")
@pytest.mark.parametrize("column", [*WRITES, *OBJECTS])
def test_a_value_that_no_reader_can_hold_is_refused_in_every_column(driver, user_sql, run, column):
    """With the message of the library, and nothing is written."""
    before = driver.everything()
    for value, words in ODD.items():
        text, values = write(user_sql, run, column, value)
        said = words if "bytes" not in words else "bytes as JSON, the limit is 4,194,304: keep it elsewhere"
        assert (
            refused(user_sql, f"^{column} {said}" if "bytes" not in words else said, text, **values)
            == "HF007"
        )
    assert driver.everything() == before


@pytest.mark.spec("SQL-11", "EVENT-8")
@pytest.mark.parametrize("verb", ["emit", "emit_at_once"])
def test_an_event_keeps_the_limits_too(driver, user_sql, verb):
    before = driver.everything()
    for value, words in ODD.items():
        event = json.dumps({"topic": "t", "id": "e", "payload": value})
        assert (
            refused(user_sql, f"^payload {words}", f"select workflow.{verb}(:'event')", event=event)
            == "HF007"
        )
    assert driver.everything() == before
    for number, value in enumerate(FINE):
        event = json.dumps({"topic": "t", "id": f"e{number}", "payload": value})
        user_sql(f"select workflow.{verb}(:'event')", event=event)


@pytest.mark.spec("SQL-11", "SQL-5")
def test_a_start_and_a_schedule_by_functions_keep_them_too(driver, user_sql):
    common = {"type": TYPE, "tenant": "default", "priority": 100}
    before = driver.everything()
    for value, words in ODD.items():
        runs = [{"id": str(driver.id()), "params": p, "digest": "d", **common} for p in ("1", value)]
        assert refused(user_sql, f"^params {words}", "select workflow.start(:'runs')", runs=json.dumps(runs))
        late = {
            "id": str(driver.id()), "name": "n", "params": value, "zone": "UTC", "every_us": 10**6,
            "anchor_at": 0, "next_at": 10**15, "jitter_us": 0, "overlap": "skip", "catch_up": "one", **common,
        }  # fmt: skip
        assert refused(user_sql, f"^params {words}", "select workflow.schedule(:'new')", new=json.dumps(late))
    assert driver.everything() == before


@pytest.mark.spec("SQL-11")
def test_values_at_the_limits_are_taken_and_read_back(driver, user_sql):
    for value in FINE:
        run = user_sql.one("start", type=TYPE, payload=value, key=None)
        assert driver.get(run).params_json == value
        msgspec.json.decode(value)
        user_sql("cancel", id=run)


@pytest.mark.spec("SQL-11")
def test_the_words_are_those_of_the_library():
    from holdfast.codec import untyped as codec

    nested: list = []
    for _ in range(80):
        nested = [nested]
    values = ["\0", "\ud800", nested, "x" * VALUE_BYTES]
    said = [words for words in ODD.values() if "number" not in words]
    for value in values:
        with pytest.raises((BadValue, TooLarge)) as caught:
            codec.encode(value, "payload")
        told = str(caught.value).removeprefix("payload ").replace("4,194,306", "4,194,305")
        assert any(told.startswith(words) for words in said), told


@pytest.mark.slow
@pytest.mark.spec("SQL-11")
@pytest.mark.parametrize(
    "value",
    [
        "'\"' || repeat('x', 20000000) || '\"'",
        "repeat('[', 5000) || repeat(']', 5000)",
        "'[' || repeat('1e131071,', 400000) || '1]'",
        "'[' || repeat('\"\\u0041\",', 400000) || '\"\\ud800\"]'",
    ],
    ids=["large", "deep", "numbers", "strings"],
)
def test_what_is_refused_is_refused_quickly(driver, user_sql, value):
    """Within seconds: nothing reads the value level by level, or writes its numbers out. The server makes the
    value.
    """
    begun = time.monotonic()
    text = f"insert into workflow.workflow_run (type, payload) values (:'type', ({value})::json)"
    refused(user_sql, "payload ", text, type=TYPE)
    assert time.monotonic() - begun < 10


@pytest.mark.spec("SQL-11")
def test_the_reason_of_a_failure_is_cut_and_never_refused(driver, user_sql, run):
    """A worker must be able to fail its run."""
    assert user_sql("fail", id=run, me="p1", error="x" * 5_000_000) == [(run,)]
    shown = driver.get(run)
    assert (shown.status, len(shown.last_error), len(shown.error.message)) == (Status.FAILED, 4000, 4000)


@pytest.mark.spec("SQL-11")
def test_an_error_with_a_long_message_has_a_short_line(driver, user_sql, run):
    error = json.dumps({"kind": "k", "message": "x" * 100_000})
    user_sql(
        "update workflow.workflow_run set status = 'failed', error = :'value'" + HELD, id=run, value=error
    )
    assert (len(driver.get(run).last_error), len(driver.last(run, "failed")["message"])) == (4000, 4000)
    assert len(driver.get(run).error.message) == 100_000


@pytest.mark.spec("SQL-11")
@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("type", "shop." + "x" * 250 + ".v1", "is not a workflow type"),
        ("trace", "x" * 10_001, "trace 'x+': text of at most 10,000 characters"),
        ("limit_key", "x" * 256, "1 to 255"),
    ],
)
def test_names_have_a_length(user_sql, column, value, words):
    columns = {"type": TYPE, column: value}
    values = ", ".join(f":'{name}'" for name in columns)
    text = f"insert into workflow.workflow_run ({', '.join(columns)}) values ({values})"
    assert refused(user_sql, words, text, **columns) == "HF007"


@pytest.mark.spec("SQL-11")
def test_a_kind_of_error_is_a_name(user_sql, run):
    text = "update workflow.workflow_run set status = 'failed', error = :'value'" + HELD
    error = json.dumps({"kind": "x" * 256, "message": "m"})
    assert refused(user_sql, "kind of error 'x+': 1 to 255", text, id=run, value=error) == "HF007"


COLUMNS = ["payload", "result", "error", "labels", "progress"]
HOSTILE = [
    '"\\u0000"', '"\\ud800"', "1e400", "[" * 5000 + "]" * 5000, "[" + "1e131071," * 20_000 + "1]",
    "[" + "0e-16000," * 20_000 + "1]", "9" * 200_000, '"' + "x" * 9_000_000 + '"', "1e99999999999999999999",
]  # fmt: skip


@pytest.mark.spec("SQL-11", "SQL-12")
def test_values_are_jsonb_in_the_views(driver, user_sql):
    claim = driver.held(params='{"a":[1,1e16]}', labels='{"team":"x"}')
    driver.checkpoint(claim, done("a", '{"n":1}'))
    run = "from workflow.workflow_run_live where id = :'id' and payload @> '{\"a\": [1]}'"
    assert user_sql.one("select labels ->> 'team', unreadable " + run, id=claim.id) == ("x", [])
    driver.complete(claim, result="[7]")
    assert user_sql.one("select result -> 0, error is null " + run, id=claim.id) == (7, True)
    step = "select output -> 'n', unreadable from workflow.workflow_step_live where run_id = :'id'"
    assert user_sql.one(step, id=claim.id) == (1, [])


@pytest.mark.slow
@pytest.mark.spec("SQL-11", "SQL-12")
def test_reading_a_view_never_fails_for_what_is_stored(driver, user_sql):
    """A value that was written past all checks is null, and named; other columns are shown."""
    claim, good = driver.held(), driver.start()
    driver.checkpoint(claim, done("a"))
    for value in HOSTILE:
        sets = ", ".join(f"{column} = :'value'" for column in COLUMNS)
        text = f"update workflow.workflow_run set {sets}, rev = rev + 1 where id = :'id'"
        user_sql(text, id=claim.id, value=value)
        user_sql("update workflow.workflow_step set output = :'value', error = :'value'", value=value)
        (one, bad) = user_sql("select * from workflow.workflow_run_live order by id = :'id'", id=claim.id)
        assert (one[0], one[-5], bad[0], bad[-5]) == (good, [], claim.id, COLUMNS)
        (step,) = user_sql("select * from workflow.workflow_step_live")
        assert (step[2], step[-1]) == ("a", ["output", "error"])
        user_sql("select * from workflow.workflow_run_claimable")


@pytest.mark.slow
@pytest.mark.spec("SQL-11")
def test_readers_answer_for_any_stored_row(driver, user_sql):
    """Readers of the store return values as the stored text."""
    claim = driver.held()
    driver.checkpoint(claim, done("a"))
    sets = ", ".join(f"{column} = :'value'" for column in COLUMNS)
    for value in HOSTILE:
        if len(value) > 10_000:
            continue  # the size of an answer is tested elsewhere
        user_sql(f"update workflow.workflow_run set {sets}, rev = rev + 1", value=value)
        user_sql("update workflow.workflow_step set output = :'value', error = :'value'", value=value)
        user_sql("update workflow.workflow_event set data = :'value'", value=value)
        assert driver.get(claim.id).params_json == value
        assert [one.result_json for one in driver.run(driver.store.list(RunFilter()))] == [value]
        assert [one.output for one in driver.steps(claim.id)] == [value]
        assert {one.data_json for one in driver.trail(claim.id)} == {value}
