"""Functions that get invalid records refuse them in one line that is safe for a terminal."""

from __future__ import annotations

import json

import pytest

from holdfast.testing.contract.driver import done
from tests.stores.postgres.user_sql.user_sql import refused, started

ODD = "one\ntwo\x1b[2J\x9b\u202e\u2028"


@pytest.mark.spec("SQL-11")
def test_a_refusal_shows_no_raw_text(user_sql):
    """The name of a step is text of other people: its line breaks and escapes do not reach a terminal."""
    run = started(user_sql)
    shown = r"has no step 'one\?two\?\[2J\?\?\?'"
    refused(user_sql, shown, "select workflow.rewind(:'run', :'step', null, 'x', true)", run=run, step=ODD)


@pytest.mark.spec("SQL-11")
@pytest.mark.parametrize(
    "field",
    [
        {"patterns": {}},
        {"types": [1]},
        {"tenants": "x"},
        {"sinks": [[]]},
        {"lacking": {"a": 1}},
        {"lacking": []},
    ],
)
def test_a_worker_says_of_itself_what_readers_can_read(user_sql, field):
    said = json.dumps({"worker": "w", "types": ["shop.order.v1"], **field})
    assert refused(user_sql, "lists of text", "select workflow.present(:'said')", said=said) == "HF007"


def test_what_a_worker_may_say_of_itself_is_taken(user_sql):
    said = {"worker": "w", "types": ["a"], "patterns": None, "sinks": [], "lacking": {"p": ["t"]}, "slots": 3}
    user_sql("select workflow.present(:'said')", said=json.dumps(said))


@pytest.mark.spec("SQL-11")
def test_a_move_that_is_none_is_refused(user_sql):
    run = started(user_sql)
    ask = {"worker": "w", "types": ["shop.order.v1"], "limit": 1, "lease_seconds": 30}
    user_sql("select workflow.claim(:'ask')", ask=json.dumps(ask))
    fence = user_sql.one("select fence from workflow.workflow_run where id = :'run'", run=run)
    item = {"run": str(run), "fence": fence, "number": 1, "move": "gone", "lease_seconds": 30, "steps": []}
    batch = json.dumps([{**item, "trail": [], "events": [], "starts": [], "outbox": []}])
    commit = "select workflow.commit(:'batch', null, null, null, true)"
    assert refused(user_sql, "'gone' is no move", commit, batch=batch) == "HF007"


@pytest.mark.spec("SQL-11")
@pytest.mark.parametrize(
    "field", [{"type": "x"}, {"steps": ["A"]}, {"steps": [{}]}, {"steps": [{"name": "A", "kind": "z"}]}]
)
def test_a_definition_that_readers_do_not_know_is_refused(user_sql, field):
    said = json.dumps([{"type": "shop.plan.v1", "kind": "plan", "steps": [{"name": "A"}], **field}])
    assert refused(user_sql, "cannot be read", "select workflow.publish(:'said')", said=said) == "HF007"


@pytest.mark.spec("SQL-11", "PLAN-12")
def test_a_definition_that_cannot_be_read_hides_no_other(driver, user_sql):
    """Every start by name reads the definitions: one broken row must not stop all starts."""
    driver.publish("A", type="shop.plan.v1")
    driver.publish("A", type="shop.other.v1")
    user_sql("update workflow.workflow_definition set steps = '[\"A\"]' where type = 'shop.plan.v1'")
    assert [one.type for one in driver.run(driver.store.definitions())] == ["shop.other.v1"]


@pytest.mark.spec("SQL-11")
@pytest.mark.parametrize("odd", ["infinity", "-infinity"])
def test_a_time_without_end_breaks_no_reader_and_no_claim(driver, user_sql, odd):
    """The app's role can write such a time past all checks."""
    run = driver.start()
    claim = driver.take(run)
    driver.checkpoint(claim, done("a"))
    user_sql(
        "update workflow.workflow_step set due_at = :'odd', started_at = :'odd' where run_id = :'run'",
        odd=odd,
        run=run,
    )
    user_sql(
        "update workflow.workflow_run set created_at = :'odd', rev = rev + 1 where id = :'run'",
        odd=odd,
        run=run,
    )
    assert [step.key for step in driver.steps(run)] == ["a"]
    driver.release(claim)
    assert driver.take(run).steps[0].key == "a"
