"""Purges on Postgres: beside other sessions, in several commits, and without cost for rows that have not
expired.
"""

from __future__ import annotations

import random

import psycopg
import pytest

from holdfast.contract import DELETED_SECONDS, TTL_SECONDS
from holdfast.errors import UnknownRun
from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import ANY, Purged, RunFilter, StepWrite
from holdfast.stores.postgres.verbs import purge
from holdfast.testing.contract.driver import call, done
from holdfast.testing.contract.outbox import answered, message, relay, sent_by
from tests.stores.postgres.kit import database

TABLES = ("run", "step", "event", "receipt", "inbox", "outbox")
UNKNOWN = "HF001"


def later(driver, sessions, seconds):
    """Move the clock of the driver and of the sessions."""
    driver.clock.turn(seconds)
    for one in sessions:
        one.run("select set_config('holdfast.now', %s, false)", str(driver.clock.now))


def ended(driver, steps=0, **fields):
    claim = driver.held(**fields)
    driver.complete(claim, *(done(f"s{number}") for number in range(steps)))
    return claim.id


def removed(session, **terms):
    """The runs that one slice has removed."""
    return session.call("purge", terms)["gone"].get("runs", 0)


def purged(driver, **terms):
    total = 0
    while (one := driver.purge(**terms)).total:
        total += one.runs
    return total


def rows():
    counted = {}
    for table in TABLES:
        ((count,),) = database()[1].execute(f"select count(*) from workflow.workflow_{table}").fetchall()
        counted[table] = count
    return counted


# Purges beside other sessions.


@pytest.mark.spec("DEL-1", "TTL-1")
def test_a_run_that_is_being_restored_is_passed_over(driver, sessions):
    """The purge does not wait for the run, and removes the others."""
    one, two = sessions
    back, gone = driver.start(), driver.start()
    driver.delete(back)
    driver.delete(gone)
    later(driver, sessions, DELETED_SECONDS)
    one.begin()
    one.call("restore", back, None, "ann")
    assert removed(two) == 1
    one.commit()
    assert purged(driver) == 0
    assert (driver.status(back), driver.get(gone)) == (Status.PENDING, None)


@pytest.mark.spec("DEL-1", "TTL-1")
@pytest.mark.parametrize("end", ["commit", "roll_back"])
def test_a_restore_beside_the_purge_comes_too_late_or_not_at_all(driver, sessions, end):
    """The restore waits, and finds no run; or, if the purge has died, the whole run."""
    one, two = sessions
    claim = driver.held()
    driver.checkpoint(claim)
    driver.delete(claim.id)
    later(driver, sessions, DELETED_SECONDS)
    one.begin()
    assert removed(one) == 1
    restoring = two.waits("restore", claim.id, None, "ann")
    getattr(one, end)()
    if end == "roll_back":
        assert restoring.result()["id"] == str(claim.id)
        assert driver.shape(claim.id) == [("first", "succeeded")]
        return
    with pytest.raises(psycopg.Error) as refusal:
        restoring.result()
    assert refusal.value.sqlstate == UNKNOWN


@pytest.mark.spec("TTL-1", "REW-1")
def test_a_run_that_was_rewound_since_it_was_found_is_not_removed(driver, sessions):
    """The run had ended long ago, and is open again."""
    one, two = sessions
    run = ended(driver, steps=2)
    later(driver, sessions, TTL_SECONDS)
    one.begin()
    one.call("rewind", run, "s1", None, "ann", True)
    assert removed(two) == 0
    one.commit()
    assert purged(driver) == 0
    assert driver.shape(run) == [("s0", "succeeded")]


