"""A worker of plain statements: it takes, renews, ends and gives back, and the database keeps the rest."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.lifecycle import Status
from holdfast.testing.contract.hand import LEASE, TYPE, call, done, listen, task
from tests.stores.postgres import kit
from tests.stores.postgres.stranger import Stranger

ENDS = {
    "heartbeat": {},
    "succeed": {"result": "7"},
    "fail": {"error": "no stock"},
    "retry": {"error": "no stock", "seconds": 5},
    "give_back": {},
}
GREEDY = """
update workflow.workflow_run
set status = 'leased', leased_by = 'p1', lease_until = now() + interval '9 seconds'
"""


def take(hand, plain, me="p1", **fields):
    """A new run, held by plain SQL."""
    run = hand.start(**fields)
    assert plain.one("take", type=TYPE, me=me)[0] == run
    return run


def end(plain, how, run, me="p1", **values):
    return plain(how, id=run, me=me, **{**ENDS[how], **values})


@pytest.mark.spec("SQL-4", "MOVE-5")
def test_a_plain_worker_takes_renews_and_ends_a_run(hand, plain):
    """Attempt, fence, times and trail are the database's; started when it was taken."""
    run = hand.start(params='{"n":1}')
    assert plain.one("take", type=TYPE, me="p1") == (run, {"n": 1})
    taken = hand.get(run)
    assert (taken.status, taken.leased_by, taken.attempt) == (Status.LEASED, "p1", 1)
    hand.clock.turn(10)
    assert end(plain, "heartbeat", run) == [(None,)]
    assert (hand.get(run).lease_until - taken.lease_until).total_seconds() == 10
    hand.clock.turn(10)
    assert end(plain, "succeed", run, result='{"paid": 1.0}') == [(run,)]
    shown = hand.get(run)
    assert (shown.status, shown.result_json, shown.leased_by) == (Status.SUCCEEDED, '{"paid": 1.0}', None)
    assert (shown.started_at, shown.finished_at) == (taken.updated_at, shown.updated_at)
    assert (shown.fence, shown.attempt) == (taken.fence, 1)
    assert hand.told(run) == ["created", "leased", "started", "succeeded"]
    assert hand.last(run, "leased") == {"worker": "p1", "attempt": 1, "fence": taken.fence}
    assert plain.one("look", id=run) == ("succeeded", {"paid": 1.0}, None, 1)
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-4")
def test_a_plain_worker_fails_a_run_for_good(hand, plain):
    run = take(hand, plain)
    assert end(plain, "fail", run) == [(run,)]
    shown = hand.get(run)
    assert (shown.status, shown.last_error, shown.error.kind) == (Status.FAILED, "no stock", "fatal")
    tried = {"attempt": 1, "max_attempts": 3}
    assert hand.last(run, "failed") == {"kind": "fatal", "message": "no stock", **tried}
    hand.assert_replayed(run)
    assert hand.retry_run(run).status is Status.PENDING


@pytest.mark.spec("SQL-4", "RETRY-1")
def test_a_retry_counts_and_the_last_one_is_a_failure(hand, plain):
    """Also when each says the same as the one before; a run that is not due again is not taken."""
    run = take(hand, plain, max_attempts=3)
    for attempt in (1, 2):
        assert end(plain, "retry", run) == [("pending",)]
        assert hand.last(run, "retried")["attempt"] == attempt
        assert (hand.last(run, "retried")["delay"], hand.last(run, "retried")["status"]) == (5, "pending")
        assert plain("take", type=TYPE, me="p1") == []
        assert plain(GREEDY + " where status = 'pending'") == 0
        hand.clock.turn(5)
        assert plain.one("take", type=TYPE, me="p1")[0] == run
    assert end(plain, "retry", run) == [("failed",)]
    shown = hand.get(run)
    assert (shown.status, shown.attempt, shown.error.kind) == (Status.FAILED, 3, "exhausted")
    assert shown.last_error == "no stock"
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-4")
def test_an_error_alone_is_a_retry_too(hand, plain):
    """Whoever says twice the same is not taken for one who gives the run back."""
    run = take(hand, plain, max_attempts=2)
    says = "update workflow.workflow_run set status = 'pending', last_error = 'no stock'"
    text = says + " where id = :'id' returning status"
    assert plain.one(text, id=run) == "pending"
    assert plain.one("take", type=TYPE, me="p1")[0] == run
    assert plain.one(text, id=run) == "failed"


@pytest.mark.spec("SQL-4")
def test_a_run_that_is_given_back_costs_no_attempt(hand, plain):
    run = take(hand, plain)
    assert end(plain, "give_back", run) == [(run,)]
    assert (hand.status(run), hand.get(run).attempt, hand.told(run)[-1]) == (Status.PENDING, 0, "released")
    hand.assert_replayed(run)
    assert hand.take(run).attempt == 1


