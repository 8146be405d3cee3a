"""A purge on Postgres: beside others, in several commits, and at no cost for what has not expired."""

from __future__ import annotations

import random

import psycopg
import pytest

from holdfast.contract import DELETED_SECONDS, TTL_SECONDS
from holdfast.errors import UnknownRun
from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import ANY, Purged, RunFilter, StepWrite
from holdfast.stores.postgres import purge
from holdfast.testing.contract.hand import call, done
from holdfast.testing.contract.post import answered, message, relay, sent_by
from tests.stores.postgres.kit import database

TABLES = ("run", "step", "event", "receipt", "inbox", "outbox")
UNKNOWN = "HF001"


def later(hand, sessions, seconds):
    """The clock, turned for everybody."""
    hand.clock.turn(seconds)
    for one in sessions:
        one.run("select set_config('holdfast.now', %s, false)", str(hand.clock.now))


def ended(hand, steps=0, **fields):
    claim = hand.held(**fields)
    hand.complete(claim, *(done(f"s{number}") for number in range(steps)))
    return claim.id


def removed(session, **terms):
    """The runs that one slice has removed."""
    return session.call("purge", terms)["gone"].get("runs", 0)


def purged(hand, **terms):
    total = 0
    while (one := hand.purge(**terms)).total:
        total += one.runs
    return total


def rows():
    counted = {}
    for table in TABLES:
        ((count,),) = database()[1].execute(f"select count(*) from workflow.workflow_{table}").fetchall()
        counted[table] = count
    return counted


# Beside others.


@pytest.mark.spec("DEL-1", "TTL-1")
def test_a_run_that_is_being_restored_is_passed_over(hand, sessions):
    """The purge does not wait for it, and removes the others."""
    one, two = sessions
    back, gone = hand.start(), hand.start()
    hand.delete(back)
    hand.delete(gone)
    later(hand, sessions, DELETED_SECONDS)
    one.begin()
    one.call("restore", back, None, "ann")
    assert removed(two) == 1
    one.commit()
    assert purged(hand) == 0
    assert (hand.status(back), hand.get(gone)) == (Status.PENDING, None)


@pytest.mark.spec("DEL-1", "TTL-1")
@pytest.mark.parametrize("end", ["commit", "roll_back"])
def test_a_restore_beside_the_purge_comes_too_late_or_not_at_all(hand, sessions, end):
    """It waits, and finds no run; or, if the purge has died, the whole run."""
    one, two = sessions
    claim = hand.held()
    hand.checkpoint(claim)
    hand.delete(claim.id)
    later(hand, sessions, DELETED_SECONDS)
    one.begin()
    assert removed(one) == 1
    restoring = two.waits("restore", claim.id, None, "ann")
    getattr(one, end)()
    if end == "roll_back":
        assert restoring.result()["id"] == str(claim.id)
        assert hand.shape(claim.id) == [("first", "succeeded")]
        return
    with pytest.raises(psycopg.Error) as refusal:
        restoring.result()
    assert refusal.value.sqlstate == UNKNOWN


@pytest.mark.spec("TTL-1", "REW-1")
def test_a_run_that_was_rewound_since_it_was_found_is_not_removed(hand, sessions):
    """It had ended long ago, and is open again."""
    one, two = sessions
    run = ended(hand, steps=2)
    later(hand, sessions, TTL_SECONDS)
    one.begin()
    one.call("rewind", run, "s1", None, "ann", True)
    assert removed(two) == 0
    one.commit()
    assert purged(hand) == 0
    assert hand.shape(run) == [("s0", "succeeded")]


@pytest.mark.spec("TTL-1", "DEL-1", "OUT-1")
@pytest.mark.parametrize("since", ["restored", "rewound", "resent"])
def test_what_was_found_is_looked_at_again_when_it_is_locked(hand, sessions, since):
    """Between the look and the lock it was shown, opened, or a message of it sent again."""
    one, _ = sessions
    claim = sent_by(hand, message("m"))
    (parcel,) = relay(hand)
    answered(hand, parcel)
    hand.complete(claim)
    run = claim.id
    if since == "restored":
        hand.delete(run)
    ended_before = "'-infinity'" if since == "restored" else "clock()"
    lock = f"select lock_expired(%s, clock(), clock(), {ended_before})"
    assert one.run(lock, [run]) == [([run],)]
    match since:
        case "restored":
            hand.restore(run)
        case "rewound":
            hand.rewind(run, "post")
        case "resent":
            hand.run(hand.store.resend("m", ANY))
    assert one.run(lock, [run]) == [([],)]


