"""Races of counts: folds, open transactions, repairs and purges beside each other leave every count right."""

from __future__ import annotations

import pytest

from holdfast.contract import FOLD_SECONDS
from holdfast.records import NewRun
from holdfast.testing.contract.driver import TYPE
from holdfast.testing.contract.test_counts import assert_counts, totals
from tests.stores.postgres.kit import database
from tests.stores.postgres.session import Session


def fold(session, most=5000):
    """Fold whatever is there: the changes of these tests are old enough."""
    return session.call("fold_counts", most)


def start(driver, session):
    return session.call("start", [NewRun(id=driver.id(), type=TYPE)])


def past():
    found = database()[1].execute("select past from workflow.workflow_count_fold").fetchone()
    return 0 if found is None else found[0]


def changes():
    return [
        row[0] for row in database()[1].execute("select seq from workflow.workflow_count_change order by seq")
    ]


@pytest.fixture
def later(driver):
    """Three sessions for which every change is old enough to be folded."""
    now = driver.clock.now + int(FOLD_SECONDS * 1_000_000)
    three = [Session(now) for _ in range(3)]
    yield three
    for one in three:
        one.close()


@pytest.mark.spec("READ-4")
def test_of_two_folds_at_once_the_second_does_nothing_and_does_not_wait(driver, later):
    one, two, _ = later
    driver.held()
    one.begin()
    assert fold(one) == 2
    assert fold(two) == 0
    assert_counts(driver)
    one.commit()
    assert (fold(two), changes()) == (0, [])
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_a_fold_that_is_undone_leaves_everything_as_it_was(driver, later):
    one, two, _ = later
    driver.held()
    one.begin()
    assert fold(one) == 2
    one.roll_back()
    assert_counts(driver)
    assert fold(two) == 2
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_what_is_committed_after_later_changes_were_folded_is_not_missed(driver, sessions, later):
    """A transaction that is open for long has taken its number early. Folds go on beside it."""
    (one, _), (two, *_) = sessions, later
    driver.start()
    one.begin()
    start(driver, one)
    for _ in range(5):
        driver.start()
        assert fold(two) > 0
        assert past() < 2
        assert_counts(driver)
    assert driver.counts().by_status() == {"pending": 6}
    one.commit()
    assert driver.counts().by_status() == {"pending": 7}
    assert_counts(driver)
    assert fold(two) == 1
    assert driver.counts().by_status() == {"pending": 7}
    assert_counts(driver)
    for _ in range(3):
        driver.start()
        fold(two)
    assert past() > 2
    assert_counts(driver)


@pytest.mark.spec("READ-4")
@pytest.mark.parametrize("how", ["commit", "roll_back"])
def test_savepoints_and_undone_statements_count_as_they_end(driver, sessions, later, how):
    (one, _), (two, *_) = sessions, later
    one.begin()
    start(driver, one)
    one.run("savepoint a")
    start(driver, one)
    one.run("rollback to a")
    start(driver, one)
    driver.start()
    fold(two)
    getattr(one, how)()
    assert driver.counts().by_status() == {"pending": 3 if how == "commit" else 1}
    fold(two)
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_a_reader_with_an_old_snapshot_sees_no_fold(driver, sessions, later):
    """Its answer stays the same while changes are folded, and more are made."""
    (one, _), (two, *_) = sessions, later
    driver.held()
    one.run("begin isolation level repeatable read")
    before = one.call("counts", None)
    for _ in range(3):
        driver.held()
        assert fold(two) > 0
        assert one.call("counts", None) == before
        assert one.call("recount", False) == []
    one.commit()
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_a_fold_takes_no_more_than_it_is_told_and_the_marker_waits_for_the_rest(driver, later):
    one, *_ = later
    for _ in range(5):
        driver.start()
    assert [fold(one, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_a_repair_beside_open_transactions_stays_right(driver, sessions, later):
    """It compares what is committed. What comes later is a change of its own."""
    (one, two), (folder, *_) = sessions, later
    for _ in range(3):
        driver.start()
    fold(folder)
    database()[1].execute("update workflow.workflow_count set number = number + 40")
    one.begin()
    start(driver, one)
    ((found,),) = two.run("select recount(true)")
    assert found == [{"tenant": "default", "type": TYPE, "status": "pending", "kept": 43, "real": 3}]
    one.commit()
    assert driver.counts().by_status() == {"pending": 4}
    assert_counts(driver)
    fold(folder)
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_of_two_repairs_at_once_the_second_finds_nothing(driver, sessions):
    one, two = sessions
    driver.start()
    database()[1].execute("delete from workflow.workflow_count_change")
    one.begin()
    assert len(one.call("recount", True)) == 1
    waiting = two.waits("recount", True)
    one.commit()
    assert waiting.result() == []
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_a_purge_beside_a_fold_waits_for_nothing(driver, later):
    """It adds a change of its own."""
    one, *_ = later
    driver.complete(driver.held(ttl_seconds=0.0))
    driver.start()
    one.begin()
    assert fold(one) == 4
    assert driver.purge().runs == 1
    assert driver.counts().by_status() == {"pending": 1}
    one.commit()
    assert_counts(driver)
    assert fold(one) == 1
    assert totals(driver) == {"started": 2, "succeeded": 1}
    assert_counts(driver)


@pytest.mark.spec("READ-4")
def test_after_the_sessions_are_ended_in_the_middle_the_counts_are_right(driver, sessions, later):
    """The one folds, the other starts a run: neither has committed."""
    (one, _), (two, *_) = sessions, later
    driver.held()
    one.begin()
    start(driver, one)
    two.begin()
    assert fold(two) > 0
    ended = database()[1].execute(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity "
        "where state = 'idle in transaction' and datname = current_database()"
    )
    assert ended.fetchone()[0] == 2
    assert_counts(driver)
    assert driver.counts().by_status() == {"leased": 1}