@pytest.mark.spec("TTL-1", "DEL-1", "OUT-1")
@pytest.mark.parametrize("since", ["restored", "rewound", "resent"])
def test_what_was_found_is_looked_at_again_when_it_is_locked(driver, sessions, since):
    """Between the search and the lock the run was restored or opened, or a message of it was sent again."""
    one, _ = sessions
    claim = sent_by(driver, message("m"))
    (parcel,) = relay(driver)
    answered(driver, parcel)
    driver.complete(claim)
    run = claim.id
    if since == "restored":
        driver.delete(run)
    ended_before = "'-infinity'" if since == "restored" else "clock()"
    lock = f"select lock_expired(%s, clock(), clock(), {ended_before})"
    assert one.run(lock, [run]) == [([run],)]
    match since:
        case "restored":
            driver.restore(run)
        case "rewound":
            driver.rewind(run, "post")
        case "resent":
            driver.run(driver.store.resend("m", ANY))
    assert one.run(lock, [run]) == [([],)]


@pytest.mark.spec("TTL-1")
def test_two_purges_share_the_work_and_neither_waits(driver, sessions):
    """Each run is removed once, and counted once."""
    one, two = sessions
    for _ in range(9):
        ended(driver)
    later(driver, sessions, TTL_SECONDS)
    one.begin()
    assert removed(one, limit=4) == 4
    passed = two.call("purge", {"limit": 4})
    assert (passed["gone"], passed["more"]) == ({}, True), "somebody else has these four"
    assert removed(two, limit=4, past=passed["past"]) == 4
    one.commit()
    assert purged(driver) == 1
    assert rows() == dict.fromkeys(TABLES, 0)


@pytest.mark.spec("DEL-1", "FLOW-7")
def test_a_parent_that_asks_anew_for_a_child_that_is_being_removed_gets_another(driver, sessions):
    """The parent gave the wait up, and opens it again while the purge removes the child: it does not wait for
    a run that is gone.
    """
    one, two = sessions
    child, parent = driver.id(), driver.held()
    driver.checkpoint(parent, call("c", child), known=0)
    driver.checkpoint(parent, _given_up("c"), known=0)
    driver.delete(child)
    later(driver, sessions, DELETED_SECONDS)
    parent = _taken_anew(driver, parent)
    again = [driver.item(parent, Move.CHECKPOINT, call("c", child), known=0)], None, None, None, True
    one.begin()
    assert removed(one) == 1
    assert two.call("commit", *again)["verdicts"][0]["answer"] == "busy"
    one.commit()
    assert two.call("commit", *again)["verdicts"][0]["answer"] == "applied"
    assert (driver.step(parent.id, "c").status, driver.status(child)) == (StepStatus.WAITING, Status.PENDING)


@pytest.mark.spec("DEL-1", "FLOW-7")
def test_a_child_whose_parent_is_being_written_is_passed_over(driver, sessions):
    """The next purge sees what the parent has done: it waits for the child, and is told."""
    one, two = sessions
    child, parent = driver.id(), driver.held()
    driver.checkpoint(parent, call("c", child), known=0)
    driver.checkpoint(parent, _given_up("c"), known=0)
    driver.delete(child)
    later(driver, sessions, DELETED_SECONDS)
    parent = _taken_anew(driver, parent)
    again = [driver.item(parent, Move.CHECKPOINT, call("c", child), known=0)], None, None, None, True
    one.begin()
    assert one.call("commit", *again)["verdicts"][0]["answer"] == "applied"
    assert removed(two) == 0
    one.commit()
    assert driver.step(parent.id, "c").status is StepStatus.WAITING
    assert purged(driver) == 1
    assert driver.step(parent.id, "c").status is StepStatus.FAILED


def _given_up(key):
    return StepWrite(key=key, kind=StepKind.CHILD, status=StepStatus.CANCELLED)


def _taken_anew(driver, claim):
    driver.tick()
    return driver.take(claim.id)


# Several commits.


