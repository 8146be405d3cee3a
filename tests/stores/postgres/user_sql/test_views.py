"""Views for user SQL, functions that it may call, and its trail rows."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from holdfast.lifecycle import Status
from holdfast.stores.postgres import migrate
from holdfast.testing.contract.driver import TYPE, backing_off, done, gate, hear, listen, task
from tests.stores.postgres import kit
from tests.stores.postgres.user_sql.user_sql import PAGE, refused

COLUMNS = "name, status, attempts, leased_by, run_at is not null, topic, due_at is not null"
LIVE = f"select {COLUMNS} from workflow.workflow_step_live where run_id = :'id' order by seq"
# A verb has `set search_path` in its own text; rights.sql gives one to parts of verbs too.
VERB = re.compile(
    r'^create or replace function "?(\w+)"?\([^$;]*?\bset search_path from current', re.MULTILINE
)
VERBS = """
select p.proname || '(' || pg_get_function_identity_arguments(p.oid) || ')' from pg_proc as p
where p.pronamespace = 'workflow'::regnamespace and p.proname = any(string_to_array(:'names', ' '))
    and p.prorettype <> 'trigger'::regtype
"""


@pytest.mark.spec("SQL-9")
def test_the_current_step_of_a_plan_has_its_status_from_the_run(driver, user_sql):
    """Ready in the queue, running while it is held; a wait with its topic and deadline."""
    run = driver.plan(task("A"), hear("B", "parcel", 60.0), task("C"))
    later = ("B", "pending", 0, None, False, None, False), ("C", "pending", 0, None, False, None, False)
    assert user_sql(LIVE, id=run) == [("A", "ready", 0, None, True, None, False), *later]
    claim = driver.take(run)
    assert user_sql(LIVE, id=run) == [("A", "running", 1, "w1", False, None, False), *later]
    driver.advance(claim, "A")
    assert user_sql(LIVE, id=run)[1:] == [("B", "waiting", 0, None, False, "parcel", True), later[1]]
    driver.emit()
    assert [row[1] for row in user_sql(LIVE, id=run)] == ["succeeded", "succeeded", "ready"]
    assert [row[3] for row in user_sql("steps", id=run)] == [step.status.value for step in driver.steps(run)]


@pytest.mark.spec("RETRY-10", "SQL-3")
def test_a_run_that_failed_by_a_step_is_seen_with_the_tries_of_that_step(driver, user_sql):
    claim = driver.held()
    driver.fail(claim, step="a", kind="exhausted", attempt=5, max_attempts=5)
    shown = "select attempt, max_attempts from workflow.workflow_run_live where id = :'id'"
    assert user_sql(shown, id=claim.id) == [(5, 5)]
    told = "select data ->> 'attempt', data ->> 'max_attempts' from workflow.workflow_event"
    assert user_sql(f"{told} where workflow_id = :'id' and event_type = 'failed'", id=claim.id) == [
        ("5", "5")
    ]


@pytest.mark.spec("SQL-9")
def test_steps_of_code_are_seen_with_outcome_and_cost(driver, user_sql):
    claim = driver.held()
    driver.checkpoint(claim, done("a", '{"n":1}', cost=5), listen("b"))
    driver.retry(claim, backing_off("c"))
    rows = {row[1]: row for row in user_sql("steps", id=claim.id)}
    assert (rows["a"][2:4], rows["a"][10], rows["a"][12]) == (("task", "succeeded"), {"n": 1}, 5)
    assert (rows["b"][3], rows["b"][8]) == ("waiting", "parcel")
    assert (rows["c"][3], rows["c"][7] is not None, rows["c"][11]["kind"]) == ("ready", True, "boom")
    driver.delete(claim.id)
    assert user_sql("steps", id=claim.id) == []


@pytest.mark.spec("SQL-6")
def test_the_cursor_of_a_run_is_seen(driver, user_sql):
    plan = driver.plan(gate("A"), task("B"))
    code = driver.start("shop.other.v1")
    driver.checkpoint(driver.take(code, types=("shop.other.v1",)), done("a"), done("b"))
    text = "select cursor from workflow.workflow_run_live where id = :'id'"
    assert (user_sql.one(text, id=plan), user_sql.one(text, id=code)) == ("A", "b")
    assert (driver.get(plan).cursor, driver.get(code).cursor) == ("A", "b")
    (row,) = user_sql("runs")
    assert row[:4] == (plan, TYPE, "waiting", "A")


@pytest.mark.spec("PLAN-17", "SQL-6")
def test_number_and_name_of_a_plans_current_step_are_columns(driver, user_sql):
    plan, code = driver.plan(gate("A"), task("B")), driver.start("shop.other.v1")
    text = "select current_step_seq, current_step_name from workflow.workflow_run_live where id = :'id'"
    assert (user_sql(text, id=plan), user_sql(text, id=code)) == ([(0, "A")], [(None, None)])
    driver.approve(plan)
    assert user_sql(text, id=plan) == [(1, "B")]
    driver.advance(driver.take(plan), "B")
    assert user_sql(text, id=plan) == [(None, None)]


@pytest.mark.spec("PLAN-9", "SQL-2", "MOVE-5")
def test_a_cancel_by_user_sql_cancels_the_later_steps_of_a_plan(driver, user_sql):
    claim = driver.begun("A", "B", gate("C"), "D")
    driver.advance(claim, "A", in_place=True)
    user_sql("cancel", id=claim.id)
    assert [status for _, status in driver.shape(claim.id)] == ["succeeded"] + ["cancelled"] * 3
    driver.assert_replayed(claim.id)
    driver.rewind(claim.id, "B")
    assert [status for _, status in driver.shape(claim.id)] == ["succeeded", "ready", "pending", "pending"]
    driver.assert_replayed(claim.id)


@pytest.mark.spec("SQL-6")
def test_tables_columns_and_indexes_of_the_page_are_there(driver, user_sql):
    text = PAGE.read_text("utf-8").partition("\n## Tables\n")[2].partition("\n## ")[0]
    said = set(re.findall(r"`(\w+)`", text)) - {"rev", "told"}
    columns = "select attname::text from pg_attribute where attrelid = 'workflow.{}'::regclass and attnum > 0"
    there = {
        "workflow_run": {row[0] for row in user_sql(columns.format("workflow_run"))},
        "workflow_event": {row[0] for row in user_sql(columns.format("workflow_event"))},
    }
    tables = {
        row[0] for row in user_sql("select tablename::text from pg_tables where schemaname = 'workflow'")
    }
    indexes = {
        row[0] for row in user_sql("select indexname::text from pg_indexes where schemaname = 'workflow'")
    }
    assert said - there["workflow_run"] - there["workflow_event"] - tables - indexes == set()
    promised = "id type payload status priority run_at idempotency_key attempt max_attempts leased_by "
    promised += "lease_until last_error result created_at updated_at deleted_at tenant fence waiting_on "
    promised += "started_at finished_at error"
    assert set(promised.split()) <= said & there["workflow_run"]
    assert {"id", "workflow_id", "event_type", "data", "created_at"} <= said & there["workflow_event"]


@pytest.mark.spec("SQL-5")
def test_the_page_names_every_function_that_may_be_called(driver, user_sql):
    """With the arguments, which no later version may change."""
    text = PAGE.read_text("utf-8").partition("\n## Functions\n")[2].partition("\n## ")[0]
    names = " ".join(name for source in migrate.functions().values() for name in VERB.findall(source))
    listed, there = re.findall(r"`(\w+\([^`]*\))`", text), {row[0] for row in user_sql(VERBS, names=names)}
    assert (there - set(listed), set(listed) - there) == (set(), set()), "not on the page, and only there"
    assert len(listed) == len(there)


@pytest.mark.spec("SQL-5")
def test_the_store_sends_nothing_but_calls_of_functions():
    """No statement in Python reads or writes a table of runs."""
    folder = Path(migrate.__file__).parent
    texts = {one.name: one.read_text("utf-8") for one in folder.rglob("*.py")}
    assert len(texts) > 20
    found = {
        name
        for name, text in texts.items()
        if re.search(r"\b(from|into|update|join) [\w.\"{}]*workflow_(?!schema)", text)
    }
    assert found == set()


def test_what_the_verbs_write_passes_the_triggers_by():
    """Each update of a run says rev + 1, each insert its rev, and each trail row whether it was told."""
    for name, text in migrate.functions().items():
        for statement in re.findall(r"\b(?:update|insert into) workflow_run\b.*?;", text, re.DOTALL):
            assert re.search(r"\brev = \w+\.rev \+ 1|\brev,", statement), f"{name}: {statement[:200]}"
        for statement in re.findall(r"\binsert into workflow_event\b.*?\)", text, re.DOTALL):
            assert "told" in statement, f"{name}: {statement}"


@pytest.mark.spec("STORE-1")
def test_listeners_are_told_of_writes_by_user_sql(driver, user_sql):
    with psycopg.connect(kit.database()[0], autocommit=True) as other:
        other.execute("listen holdfast_workflow")
        run = user_sql.one("start", type=TYPE, payload="1", key=None)
        assert [(one.channel, one.payload) for one in other.notifies(timeout=5, stop_after=1)] == [
            ("holdfast_workflow", "")
        ]
        user_sql("cancel", id=run)
        assert len(list(other.notifies(timeout=5, stop_after=1))) == 1


@pytest.mark.spec("SQL-8", "MOVE-5")
def test_a_worker_tells_the_trail_and_it_decides_nothing(driver, user_sql):
    run = driver.start()
    assert user_sql("tell", id=run, what="succeeded", data='{"status": "failed", "step": "a"}') == 1
    bare = "insert into workflow.workflow_event (workflow_id, event_type) values (:'id', 'note')"
    assert user_sql(bare, id=run) == 1
    assert [(one.type, one.told) for one in driver.trail(run)] == [
        ("created", False),
        ("succeeded", True),
        ("note", True),
    ]
    assert driver.trail(run)[1].data == {"status": "failed", "step": "a"}
    assert driver.status(run) is Status.PENDING
    driver.assert_replayed(run)


@pytest.mark.spec("SQL-8")
def test_the_number_of_a_trail_row_is_nobodys_choice(driver, user_sql):
    """Otherwise a later row of the store would find its number taken."""
    run = driver.start()
    text = "insert into workflow.workflow_event (id, workflow_id, event_type) values (:'no', :'id', 'note')"
    user_sql(text, id=run, no=driver.trail()[-1].seq + 2)
    for _ in range(3):
        driver.pause(run)
        driver.resume(run)
    assert [entry.type for entry in driver.trail(run)][1] == "note"


@pytest.mark.spec("SQL-8")
@pytest.mark.parametrize(
    ("what", "data", "words"),
    [
        ("note", "[1]", "is an object"),
        ("note", '{"a":"\\u0000"}', "data holds a NUL character"),
        ("", "{}", "1 to 255"),
    ],
)
def test_a_trail_row_that_could_not_be_read_is_refused(driver, user_sql, what, data, words):
    refused(user_sql, words, "tell", id=driver.start(), what=what, data=data)


@pytest.mark.spec("SQL-8")
def test_a_trail_row_of_no_run_is_refused(driver, user_sql):
    assert refused(user_sql, "no run", "tell", id=driver.id(), what="note", data="{}") == "HF001"


@pytest.mark.spec("SQL-8", "TRAIL-3")
def test_who_follows_a_run_by_number_misses_nothing_that_was_told(driver, user_sql):
    """The number of a told row is taken under the lock of the run: no later row becomes visible before it."""
    claim = driver.held()
    with user_sql.connection.transaction():
        user_sql("tell", id=claim.id, what="note", data="{}")
        assert driver.checkpoint(claim).answer == "busy"
    seen = driver.trail(claim.id)[-1]
    driver.checkpoint(claim)
    assert [one.type for one in driver.trail(claim.id, after=seen.seq)] == ["step_succeeded"]
    assert seen.type == "note"


@pytest.mark.spec("SQL-8", "TRAIL-4")
def test_a_log_row_that_was_told_is_not_counted_as_the_codes_own(driver, user_sql):
    """Otherwise the code's next rows would count as written."""
    claim = driver.held()
    user_sql("tell", id=claim.id, what="log", data='{"message": "hi", "log_no": 7}')
    driver.release(claim)
    assert driver.take(claim.id).logs == 0


@pytest.mark.spec("SQL-12")
def test_a_view_shows_no_value_many_times_larger_than_it_is(driver, user_sql):
    """Jsonb writes 1e300 with 301 digits. In a string it is text."""
    shown = "select payload is null, unreadable from workflow.workflow_run_live where id = :'id'"
    for value, answer in (("1e300", (True, ["payload"])), ('"1e300"', (False, [])), ("1e30", (False, []))):
        run = user_sql.one("start", type=TYPE, payload=f"[{','.join([value] * 14_000)}]", key=None)
        assert user_sql(shown, id=run) == [answer]


@pytest.mark.parametrize(("view", "value"), [("run", "r.payload"), ("step", "s.output")])
def test_a_view_reads_a_value_once(user_sql, view, value):
    """The value and the flag come from the same read. For a plan, the part in brackets is computed below."""
    plan = user_sql(f"explain (verbose, costs off) select * from workflow.workflow_{view}_live")
    text, call = "\n".join(line for (line,) in plan), f"workflow.readable({value})"
    assert text.count(call) - text.count(f"({call})") == 1