@pytest.mark.spec("SQL-4")
def test_the_last_attempt_can_be_given_back_too(hand, plain):
    run = take(hand, plain, max_attempts=1)
    assert end(plain, "give_back", run) == [(run,)]
    assert hand.status(run) is Status.PENDING


@pytest.mark.spec("SQL-4", "LEASE-4", "LEASE-5")
@pytest.mark.parametrize("how", ENDS)
def test_a_lease_that_has_passed_changes_no_row(hand, plain, how):
    """At its very end it still holds."""
    late, last = take(hand, plain), take(hand, plain, "p2")
    hand.clock.turn(LEASE)
    assert end(plain, how, last, "p2") != []
    hand.clock.turn(0.000001)
    before = hand.snapshot(late)
    assert end(plain, how, late) == []
    assert hand.snapshot(late) == before


@pytest.mark.spec("SQL-4", "LEASE-4")
@pytest.mark.parametrize("how", ENDS)
def test_a_run_that_a_worker_of_the_engine_holds_is_not_changed(hand, plain, how):
    """Not by its name either, nor after it was the stranger's."""
    run = take(hand, plain)
    end(plain, "give_back", run)
    claim = hand.take(run, worker="p1")
    before = hand.snapshot(run)
    assert end(plain, how, run) == []
    assert plain("update workflow.workflow_run set priority = 5 where id = :'id'", id=run) == 0
    assert hand.snapshot(run) == before
    assert hand.complete(claim).answer == "applied"


@pytest.mark.spec("SQL-4")
def test_a_plan_with_open_steps_is_not_taken(hand, plain):
    """Its steps can be written by the verbs alone."""
    run = hand.plan(task("A"), task("B"))
    assert plain("take", type=TYPE, me="p1") == []
    assert plain(GREEDY) == 0
    hand.take(run)


@pytest.mark.spec("SQL-4", "REG-2")
def test_a_type_that_is_switched_off_is_not_taken(hand, plain):
    run = hand.start()
    hand.run(hand.store.register(TYPE, enabled=False))
    assert plain("take", type=TYPE, me="p1") == []
    hand.run(hand.store.register(TYPE, enabled=True))
    assert plain.one("take", type=TYPE, me="p1")[0] == run


@pytest.mark.spec("SQL-4")
@pytest.mark.parametrize(
    ("lease", "words"),
    [
        ("leased_by = 'p', lease_until = now()", "a time from now to a day ahead"),
        ("leased_by = 'p', lease_until = now() + interval '2 days'", "a time from now to a day ahead"),
        ("leased_by = 'p', lease_until = 'infinity'", "a time from now to a day ahead"),
        ("leased_by = 'p'", "a time from now to a day ahead"),
        ("lease_until = now() + interval '9 seconds'", "leased_by '': 1 to 255"),
        ("leased_by = 'p', lease_until = now() + interval '9 seconds', fence = 9", "sets fence"),
    ],
)
def test_a_lease_has_a_holder_and_an_end_that_is_near(hand, plain, lease, words):
    run = hand.start()
    before = hand.snapshot(run)
    with pytest.raises(psycopg.Error, match=words):
        plain(f"update workflow.workflow_run set status = 'leased', {lease}")
    assert hand.snapshot(run) == before


@pytest.mark.spec("SQL-4")
def test_between_two_plain_workers_only_the_name_protects(hand, plain):
    run = take(hand, plain)
    assert end(plain, "succeed", run, "p2") == []
    with pytest.raises(psycopg.Error, match=r"the heartbeat of run .* sets leased_by"):
        plain("update workflow.workflow_run set leased_by = 'p2' where id = :'id'", id=run)
    assert plain("update workflow.workflow_run set status = 'succeeded' where id = :'id'", id=run) == 1


@pytest.mark.spec("SQL-4", "LEASE-2")
def test_two_who_take_at_the_same_time_get_two_runs(hand, plain):
    runs = {hand.start(), hand.start()}
    other = Stranger(kit.database()[0], hand.clock)
    with plain.connection.transaction():
        mine = plain.one("take", type=TYPE, me="p1")[0]
        theirs = other.one("take", type=TYPE, me="p2")[0]
        assert other("take", type=TYPE, me="p3") == []
    assert {mine, theirs} == runs
    other.close()


@pytest.mark.spec("SQL-4", "LEASE-6")
def test_a_plain_worker_that_dies_is_noticed_by_a_keeper(hand, plain):
    """The page's own, or any; whoever took the run before is shut out for good."""
    run = take(hand, plain)
    hand.clock.turn(LEASE + 1)
    plain("keep")
    assert (hand.status(run), hand.get(run).crashes) == (Status.PENDING, 1)
    claim = hand.take(run)
    assert end(plain, "succeed", run) == []
    hand.complete(claim)
    hand.assert_replayed(run)


