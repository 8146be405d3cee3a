"""What plain SQL sees, what it may call, and what it tells the trail."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast.lifecycle import Status
from holdfast.stores.postgres import migrate
from holdfast.testing.contract.hand import TYPE, backing_off, done, gate, hear, listen, task
from tests.stores.postgres import kit
from tests.stores.postgres.stranger import PAGE, refused

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
def test_the_current_step_of_a_plan_has_its_status_from_the_run(hand, plain):
    """Ready in the queue, running while it is held; a wait with its topic and deadline."""
    run = hand.plan(task("A"), hear("B", "parcel", 60.0), task("C"))
    later = ("B", "pending", 0, None, False, None, False), ("C", "pending", 0, None, False, None, False)
    assert plain(LIVE, id=run) == [("A", "ready", 0, None, True, None, False), *later]
    claim = hand.take(run)
    assert plain(LIVE, id=run) == [("A", "running", 1, "w1", False, None, False), *later]
    hand.advance(claim, "A")
    assert plain(LIVE, id=run)[1:] == [("B", "waiting", 0, None, False, "parcel", True), later[1]]
    hand.emit()
    assert [row[1] for row in plain(LIVE, id=run)] == ["succeeded", "succeeded", "ready"]
    assert [row[3] for row in plain("steps", id=run)] == [step.status.value for step in hand.steps(run)]


@pytest.mark.spec("RETRY-10", "SQL-3")
def test_a_run_that_failed_by_a_step_is_seen_with_the_tries_of_that_step(hand, plain):
    claim = hand.held()
    hand.fail(claim, step="a", kind="exhausted", attempt=5, max_attempts=5)
    shown = "select attempt, max_attempts from workflow.workflow_run_live where id = :'id'"
    assert plain(shown, id=claim.id) == [(5, 5)]
    told = "select data ->> 'attempt', data ->> 'max_attempts' from workflow.workflow_event"
    assert plain(f"{told} where workflow_id = :'id' and event_type = 'failed'", id=claim.id) == [("5", "5")]


@pytest.mark.spec("SQL-9")
def test_steps_of_code_are_seen_with_outcome_and_cost(hand, plain):
    claim = hand.held()
    hand.checkpoint(claim, done("a", '{"n":1}', cost=5), listen("b"))
    hand.retry(claim, backing_off("c"))
    rows = {row[1]: row for row in plain("steps", id=claim.id)}
    assert (rows["a"][2:4], rows["a"][10], rows["a"][12]) == (("task", "succeeded"), {"n": 1}, 5)
    assert (rows["b"][3], rows["b"][8]) == ("waiting", "parcel")
    assert (rows["c"][3], rows["c"][7] is not None, rows["c"][11]["kind"]) == ("ready", True, "boom")
    hand.delete(claim.id)
    assert plain("steps", id=claim.id) == []


@pytest.mark.spec("SQL-6")
def test_the_cursor_of_a_run_is_seen(hand, plain):
    plan = hand.plan(gate("A"), task("B"))
    code = hand.start("shop.other.v1")
    hand.checkpoint(hand.take(code, types=("shop.other.v1",)), done("a"), done("b"))
    text = "select cursor from workflow.workflow_run_live where id = :'id'"
    assert (plain.one(text, id=plan), plain.one(text, id=code)) == ("A", "b")
    assert (hand.get(plan).cursor, hand.get(code).cursor) == ("A", "b")
    (row,) = plain("runs")
    assert row[:4] == (plan, TYPE, "waiting", "A")


@pytest.mark.spec("PLAN-17", "SQL-6")
def test_number_and_name_of_a_plans_current_step_are_columns(hand, plain):
    plan, code = hand.plan(gate("A"), task("B")), hand.start("shop.other.v1")
    text = "select current_step_seq, current_step_name from workflow.workflow_run_live where id = :'id'"
    assert (plain(text, id=plan), plain(text, id=code)) == ([(0, "A")], [(None, None)])
    hand.approve(plan)
    assert plain(text, id=plan) == [(1, "B")]
    hand.advance(hand.take(plan), "B")
    assert plain(text, id=plan) == [(None, None)]


@pytest.mark.spec("PLAN-9", "SQL-2", "MOVE-5")
def test_a_plain_cancel_cancels_the_later_steps_of_a_plan(hand, plain):
    claim = hand.begun("A", "B", gate("C"), "D")
    hand.advance(claim, "A", in_place=True)
    plain("cancel", id=claim.id)
    assert [status for _, status in hand.shape(claim.id)] == ["succeeded"] + ["cancelled"] * 3
    hand.assert_replayed(claim.id)
    hand.rewind(claim.id, "B")
    assert [status for _, status in hand.shape(claim.id)] == ["succeeded", "ready", "pending", "pending"]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("SQL-6")
def test_tables_columns_and_indexes_of_the_page_are_there(hand, plain):
    text = PAGE.read_text("utf-8").partition("\n## Tables\n")[2].partition("\n## ")[0]
    said = set(re.findall(r"`(\w+)`", text)) - {"rev", "told"}
    columns = "select attname::text from pg_attribute where attrelid = 'workflow.{}'::regclass and attnum > 0"
    there = {
        "workflow_run": {row[0] for row in plain(columns.format("workflow_run"))},
        "workflow_event": {row[0] for row in plain(columns.format("workflow_event"))},
    }
    tables = {row[0] for row in plain("select tablename::text from pg_tables where schemaname = 'workflow'")}
    indexes = {
        row[0] for row in plain("select indexname::text from pg_indexes where schemaname = 'workflow'")
    }
    assert said - there["workflow_run"] - there["workflow_event"] - tables - indexes == set()
    promised = "id type payload status priority run_at idempotency_key attempt max_attempts leased_by "
    promised += "lease_until last_error result created_at updated_at deleted_at tenant fence waiting_on "
    promised += "started_at finished_at error"
    assert set(promised.split()) <= said & there["workflow_run"]
    assert {"id", "workflow_id", "event_type", "data", "created_at"} <= said & there["workflow_event"]


@pytest.mark.spec("SQL-5")
def test_the_page_names_every_function_that_may_be_called(hand, plain):
    """With its arguments, which no later version may change."""
    text = PAGE.read_text("utf-8").partition("\n## Functions\n")[2].partition("\n## ")[0]
    names = " ".join(name for source in migrate.functions().values() for name in VERB.findall(source))
    listed, there = re.findall(r"`(\w+\([^`]*\))`", text), {row[0] for row in plain(VERBS, names=names)}
    assert (there - set(listed), set(listed) - there) == (set(), set()), "not on the page, and only there"
    assert len(listed) == len(there)


@pytest.mark.spec("SQL-5")
def test_the_store_sends_nothing_but_calls_of_functions():
    """No statement of Python's reads or writes a table of runs."""
    from importlib.resources import files

    folder = files("holdfast.stores.postgres")
    texts = {one.name: one.read_text("utf-8") for one in folder.iterdir() if one.name.endswith(".py")}
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
def test_who_listens_hears_of_what_plain_sql_has_done(hand, plain):
    with psycopg.connect(kit.database()[0], autocommit=True) as other:
        other.execute("listen holdfast_workflow")
        run = plain.one("start", type=TYPE, payload="1", key=None)
        assert [(one.channel, one.payload) for one in other.notifies(timeout=5, stop_after=1)] == [
            ("holdfast_workflow", "")
        ]
        plain("cancel", id=run)
        assert len(list(other.notifies(timeout=5, stop_after=1))) == 1