@pytest.mark.spec("TTL-1")
def test_two_purges_share_the_work_and_neither_waits(hand, sessions):
    """Each run is removed once, and counted once."""
    one, two = sessions
    for _ in range(9):
        ended(hand)
    later(hand, sessions, TTL_SECONDS)
    one.begin()
    assert removed(one, limit=4) == 4
    passed = two.call("purge", {"limit": 4})
    assert (passed["gone"], passed["more"]) == ({}, True), "somebody else has these four"
    assert removed(two, limit=4, past=passed["past"]) == 4
    one.commit()
    assert purged(hand) == 1
    assert rows() == dict.fromkeys(TABLES, 0)


@pytest.mark.spec("DEL-1", "FLOW-7")
def test_a_parent_that_asks_anew_for_a_child_that_is_being_removed_gets_another(hand, sessions):
    """He gave the wait up, and opens it while the purge is at the child: he waits for none that is gone."""
    one, two = sessions
    child, parent = hand.id(), hand.held()
    hand.checkpoint(parent, call("c", child), known=0)
    hand.checkpoint(parent, _given_up("c"), known=0)
    hand.delete(child)
    later(hand, sessions, DELETED_SECONDS)
    parent = _taken_anew(hand, parent)
    again = [hand.item(parent, Move.CHECKPOINT, call("c", child), known=0)], None, None, None, True
    one.begin()
    assert removed(one) == 1
    assert two.call("commit", *again)["verdicts"][0]["answer"] == "busy"
    one.commit()
    assert two.call("commit", *again)["verdicts"][0]["answer"] == "applied"
    assert (hand.step(parent.id, "c").status, hand.status(child)) == (StepStatus.WAITING, Status.PENDING)


@pytest.mark.spec("DEL-1", "FLOW-7")
def test_a_child_whose_parent_is_being_written_is_passed_over(hand, sessions):
    """What the parent does then is seen by the next purge: it waits for the child, and is told."""
    one, two = sessions
    child, parent = hand.id(), hand.held()
    hand.checkpoint(parent, call("c", child), known=0)
    hand.checkpoint(parent, _given_up("c"), known=0)
    hand.delete(child)
    later(hand, sessions, DELETED_SECONDS)
    parent = _taken_anew(hand, parent)
    again = [hand.item(parent, Move.CHECKPOINT, call("c", child), known=0)], None, None, None, True
    one.begin()
    assert one.call("commit", *again)["verdicts"][0]["answer"] == "applied"
    assert removed(two) == 0
    one.commit()
    assert hand.step(parent.id, "c").status is StepStatus.WAITING
    assert purged(hand) == 1
    assert hand.step(parent.id, "c").status is StepStatus.FAILED


def _given_up(key):
    return StepWrite(key=key, kind=StepKind.CHILD, status=StepStatus.CANCELLED)


def _taken_anew(hand, claim):
    hand.tick()
    return hand.take(claim.id)


# In several commits.


@pytest.mark.spec("TTL-1", "DEL-1")
def test_a_run_that_is_removed_in_several_commits_is_hidden_from_the_first_on(hand, sessions):
    """Whoever dies in between leaves nothing that can be seen or restored; the next purge goes on."""
    one, _ = sessions
    run = ended(hand, steps=60, key="k", digest="d")
    later(hand, sessions, TTL_SECONDS)
    first = one.call("purge", {"rows": 20})
    assert (first["gone"], first["more"]) == ({}, True)
    assert (hand.get(run), hand.trail(), hand.trail(run)) == (None, [], [])
    assert hand.run(hand.store.list(RunFilter(deleted=True))) == []
    for verb in (hand.restore, hand.delete, hand.cancel, hand.steps):
        with pytest.raises(UnknownRun):
            verb(run)
    assert hand.start(key="k", digest="d") == run, "its key is taken until it is gone"
    later(hand, sessions, -TTL_SECONDS)
    assert purged(hand) == 1, "once begun, it goes, whatever the terms are by now"
    assert rows() == dict.fromkeys(TABLES, 0)


