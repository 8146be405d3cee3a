"""transact on Postgres: exactly once, whatever happens, and wherever its connection comes from."""

from __future__ import annotations

from contextlib import suppress

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa

from holdfast.errors import StoreError, Unavailable, UsageError
from holdfast.records import StepWrite
from holdfast.testing.contract.hand import LEASE, done
from tests.stores.postgres.callers import url
from tests.stores.postgres.deeds import ADD, Holder, beside, tally
from tests.stores.postgres.engines import KINDS
from tests.stores.postgres.kit import database
from tests.stores.postgres.opened import opened

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
    holder.hand.complete(holder.claim)
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
def test_whoever_is_overtaken_meanwhile_leaves_nothing(holder):
    """The fence is asked at the end, in the same commit; nobody had to wait for the function."""

    def overtake(_given):
        holder.hand.clock.turn(LEASE + 1)
        beside(holder, lambda store: store.tick())

    assert holder.send(overtake).answer == "lost"
    assert (holder.calls, holder.keys(), tally()) == (1, [], 0)


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("end", ["commit", "rollback", "end", "/* so */ commit", "commit; begin"])
def test_one_that_ends_its_transaction_is_found_out(holder, end):
    """A commit of its own fails, so that nothing stays, neither now nor of what it does after."""
    if ";" in end and "asyncpg" in getattr(holder.kind, "driver", ""):
        end = "commit"  # that dialect sends one statement at a time
    with pytest.raises(
        UsageError, match=r"the function of a transaction .*begin and commit are the engine's"
    ):
        holder.send(end)
    assert (holder.keys(), tally()) == ([], 0)
    assert holder.send().answer == "applied"


@pytest.mark.spec("FLOW-16")
@pytest.mark.parametrize("kind", ["Engine", "Sessions"])
@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_so_is_one_that_ends_it_by_its_engine(hand, kind, end):
    holder = Holder(hand, kind)

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
        holder.send(swallow_plain if holder.kind.plain else swallow)
    assert (holder.keys(), tally()) == ([], 0)


@pytest.mark.spec("FLOW-16")
def test_savepoints_are_its_own(holder):
    verdict = holder.send("savepoint a", ADD, "rollback to a", "release a")
    assert (verdict.answer, tally()) == ("applied", 1)


@pytest.mark.spec("FLOW-16")
def test_what_its_commit_refuses_fails_and_nothing_stays(holder):
    """A deferred foreign key of the user's is looked at there."""
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
    holder.hand.checkpoint(holder.claim, StepWrite(key="once", output="7"))
    verdict = holder.send(item=holder.item(done("beside")), key="once")
    assert (verdict.kept, holder.keys(), tally()) == ((("once", "7"),), ["once", "beside"], 0)


@pytest.mark.spec("FLOW-16")
def test_an_engine_that_leads_elsewhere_is_refused_and_nothing_is_written(hand, postgres_server):
    name = "beside"
    postgres_server.create_database(name)
    hand.run(_with_store(postgres_server.url(name)))
    with psycopg.connect(postgres_server.dsn(name), autocommit=True) as other:
        other.execute("create table tally (n integer)")
        for kind in sorted(set(KINDS) - {"Own"}):
            holder = Holder(hand, kind, postgres_server.dsn(name))
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
def test_a_function_of_another_kind_than_its_engine_is_refused(hand, kind):
    """On sessions of the store's own it is the engine that says so."""
    holder = Holder(hand, kind)
    item = holder.item()
    with pytest.raises(UsageError, match=r"write `def`|write `async def`"):
        hand.run(holder.transact(item, _nothing(item, plain=not holder.kind.plain)))
    assert (holder.keys(), tally()) == ([], 0)
    holder.close()


def _nothing(item, *, plain):
    async def awaited(_given):
        return item

    return (lambda _given: item) if plain else awaited


@pytest.mark.spec("FLOW-16")
def test_what_can_lend_no_connection_is_refused(hand):
    holder = Holder(hand)
    auto = sa.create_engine(url(database()[0], "psycopg"), isolation_level="AUTOCOMMIT")
    lite = sa.create_engine("sqlite://")
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