@pytest.mark.spec("TTL-1", "DEL-1")
def test_a_run_that_is_removed_in_several_commits_is_hidden_from_the_first_on(driver, sessions):
    """A purge that dies in between leaves nothing that can be seen or restored; the next purge continues."""
    one, _ = sessions
    run = ended(driver, steps=60, key="k", digest="d")
    later(driver, sessions, TTL_SECONDS)
    first = one.call("purge", {"rows": 20})
    assert (first["gone"], first["more"]) == ({}, True)
    assert (driver.get(run), driver.trail(), driver.trail(run)) == (None, [], [])
    assert driver.run(driver.store.list(RunFilter(deleted=True))) == []
    for verb in (driver.restore, driver.delete, driver.cancel, driver.steps):
        with pytest.raises(UnknownRun):
            verb(run)
    assert driver.start(key="k", digest="d") == run, "its key is taken until it is gone"
    later(driver, sessions, -TTL_SECONDS)
    assert purged(driver) == 1, "once begun, it goes, whatever the terms are by now"
    assert rows() == dict.fromkeys(TABLES, 0)


@pytest.mark.spec("TTL-1")
def test_no_commit_removes_more_rows_than_it_may(driver, sessions):
    """In the end all rows of every table are removed."""
    one, _ = sessions
    claim = driver.held()
    for number in range(30):
        driver.emit(run=claim.id, id=f"e{number}")
    driver.checkpoint(claim, *(done(f"s{number}") for number in range(50)))
    driver.complete(claim)
    ended(driver, steps=5)
    later(driver, sessions, TTL_SECONDS)
    before, steps = sum(rows().values()), []
    while sum(rows().values()):
        assert len(steps) < 50, "it comes to an end"
        one.call("purge", {"rows": 10})
        steps.append(before - sum(rows().values()))
        before -= steps[-1]
    assert max(steps) <= 10 + 2, "their own rows come on top"


@pytest.mark.spec("TTL-1", "OUT-1")
def test_runs_that_are_held_are_passed_once_a_round(driver, sessions):
    """However many there are: the next slice continues where the last one stopped, and nothing behind them is
    missed.
    """
    one, _ = sessions
    sent_by(driver, message("m0"))
    _multiply_the_held(2500)
    driver.clock.turn(1)
    free = ended(driver)
    later(driver, sessions, TTL_SECONDS)
    first = _slices(one)
    assert (len(first), first[-1]["gone"]["runs"], driver.get(free)) == (3, 1, None)
    rest = _slices(one, first[-1]["past"])
    assert (rest[0]["more"], rest[-1]["gone"]["runs"], rest[-1]["past"]) == (True, 0, None)
    assert len(rest) == 1 + 3, "the end of this round, and all of another"
    assert driver.purge() == Purged()


def _slices(session, past=None):
    """Purge like one call of the store: until something was removed, or nothing is left."""
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
def test_a_term_that_is_endless_keeps_everything(driver):
    run = ended(driver)
    driver.clock.turn(TTL_SECONDS)
    assert driver.purge(ttl_seconds=float("inf")) == Purged()
    assert driver.status(run) is Status.SUCCEEDED


def test_a_commit_removes_few_rows_by_default():
    """A session that waits for one of the rows does not wait long."""
    assert purge.ROWS <= 10_000


@pytest.mark.spec("TTL-1")
def test_a_slice_is_bounded_in_bytes(driver, monkeypatch):
    """Sizes of values as stored: those of steps and trail, of the runs themselves, and of events."""
    text = f'"{"".join(random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=40_000))}"'
    runs = []
    for _ in range(3):
        claim = driver.held(params=text)
        driver.complete(claim, *(done(f"s{n}", output=text) for n in range(4)), result=text)
        runs.append(claim.id)
    for n in range(4):
        driver.emit("parcel", payload=text, id=f"e{n}", keep_seconds=1)
    driver.clock.turn(8 * 86400)
    monkeypatch.setattr("holdfast.bounds.BATCH_BYTES", 25_000)  # a slice has four times as many
    slices, call = [], driver.store._call

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

    monkeypatch.setattr(driver.store, "_call", measured)
    assert purged(driver, ttl_seconds=1) == 3
    assert max(slices) <= 2 * (100_000 + 40_000)  # runs with their rows, and then events
    assert len(slices) >= 6
    assert stored() == 0
    assert rows() == dict.fromkeys(TABLES, 0)