@pytest.mark.spec("SQL-4", "PAUSE-3")
@pytest.mark.parametrize("how", ["retry", "give_back"])
def test_a_pause_that_was_asked_for_takes_the_run(hand, plain, how):
    run = take(hand, plain)
    hand.pause(run, by="ann")
    assert end(plain, "heartbeat", run) == [("ann",)]
    end(plain, how, run)
    assert (hand.status(run), hand.last(run, "paused")) == (Status.PAUSED, {"by": "ann"})
    hand.assert_replayed(run)
    assert hand.resume(run).status is Status.PENDING


@pytest.mark.spec("SQL-4", "PAUSE-3")
@pytest.mark.parametrize("how", ["succeed", "fail"])
def test_an_end_wins_over_a_pause(hand, plain, how):
    run = take(hand, plain)
    hand.pause(run, by="ann")
    end(plain, how, run)
    assert hand.get(run).status in {Status.SUCCEEDED, Status.FAILED}
    assert hand.get(run).pause_asked_by is None


@pytest.mark.spec("TRAIL-2", "SQL-4")
def test_heartbeats_are_in_the_trail_once_a_minute(hand, plain):
    run = take(hand, plain)
    for _ in range(13):
        hand.clock.turn(10)
        assert end(plain, "heartbeat", run)
    assert hand.told(run).count("heartbeat") == 2
    assert hand.last(run, "heartbeat") == {"worker": "p1"}


@pytest.mark.spec("SQL-4")
@pytest.mark.parametrize("how", ["succeed", "fail"])
def test_what_an_engine_has_left_open_ends_with_the_run(hand, plain, how):
    claim = hand.held()
    hand.checkpoint(claim, done("a"), listen("b"))
    hand.release(claim)
    assert plain.one("take", type=TYPE, me="p1")[0] == claim.id
    end(plain, how, claim.id)
    assert hand.shape(claim.id) == [("a", "succeeded"), ("b", "cancelled")]
    hand.assert_replayed(claim.id)


@pytest.mark.spec("SQL-4")
@pytest.mark.parametrize(("how", "status"), [("succeed", "succeeded"), ("fail", "failed")])
def test_the_end_of_a_child_reaches_its_parent(hand, plain, how, status):
    claim, child = hand.held(), hand.id()
    hand.park(claim, call("c", child), known=0)
    assert plain.one("take", type=TYPE, me="p1")[0] == child
    end(plain, how, child)
    plain("keep")
    assert (hand.status(claim.id), hand.step(claim.id, "c").status) == (Status.PENDING, status)


@pytest.mark.spec("SQL-4")
def test_an_error_can_be_told_in_full_and_progress_too(hand, plain):
    run = take(hand, plain)
    plain("update workflow.workflow_run set progress = '{\"done\": 3}' where id = :'id'", id=run)
    assert hand.get(run).progress_json == '{"done": 3}'
    text = "update workflow.workflow_run set status = 'failed', error = :'error' where id = :'id'"
    with pytest.raises(psycopg.Error, match="an object, as in"):
        plain(text, id=run, error='"boom"')
    plain(text, id=run, error='{"kind": "no_stock", "message": "none left", "type": "Stock"}')
    shown = hand.get(run)
    assert (shown.error.kind, shown.error.type, shown.last_error) == (
        "no_stock",
        "Stock",
        "no_stock: none left",
    )


@pytest.mark.spec("SQL-5")
def test_the_verbs_are_functions_with_json_in_and_out(hand, plain):
    """Start, claim, renew, commit, pause, resume, cancel: as the page calls them."""
    (started,) = plain.one("start_by_function", type=TYPE, payload='{"n":1}', digest="d")
    run = started["id"]
    (claim,) = plain.one("claim", me="p1", type=TYPE)
    assert (claim["id"], claim["params"], claim["attempt"]) == (run, '{"n":1}', 1)
    renewal = plain.one("renew", me="p1", id=run, fence=claim["fence"])
    held = {"answer": "applied", "renewed": True, "pause_asked": False, "settled": [], "more": False}
    assert renewal == {"held": [held], "strays": []}
    answer = plain.one("commit", id=run, fence=claim["fence"], result="7")
    assert (answer["verdicts"][0]["answer"], hand.get(run).result_json) == ("applied", "7")
    other = hand.start()
    assert plain.one("pause", id=other, me="ann")["status"] == "pending"
    assert plain.one("cancel_by_function", id=other, me="ann")["status"] == "cancelled"
    hand.assert_replayed(other)