@pytest.mark.spec("TTL-1")
def test_no_commit_removes_more_rows_than_it_may(hand, sessions):
    """And all of them are removed in the end, of every table."""
    one, _ = sessions
    claim = hand.held()
    for number in range(30):
        hand.emit(run=claim.id, id=f"e{number}")
    hand.checkpoint(claim, *(done(f"s{number}") for number in range(50)))
    hand.complete(claim)
    ended(hand, steps=5)
    later(hand, sessions, TTL_SECONDS)
    before, steps = sum(rows().values()), []
    while sum(rows().values()):
        assert len(steps) < 50, "it comes to an end"
        one.call("purge", {"rows": 10})
        steps.append(before - sum(rows().values()))
        before -= steps[-1]
    assert max(steps) <= 10 + 2, "their own rows come on top"


@pytest.mark.spec("TTL-1", "OUT-1")
def test_runs_that_are_held_are_passed_once_a_round(hand, sessions):
    """However many: the next slice goes on where the last one stopped, and nothing behind them is missed."""
    one, _ = sessions
    sent_by(hand, message("m0"))
    _multiply_the_held(2500)
    hand.clock.turn(1)
    free = ended(hand)
    later(hand, sessions, TTL_SECONDS)
    first = _slices(one)
    assert (len(first), first[-1]["gone"]["runs"], hand.get(free)) == (3, 1, None)
    rest = _slices(one, first[-1]["past"])
    assert (rest[0]["more"], rest[-1]["gone"]["runs"], rest[-1]["past"]) == (True, 0, None)
    assert len(rest) == 1 + 3, "the end of this round, and all of another"
    assert hand.purge() == Purged()


def _slices(session, past=None):
    """As one call of the store does it: until something has gone, or nothing is left."""
    answers = []
    while not answers or answers[-1]["more"]:
        answers.append(session.call("purge", {"past": past}))
        past = answers[-1]["past"]
    return answers


def _multiply_the_held(count):
    """Ended runs, each with a message that nobody takes."""
    database()[1].execute(
        """
        insert into workflow.workflow_run
        select (jsonb_populate_record(r, jsonb_build_object(
            'id', gen_random_uuid(), 'status', 'succeeded', 'leased_by', null, 'lease_until', null,
            'finished_at', r.created_at, 'rev', 1
        ))).*
        from workflow.workflow_run as r, generate_series(1, %s)
        """,
        (count,),
    )
    database()[1].execute(
        """
        insert into workflow.workflow_outbox (id, run_id, sink)
        select r.id::text, r.id, 'nobody' from workflow.workflow_run as r where r.finished_at is not null
        """
    )


@pytest.mark.spec("TTL-1")
def test_a_term_that_is_endless_keeps_everything(hand):
    run = ended(hand)
    hand.clock.turn(TTL_SECONDS)
    assert hand.purge(ttl_seconds=float("inf")) == Purged()
    assert hand.status(run) is Status.SUCCEEDED


def test_a_commit_removes_few_rows_by_default():
    """So that nobody who waits for one of them waits long."""
    assert purge.ROWS <= 10_000


@pytest.mark.spec("TTL-1")
def test_a_slice_is_bounded_in_bytes(hand, monkeypatch):
    """Of values as they are stored: those of steps and trail, of the runs themselves, and of events."""
    text = f'"{"".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=40_000))}"'
    runs = []
    for _ in range(3):
        claim = hand.held(params=text)
        hand.complete(claim, *(done(f"s{n}", output=text) for n in range(4)), result=text)
        runs.append(claim.id)
    for n in range(4):
        hand.emit("parcel", payload=text, id=f"e{n}", keep_seconds=1)
    hand.clock.turn(8 * 86400)
    monkeypatch.setattr("holdfast.bounds.BATCH_BYTES", 25_000)  # a slice has four times as many
    slices, call = [], hand.store._call

    def stored():
        columns = {"run": "payload", "step": "output", "inbox": "payload"}
        sums = [
            f"(select coalesce(sum(pg_column_size({column})), 0) from workflow.workflow_{table})"
            for table, column in columns.items()
        ]
        return int(database()[1].execute(f"select {' + '.join(sums)}").fetchone()[0])

    async def measured(verb, *args):
        before = stored()
        answer = await call(verb, *args)
        slices.append(before - stored())
        return answer

    monkeypatch.setattr(hand.store, "_call", measured)
    assert purged(hand, ttl_seconds=1) == 3
    assert max(slices) <= 2 * (100_000 + 40_000)  # runs with their rows, and then events
    assert len(slices) >= 6
    assert stored() == 0
    assert rows() == dict.fromkeys(TABLES, 0)
