"""transact on Postgres: exactly once, on every kind of connection."""

from __future__ import annotations

from contextlib import suppress

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa

from holdfast.errors import StoreError, Unavailable, UsageError
from holdfast.records import StepWrite
from holdfast.testing.contract.driver import LEASE, done
from tests.stores.postgres.caller.callers import url
from tests.stores.postgres.caller.engines import KINDS
from tests.stores.postgres.caller.holder import ADD, Holder, beside, tally
from tests.stores.postgres.kit import database
from tests.stores.postgres.sessions.opened import opened

PATIENCE = 10.0


@pytest.mark.spec("FLOW-16", "MOVE-2")
def test_what_it_writes_and_the_checkpoint_are_one_commit(holder):
    verdict = holder.send(item=holder.item(done("before")))
    assert (verdict.answer, holder.keys(), tally()) == ("applied", ["before", "last"], 1)


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_sent_again_it_is_answered_as_the_first_time_and_not_done_again(holder):
    item = holder.item()
    first = holder.send(item=item)
    assert holder.send(item=item) == first
    holder.driver.complete(holder.claim)
    assert holder.send(item=item) == first
    assert (holder.calls, tally()) == (1, 1)


@pytest.mark.spec("FLOW-16")
def test_what_it_raises_is_raised_as_it_is_and_nothing_stays(holder):
    wrong, item = ValueError("no"), holder.item(done("before"))

    def fail(_given):
        raise wrong

    with pytest.raises(ValueError, match="no") as raised:
        holder.send(fail, item=item)
    assert raised.value is wrong
    assert (holder.keys(), tally()) == ([], 0)
    assert holder.send(item=item).answer == "applied"
    assert tally() == 1


@pytest.mark.spec("FLOW-16", "LEASE-4")
def test_a_holder_that_lost_its_lease_meanwhile_leaves_nothing(holder):
    """The fence is checked at the end, in the same commit; nobody had to wait for the function."""

    def overtake(_given):
        holder.driver.clock.turn(LEASE + 1)
        beside(holder, lambda store: store.tick())

    assert holder.send(overtake).answer == "lost"
    assert (holder.calls, holder.keys(), tally()) == (1, [], 0)


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("end", ["commit", "rollback", "end", "/* so */ commit", "commit; begin"])
def test_one_that_ends_its_transaction_is_found_out(holder, end):
    """A commit by the function fails, so that nothing stays, neither of its writes nor of what follows."""
    if ";" in end and "asyncpg" in getattr(holder.kind, "driver", ""):
        end = "commit"  # this dialect sends one statement at a time
    with pytest.raises(
        UsageError, match=r"the function of a transaction .*begin and commit are the engine's"
    ):
        holder.send(end)
    assert (holder.keys(), tally()) == ([], 0)
    assert holder.send().answer == "applied"


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("kind", ["Engine", "Sessions"])
@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_so_is_one_that_ends_it_by_its_engine(driver, kind, end):
    holder = Holder(driver, kind)

    def wrong(given):
        getattr(given, end)()

    with pytest.raises(UsageError):
        holder.send(wrong)
    assert (holder.keys(), tally()) == ([], 0)
    holder.close()


@pytest.mark.spec("FLOW-16")
def test_one_that_goes_on_after_its_own_error_is_told_to_use_a_savepoint(holder):
    async def swallow(given):
        with suppress(Exception):
            await holder.kind.run(given, "select * from no_such_table")

    def swallow_plain(given):
        with suppress(Exception):
            holder.kind.run(given, "select * from no_such_table")

    with pytest.raises(UsageError, match="put that in a savepoint"):
        holder.send(swallow_plain if holder.kind.is_sync else swallow)
    assert (holder.keys(), tally()) == ([], 0)


@pytest.mark.spec("FLOW-16")
def test_savepoints_are_its_own(holder):
    verdict = holder.send("savepoint a", ADD, "rollback to a", "release a")
    assert (verdict.answer, tally()) == ("applied", 1)


@pytest.mark.spec("FLOW-16")
def test_what_its_commit_refuses_fails_and_nothing_stays(holder):
    """The commit checks a deferred foreign key of the user."""
    with pytest.raises(StoreError, match="commit of a transaction was refused"):
        holder.send("insert into line values (7)")
    assert (holder.keys(), tally()) == ([], 0)


@pytest.mark.spec("FLOW-16")
def test_a_connection_that_is_lost_is_no_answer_and_it_is_done_once_when_sent_again(holder):
    item = holder.item()

    def cut(_given):
        database()[1].execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where xact_start is not null "
            "and datname = current_database() and pid <> pg_backend_pid() and query = %s",
            (ADD,),
        )

    with pytest.raises(Unavailable):
        holder.send(cut, "select 1", item=item)
    assert (holder.keys(), tally()) == ([], 0)
    assert holder.send(item=item).answer == "applied"
    assert tally() == 1


@pytest.mark.spec("FLOW-16", "LEASE-14")
def test_a_key_that_is_settled_keeps_its_value_and_nothing_was_done(holder):
    holder.driver.checkpoint(holder.claim, StepWrite(key="once", output="7"))
    verdict = holder.send(item=holder.item(done("beside")), key="once")
    assert (verdict.kept, holder.keys(), tally()) == ((("once", "7"),), ["once", "beside"], 0)


@pytest.mark.spec("FLOW-16")
def test_an_engine_that_leads_elsewhere_is_refused_and_nothing_is_written(driver, postgres_server):
    name = "beside"
    postgres_server.create_database(name)
    driver.run(_with_store(postgres_server.url(name)))
    with psycopg.connect(postgres_server.dsn(name), autocommit=True) as other:
        other.execute("create table tally (n integer)")
        for kind in sorted(set(KINDS) - {"Own"}):
            holder = Holder(driver, kind, postgres_server.dsn(name))
            with pytest.raises(UsageError, match="another database"):
                holder.send()
            assert (holder.calls, holder.keys()) == (0, [])
            holder.close()
        assert other.execute("select * from tally").fetchall() == []


async def _with_store(url):
    async with opened(url):
        pass


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"Own"}))
def test_a_function_of_another_kind_than_its_engine_is_refused(driver, kind):
    """On sessions of the store the engine says so."""
    holder = Holder(driver, kind)
    item = holder.item()
    with pytest.raises(UsageError, match=r"write `def`|write `async def`"):
        driver.run(holder.transact(item, _nothing(item, is_sync=not holder.kind.is_sync)))
    assert (holder.keys(), tally()) == ([], 0)
    holder.close()


def _nothing(item, *, is_sync):
    async def awaited(_given):
        return item

    return (lambda _given: item) if is_sync else awaited


@pytest.mark.spec("FLOW-16")
def test_what_can_lend_no_connection_is_refused(driver):
    holder = Holder(driver)
    auto = sa.create_engine(url(database()[0], "psycopg"), isolation_level="AUTOCOMMIT")
    # The store connects on a thread of its own; without this its connection could not be closed here.
    lite = sa.create_engine("sqlite://", connect_args={"check_same_thread": False})
    for on, said in [
        (7, "give an Engine"),
        (lambda: 7, "has given 7"),
        (lambda: asyncpg.connect(database()[0]), "to be awaited"),
        (lite, "the connection is on sqlite"),
        (auto, "AUTOCOMMIT"),
    ]:
        holder.on = on
        with pytest.raises(UsageError, match=said):
            holder.send()
    assert (holder.calls, holder.keys()) == (0, [])
    auto.dispose()
    lite.dispose()
