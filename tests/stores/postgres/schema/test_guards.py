"""The guards in the functions match the table of moves, and the tables refuse invalid rows."""

from __future__ import annotations

import re

import psycopg
import pytest

from holdfast.backoff import crash_delay
from holdfast.lifecycle import HOLDER_MOVES, RULES, Move, Status, StepStatus
from holdfast.stores.postgres import migrate
from holdfast.testing.contract.driver import Clock, StoreDriver, ask, listen, sleep
from tests.stores.postgres.kit import database, make

# The condition of each move: a file, and a function in it.
GUARDS = {
    Move.CLAIM: ("claiming/claim.sql", "lock_candidates"),
    Move.EXPIRE: ("chores/expire.sql", "expire"),
    Move.TIME_OUT: ("chores/time_out.sql", "time_out"),
    Move.PAUSE: ("people/pause.sql", "pause"),
    Move.RESUME: ("people/resume.sql", "resume"),
    Move.CANCEL: ("people/cancel.sql", "cancel"),
    Move.REWIND: ("people/rewind.sql", "rewind"),
    Move.RETRY_RUN: ("people/retry_run.sql", "retry_run"),
    Move.DELETE: ("people/delete.sql", "delete"),
    Move.RESTORE: ("people/restore.sql", "restore"),
} | dict.fromkeys(HOLDER_MOVES, ("holding/commit_item.sql", "commit_item"))


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
        ("holding/commit.sql", "commit_checkpoints"),
        ("holding/commit.sql", "commit_completes"),
        ("plans/advances.sql", "commit_advances"),
        ("holding/renew.sql", "renew_some"),
    ],
)
def test_what_is_written_many_at_once_is_guarded_item_by_item(file, name):
    """Leased, under this item's own fence, and not expired: in the statement that writes."""
    sql = function(file, name)
    assert guarded(sql) == {"leased"}
    assert re.search(r"r\.fence = [il]\.fence and r\.lease_until >= now\b", sql)


@pytest.mark.spec("LEASE-4", "LEASE-5")
def test_what_a_holder_writes_asks_for_lease_fence_and_time():
    """For any other item: nothing is written unless all three conditions hold."""
    refused = "r.status <> 'leased' or r.fence <> item_fence or r.lease_until < now"
    assert refused in function("holding/commit_item.sql", "commit_item")


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
def test_a_row_that_no_move_leaves_behind_is_refused_by_the_table(driver, change):
    """Unknown status, lease without holder, holder without lease, end without its time: all refused."""
    driver.start()
    with pytest.raises(psycopg.errors.IntegrityError):
        database()[1].execute(f"update workflow.workflow_run set {change}, rev = rev + 1")


@pytest.mark.spec("MOVE-6")
@pytest.mark.parametrize("row", [(1, "b", "succeeded"), (2, "a", "succeeded"), (2, "b", "done")])
def test_one_seq_and_one_key_of_a_run_have_one_row(driver, row):
    """A second row of one (run, seq) or (run, key) is refused, and so is an unknown step status."""
    run = driver.start()
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
def test_a_run_that_waits_for_nothing_is_found(driver, then):
    """By id, and only while it is not deleted; a gate, a child, a time or a topic can wake a run."""
    claims = [driver.held() for _ in range(4)]
    for claim, step in zip(claims, (listen(), sleep(), ask(), listen()), strict=True):
        driver.park(claim, step)
        if then == "paused":
            driver.pause(claim.id)
    driver.delete(claims[3].id)
    assert driver.run(driver.store.stuck()) == []
    database()[1].execute("update workflow.workflow_step set topic = null where kind = 'event'")
    assert driver.run(driver.store.stuck()) == [claims[0].id]
    assert driver.run(driver.store.stuck(limit=0)) == []


@pytest.fixture
def driver(tmp_path):
    clock = Clock()
    driver = StoreDriver(make(clock, tmp_path), clock)
    yield driver
    driver.close()