@pytest.mark.spec("SQL-8", "MOVE-5")
def test_a_worker_tells_the_trail_and_it_decides_nothing(hand, plain):
    run = hand.start()
    assert plain("tell", id=run, what="succeeded", data='{"status": "failed", "step": "a"}') == 1
    bare = "insert into workflow.workflow_event (workflow_id, event_type) values (:'id', 'note')"
    assert plain(bare, id=run) == 1
    assert [(one.type, one.told) for one in hand.trail(run)] == [
        ("created", False),
        ("succeeded", True),
        ("note", True),
    ]
    assert hand.trail(run)[1].data == {"status": "failed", "step": "a"}
    assert hand.status(run) is Status.PENDING
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-8")
def test_the_number_of_a_trail_row_is_nobodys_choice(hand, plain):
    """Or a later row of ours would find its number taken."""
    run = hand.start()
    text = "insert into workflow.workflow_event (id, workflow_id, event_type) values (:'no', :'id', 'note')"
    plain(text, id=run, no=hand.trail()[-1].seq + 2)
    for _ in range(3):
        hand.pause(run)
        hand.resume(run)
    assert [entry.type for entry in hand.trail(run)][1] == "note"


@pytest.mark.spec("SQL-8")
@pytest.mark.parametrize(
    ("what", "data", "words"),
    [
        ("note", "[1]", "is an object"),
        ("note", '{"a":"\\u0000"}', "data holds a NUL character"),
        ("", "{}", "1 to 255"),
    ],
)
def test_a_trail_row_that_could_not_be_read_is_refused(hand, plain, what, data, words):
    refused(plain, words, "tell", id=hand.start(), what=what, data=data)


@pytest.mark.spec("SQL-8")
def test_a_trail_row_of_no_run_is_refused(hand, plain):
    assert refused(plain, "no run", "tell", id=hand.id(), what="note", data="{}") == "HF001"


@pytest.mark.spec("SQL-8", "TRAIL-3")
def test_who_follows_a_run_by_number_misses_nothing_that_was_told(hand, plain):
    """The number of a told row is taken when the run is his: no later one is seen before it."""
    claim = hand.held()
    with plain.connection.transaction():
        plain("tell", id=claim.id, what="note", data="{}")
        assert hand.checkpoint(claim).answer == "busy"
    seen = hand.trail(claim.id)[-1]
    hand.checkpoint(claim)
    assert [one.type for one in hand.trail(claim.id, after=seen.seq)] == ["step_succeeded"]
    assert seen.type == "note"


@pytest.mark.spec("SQL-8", "TRAIL-4")
def test_a_log_row_that_was_told_is_not_counted_as_the_codes_own(hand, plain):
    """Or the code's next rows would be taken for written."""
    claim = hand.held()
    plain("tell", id=claim.id, what="log", data='{"message": "hi", "log_no": 7}')
    hand.release(claim)
    assert hand.take(claim.id).logs == 0


@pytest.mark.spec("SQL-12")
def test_a_view_shows_no_value_many_times_larger_than_it_is(hand, plain):
    """Jsonb writes 1e300 out with 301 digits. In a string it is text."""
    shown = "select payload is null, unreadable from workflow.workflow_run_live where id = :'id'"
    for value, answer in (("1e300", (True, ["payload"])), ('"1e300"', (False, [])), ("1e30", (False, []))):
        run = plain.one("start", type=TYPE, payload=f"[{','.join([value] * 14_000)}]", key=None)
        assert plain(shown, id=run) == [answer]


@pytest.mark.parametrize(("view", "value"), [("run", "r.payload"), ("step", "s.output")])
def test_a_view_reads_a_value_once(plain, view, value):
    """The value and the flag are of the same reading. A plan has what is computed below in brackets."""
    plan = plain(f"explain (verbose, costs off) select * from workflow.workflow_{view}_live")
    text, call = "\n".join(line for (line,) in plan), f"workflow.readable({value})"
    assert text.count(call) - text.count(f"({call})") == 1
