"""The guards in the functions are the machine's own, and the tables refuse what no move may leave."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast.backoff import crash_delay
from holdfast.lifecycle import HOLDER_MOVES, RULES, Move, Status, StepStatus
from holdfast.stores.postgres import migrate
from holdfast.testing.contract.hand import Clock, Hand, ask, listen, sleep
from tests.stores.postgres.kit import database, make

# Where the condition of each move stands: a file, and a function in it.
GUARDS = {
    Move.CLAIM: ("claim.sql", "taken"),
    Move.EXPIRE: ("expire.sql", "expire"),
    Move.TIME_OUT: ("time_out.sql", "time_out"),
    Move.PAUSE: ("pause.sql", "pause"),
    Move.RESUME: ("resume.sql", "resume"),
    Move.CANCEL: ("cancel.sql", "cancel"),
    Move.REWIND: ("rewind.sql", "rewind"),
    Move.RETRY_RUN: ("retry_run.sql", "retry_run"),
    Move.DELETE: ("delete.sql", "delete"),
    Move.RESTORE: ("restore.sql", "restore"),
} | dict.fromkeys(HOLDER_MOVES, ("writing.sql", "commit_item"))


def function(file, name):
    """The text of one function."""
    text = " ".join(migrate.functions()[file].split())
    return re.search(rf"create or replace function {name}\(.*?\$\$(.*?)\$\$", text)[1]


def guarded(sql):
    """The statuses that the first condition on a run's status lets through."""
    first = re.search(r"\b[rw]\.status(?: \|\| '')? (?:(?:not )?in \(([^)]*)\)|(?:=|<>) ('\w+'))", sql)
    return set(re.findall(r"'(\w+)'", first[1] or first[2]))


@pytest.mark.spec("MOVE-1")
@pytest.mark.parametrize("move", sorted(set(Move) - {Move.START}))
def test_the_guard_of_each_verb_is_its_row_in_the_table_of_moves(move):
    """A move is legal from exactly the statuses that the machine names."""
    assert guarded(function(*GUARDS[move])) == {status.value for status in RULES[move].sources}


@pytest.mark.spec("LEASE-4", "LEASE-5")
@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("commit.sql", "commit_checkpoints"),
        ("commit.sql", "commit_completes"),
        ("advances.sql", "commit_advances"),
        ("renew.sql", "renew_some"),
    ],
)
def test_what_is_written_many_at_once_is_guarded_item_by_item(file, name):
    """Leased, under this item's own fence, and not past its time: in the very statement that writes."""
    sql = function(file, name)
    assert guarded(sql) == {"leased"}
    assert re.search(r"r\.fence = [il]\.fence and r\.lease_until >= now\b", sql)


@pytest.mark.spec("LEASE-4", "LEASE-5")
def test_what_a_holder_writes_asks_for_lease_fence_and_time():
    """Any other item: nothing is written unless all three are as they should be."""
    refused = "r.status <> 'leased' or r.fence <> his_fence or r.lease_until < now"
    assert refused in function("writing.sql", "commit_item")


@pytest.mark.spec("MOVE-6")
def test_the_tables_know_exactly_the_statuses_of_the_machine():
    """Statuses in the checks are those in lifecycle.py, no more and no fewer."""
    schema = " ".join(migrate.schemas()[0].split())
    checks = re.findall(r"\bstatus text not null(?: default '\w+')? check \(status in \(([^)]*)\)", schema)
    found = [set(re.findall(r"'(\w+)'", check)) for check in checks[:2]]
    assert found == [{status.value for status in Status}, {status.value for status in StepStatus}]


@pytest.mark.spec("MOVE-6")
@pytest.mark.parametrize(
    "change",
    [
        "status = 'running'",
        "status = 'leased'",
        "leased_by = 'someone', lease_until = now()",
        "status = 'leased', leased_by = 'someone'",
        "status = 'succeeded'",
        "finished_at = now()",
        "status = 'paused'",
        "run_at = null",
    ],
)
def test_a_row_that_no_move_leaves_behind_is_refused_by_the_table(hand, change):
    """Unknown status, lease without holder, holder without lease, end without its time: all refused."""
    hand.start()
    with pytest.raises(psycopg.errors.IntegrityError):
        database()[1].execute(f"update workflow.workflow_run set {change}, rev = rev + 1")


@pytest.mark.spec("MOVE-6")
@pytest.mark.parametrize("row", [(1, "b", "succeeded"), (2, "a", "succeeded"), (2, "b", "done")])
def test_one_seq_and_one_key_of_a_run_have_one_row(hand, row):
    """A second row of one (run, seq) or (run, key) is refused, and a step status nobody knows too."""
    run = hand.start()
    insert = (
        "insert into workflow.workflow_step (run_id, seq, key, kind, status) values (%s, %s, %s, 'task', %s)"
    )
    database()[1].execute(insert, (run, 1, "a", "succeeded"))
    with pytest.raises(psycopg.errors.IntegrityError):
        database()[1].execute(insert, (run, *row))


@pytest.mark.spec("LEASE-6")
def test_a_run_that_crashed_waits_as_long_as_in_every_store():
    found = database()[1].execute(
        "select n, workflow.crash_delay(n) from unnest(array[0, 1, 2, 3, 12, 13, 14, 40, 2147483647]) as n"
    )
    assert all(delay == crash_delay(crashes) for crashes, delay in found.fetchall())


@pytest.mark.spec("MOVE-7")
@pytest.mark.parametrize("then", ["waiting", "paused"])
def test_a_run_that_waits_for_nothing_is_found(hand, then):
    """By id, and only while it is shown; a gate, a child, a time or a topic is a way on."""
    claims = [hand.held() for _ in range(4)]
    for claim, step in zip(claims, (listen(), sleep(), ask(), listen()), strict=True):
        hand.park(claim, step)
        if then == "paused":
            hand.pause(claim.id)
    hand.delete(claims[3].id)
    assert hand.run(hand.store.stuck()) == []
    database()[1].execute("update workflow.workflow_step set topic = null where kind = 'event'")
    assert hand.run(hand.store.stuck()) == [claims[0].id]
    assert hand.run(hand.store.stuck(limit=0)) == []


@pytest.fixture
def hand(tmp_path):
    clock = Clock()
    hand = Hand(make(clock, tmp_path), clock)
    yield hand
    hand.close()
