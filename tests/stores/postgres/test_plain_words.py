"""Functions that are called with odd records refuse them in one line that any terminal may show."""

from __future__ import annotations

import json

import pytest

from holdfast.testing.contract.hand import done
from tests.stores.postgres.stranger import refused, started

ODD = "one\ntwo\x1b[2J\x9b\u202e\u2028"


@pytest.mark.spec("SQL-11")
def test_a_refusal_shows_no_raw_text(plain):
    """A step's name is somebody's text: its line breaks and escapes do not reach a terminal."""
    run = started(plain)
    shown = r"has no step 'one\?two\?\[2J\?\?\?'"
    refused(plain, shown, "select workflow.rewind(:'run', :'step', null, 'x', true)", run=run, step=ODD)


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
def test_a_worker_says_of_itself_what_readers_can_read(plain, field):
    said = json.dumps({"worker": "w", "types": ["shop.order.v1"], **field})
    assert refused(plain, "lists of text", "select workflow.present(:'said')", said=said) == "HF007"


def test_what_a_worker_may_say_of_itself_is_taken(plain):
    said = {"worker": "w", "types": ["a"], "patterns": None, "sinks": [], "lacking": {"p": ["t"]}, "slots": 3}
    plain("select workflow.present(:'said')", said=json.dumps(said))


@pytest.mark.spec("SQL-11")
def test_a_move_that_is_none_is_refused(plain):
    run = started(plain)
    ask = {"worker": "w", "types": ["shop.order.v1"], "limit": 1, "lease_seconds": 30}
    plain("select workflow.claim(:'ask')", ask=json.dumps(ask))
    fence = plain.one("select fence from workflow.workflow_run where id = :'run'", run=run)
    item = {"run": str(run), "fence": fence, "number": 1, "move": "gone", "lease_seconds": 30, "steps": []}
    batch = json.dumps([{**item, "trail": [], "events": [], "starts": [], "outbox": []}])
    commit = "select workflow.commit(:'batch', null, null, null, true)"
    assert refused(plain, "'gone' is no move", commit, batch=batch) == "HF007"


@pytest.mark.spec("SQL-11")
@pytest.mark.parametrize(
    "field", [{"type": "x"}, {"steps": ["A"]}, {"steps": [{}]}, {"steps": [{"name": "A", "kind": "z"}]}]
)
def test_a_definition_that_readers_do_not_know_is_refused(plain, field):
    said = json.dumps([{"type": "shop.plan.v1", "kind": "plan", "steps": [{"name": "A"}], **field}])
    assert refused(plain, "cannot be read", "select workflow.publish(:'said')", said=said) == "HF007"


@pytest.mark.spec("SQL-11", "PLAN-12")
def test_a_definition_that_cannot_be_read_hides_no_other(hand, plain):
    """Every start by name reads them: one row that somebody has spoilt must not stop all starts."""
    hand.publish("A", type="shop.plan.v1")
    hand.publish("A", type="shop.other.v1")
    plain("update workflow.workflow_definition set steps = '[\"A\"]' where type = 'shop.plan.v1'")
    assert [one.type for one in hand.run(hand.store.definitions())] == ["shop.other.v1"]


@pytest.mark.spec("SQL-11")
@pytest.mark.parametrize("odd", ["infinity", "-infinity"])
def test_a_time_without_end_breaks_no_reader_and_no_claim(hand, plain, odd):
    """The app's role can write one past all checks."""
    run = hand.start()
    claim = hand.take(run)
    hand.checkpoint(claim, done("a"))
    plain(
        "update workflow.workflow_step set due_at = :'odd', started_at = :'odd' where run_id = :'run'",
        odd=odd,
        run=run,
    )
    plain(
        "update workflow.workflow_run set created_at = :'odd', rev = rev + 1 where id = :'run'",
        odd=odd,
        run=run,
    )
    assert [step.key for step in hand.steps(run)] == ["a"]
    hand.release(claim)
    assert hand.take(run).steps[0].key == "a"
