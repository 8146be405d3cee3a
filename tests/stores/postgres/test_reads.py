"""Reads on a server: lists that use their indexes, and a trail that others write to meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
from uuid import UUID, uuid4

import psycopg
import pytest

from holdfast.lifecycle import Status, StepKind
from holdfast.records import ANY, Definition, NewRun, PlanStep, RunFilter
from holdfast.stores.postgres.verbs.calls import json_text
from holdfast.stores.run_filter import inside
from tests.stores.postgres import kit

TYPE = "shop.order.v1"
MANY = 20_000
PARENT = UUID("018bcfe5-0000-7000-8000-000000000001")
# Nearly all runs have succeeded; of every other status there is one in a hundred or fewer.
FILL = """
insert into workflow.workflow_run (
    id, type, status, max_attempts, rev, finished_at, idempotency_key, parent_id, leased_by, lease_until,
    resume_to
)
select ('018bcfe5-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'shop.order.v1', s.status, 3, 5,
    case when s.status in ('succeeded', 'failed', 'cancelled') then now() end, 'key-' || n,
    case when n % 1000 = 7 then '018bcfe5-0000-7000-8000-000000000001'::uuid end,
    case when s.status = 'leased' then 'w1' end, case when s.status = 'leased' then now() end,
    case when s.status = 'paused' then 'pending' end
from generate_series(1, 20000) as n
cross join lateral (select case n % 400 when 1 then 'failed' when 2 then 'cancelled' when 3 then 'waiting'
    when 4 then 'paused' when 5 then 'pending' when 6 then 'leased' else 'succeeded' end as status) as s;
insert into workflow.workflow_step (run_id, seq, key, kind, status, topic)
select id, 1, 'w', case when random() < 0.5 then 'event' else 'approval' end, 'waiting', 't'
from workflow.workflow_run where status = 'waiting';
analyze workflow.workflow_run, workflow.workflow_step;
"""


@pytest.fixture(scope="module")
def full():
    """A connection to a store with many runs."""
    _, connection = kit.database()
    connection.execute("select workflow.wipe()")
    # Entries of other tests would make the indexes look large, and another plan cheaper.
    connection.execute("truncate workflow.workflow_run cascade")
    connection.execute(FILL)
    yield connection
    connection.execute("select workflow.wipe()")


READ = """
select coalesce(sum(seq_tup_read), 0) + coalesce(sum(idx_tup_fetch), 0) from pg_stat_xact_user_tables
where relname = 'workflow_run'
"""


def rows_read(connection, where, after=None):
    """How many runs a list of ten has found, and how many rows it has read for them."""
    with connection.transaction():
        (before,) = connection.execute(READ).fetchone()
        (page,) = connection.execute(
            "select workflow.list(%s, 10, %s)", (json_text(inside(where)), after)
        ).fetchone()
        (now,) = connection.execute(READ).fetchone()
    return len(page), now - before


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize(
    "where",
    [
        *({"statuses": (status,)} for status in Status),
        {"statuses": (Status.FAILED, Status.CANCELLED)},
        {"statuses": (Status.PENDING,), "type": TYPE},
        {"statuses": (Status.PENDING,), "type": "shop.%"},
        {"waiting_on": StepKind.EVENT},
        {"waiting_on": StepKind.APPROVAL},
        {"key": "key-77"},
        {"parent": PARENT},
        {"type": TYPE},
        {"type": "shop.%"},
        {"tenant": ANY},
        {"deleted": True},
    ],
)
def test_a_list_reads_little_more_than_it_shows(full, where):
    """By the index for its filter, whatever the other filters need. The runs of one tenant are checked in
    slices of at least a hundred, and to choose between two indexes costs up to 2,000 entries of each.
    """
    most = 150 if "tenant" in where else 2_500
    found, read = rows_read(full, RunFilter(**where))
    assert found == (1 if "key" in where else 10)
    assert read <= most
    found, read = rows_read(full, RunFilter(**where), UUID(int=PARENT.int + MANY // 2))
    assert read <= most


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize("status", Status)
def test_a_list_over_all_tenants_reads_little_more_than_it_shows(full, status):
    for after in (None, UUID(int=PARENT.int + MANY // 2)):
        _, read = rows_read(full, RunFilter(statuses=(status,), tenant=ANY), after)
        assert read <= 150


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize("text", ["'; drop table workflow_run; --", "%", "_", "\\", "$1", "x' or true --"])
def test_a_filter_is_a_value_and_never_a_part_of_the_statement(full, text):
    """The text is searched for, and not found."""
    for field in ("type", "tenant", "key"):
        found, _ = rows_read(full, RunFilter(**{field: text}))
        assert found == (10 if (field, text) == ("type", "%") else 0)


def test_counts_are_exact_whatever_is_deleted(full):
    """The count of succeeded runs is the rest: the counts must agree with the rows."""
    with full.transaction(force_rollback=True):
        full.execute(
            "update workflow.workflow_run set deleted_at = now(), rev = rev + 1 where idempotency_key ~ '9$'"
        )
        counted = full.execute(
            "select status, count(*) from workflow.workflow_run where deleted_at is null group by status"
        ).fetchall()
        (stats,) = full.execute("select workflow.stats(45)").fetchone()
    assert stats["by_status"] == dict(counted)
    assert set(stats["extra"]) == {"connections", "oldest_xmin_age", "dead_rows", "database_bytes"}


def new_run():
    return NewRun(id=uuid4(), type=TYPE)


def live(story, clock=None):
    """A test with a store, and another connection with a transaction of its own."""
    store = kit.make(clock, None)
    url, _ = kit.database()

    async def main():
        with psycopg.connect(url) as other:
            try:
                await store.open()
                await story(store, other)
            finally:
                other.rollback()
                await store.close()

    asyncio.run(main())


def start_in(connection, run):
    connection.execute("select workflow.start(%s)", (json_text([run]),))


@pytest.mark.spec("TRAIL-3")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_row_that_is_committed_late_is_not_passed_over(end):
    """Numbers are given early and become visible late: until then no higher number is returned."""

    async def story(store, other):
        first, second, third = new_run(), new_run(), new_run()
        await store.start([first])
        (seen,) = await store.trail(None, ANY)
        start_in(other, second)
        await store.start([third])
        assert [entry.run for entry in await store.trail(None, ANY, after=seen.seq)] == []
        assert [entry.run for entry in await store.trail(third.id, ANY)] == [third.id]
        getattr(other, end)()
        shown = [entry.run for entry in await store.trail(None, ANY, after=seen.seq)]
        assert shown == ([second.id, third.id] if end == "commit" else [third.id])

    live(story)


@pytest.mark.spec("TRAIL-3")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_follower_of_all_runs_does_not_pass_over_a_row_that_is_committed_late(end):
    """Nor does one that begins now: its place is before every row that can still appear."""

    async def story(store, other):
        first, second, third = new_run(), new_run(), new_run()
        await store.start([first])
        place = (await store.follow_all(ANY, after=0)).seq
        start_in(other, second)
        await store.start([third])
        page, now = await store.follow_all(ANY, after=place), await store.follow_all(ANY)
        assert (page.entries, page.seq, page.more) == ((), place, False)
        getattr(other, end)()
        shown = [second.id, third.id] if end == "commit" else [third.id]
        page = await store.follow_all(ANY, after=place)
        assert [entry.run for entry in page.entries] == shown
        assert now.seq <= place
        assert page == await store.follow_all(ANY, after=now.seq if now.seq == place else place)

    live(story)


@pytest.mark.spec("TRAIL-3")
def test_a_place_never_moves_back_and_skips_nothing_although_an_old_transaction_begins_to_write():
    """Numbers below a place are final; a transaction that is older than the place writes only above it."""

    async def story(store, other):
        before, late, after = new_run(), new_run(), new_run()
        await store.start([before])
        other.execute("select 1")  # its transaction has begun, and has not written
        await asyncio.sleep(0.3)
        place = (await store.follow_all(ANY)).seq
        start_in(other, late)
        await store.start([after])
        page = await store.follow_all(ANY, after=place)
        assert (page.entries, page.seq) == ((), place)
        other.commit()
        assert [entry.run for entry in (await store.follow_all(ANY, after=place)).entries] == [
            late.id,
            after.id,
        ]

    live(story)


@pytest.mark.spec("TRAIL-3")
def test_a_transaction_that_has_not_written_to_the_trail_hides_nothing():
    """However long it is, and whatever else it writes, in this database or in the store's own tables."""

    async def story(store, other):
        run = new_run()
        other.execute("create table of_a_caller (id integer)")
        other.execute("select workflow.stats(45), count(*) from workflow.workflow_event")
        other.execute('select workflow.present(\'{"worker":"w1"}\')')
        await store.start([run])
        assert [entry.run for entry in await store.trail(None, ANY)] == [run.id]

    live(story)


@pytest.mark.spec("TRAIL-3")
def test_what_was_long_before_an_open_transaction_is_shown_meanwhile():
    """Only later rows are held back: a forgotten transaction does not hide everything."""
    now = 1_700_000_000_000_000

    async def story(store, other):
        nonlocal now
        old, late, new = [new_run() for _ in range(40)], new_run(), new_run()
        await store.start(old)
        now += 120_000_000
        other.execute("select set_config('holdfast.now', %s, false)", (str(now),))
        start_in(other, late)
        await store.start([new])
        assert [entry.run for entry in await store.trail(None, ANY)] == [run.id for run in old]
        assert [entry.run for entry in await store.trail(None, ANY, limit=7)] == [run.id for run in old[:7]]
        now += 660_000_000
        assert [entry.run for entry in await store.trail(None, ANY)] == [run.id for run in [*old, new]]

    live(story, lambda: now)


@pytest.mark.spec("TRAIL-3")
@pytest.mark.parametrize("verb", ["trail", "follow_all"])
def test_who_follows_the_trail_of_all_runs_sees_every_row_once(verb):
    """Among many concurrent writers, some of which commit late or not at all."""

    async def pages(store, after):
        """Yield the numbers of each page, and the place after it, until there is no more."""
        while verb == "trail" and (page := await store.trail(None, ANY, after=after, limit=50)):
            after = page[-1].seq
            yield [entry.seq for entry in page], after
        more = verb == "follow_all"
        while more:
            found = await store.follow_all(ANY, after=after, limit=50)
            after, more = found.seq, found.more
            yield [entry.seq for entry in found.entries], after

    async def story(store, _):
        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        seen, place, quiet = [], 0, False
        while not quiet:
            quiet = not any(writer.is_alive() for writer in writers)
            async for page, after in pages(store, place):
                seen, place = seen + page, after
        _, connection = kit.database()
        there = connection.execute("select id from workflow.workflow_event order by id").fetchall()
        assert len(there) > 200
        assert seen == [number for (number,) in there]

    def write(number):
        url, _ = kit.database()
        with psycopg.connect(url) as connection:
            for turn in range(80):
                start_in(connection, new_run())
                connection.execute("select pg_sleep(random() * 0.004)")
                connection.rollback() if (turn + number) % 7 == 0 else connection.commit()

    live(story)


WAITS = """
select count(*) from pg_locks where not granted and relation = 'workflow.workflow_definition'::regclass
"""


def test_two_who_publish_another_plan_at_once_do_not_both_succeed():
    """The second waits for the first, and is refused."""

    async def story(store, other):
        one, two = (Definition(type=TYPE, kind="plan", steps=(PlanStep(name=name),)) for name in ("A", "B"))
        other.execute("select workflow.publish(%s)", (json_text([one]),))
        second = asyncio.create_task(store.publish([two]))
        _, connection = kit.database()
        while connection.execute(WAITS).fetchone() == (0,):  # noqa: ASYNC110 - the server tells nobody of it
            await asyncio.sleep(0.01)
        other.commit()
        with pytest.raises(Exception, match="has been published with other steps"):
            await second
        assert [each.steps for each in await store.definitions()] == [one.steps]
        await store.publish([one])

    live(story)


def test_steps_that_another_language_has_written_down_are_the_same_steps():
    """A plan with defaults left out is the same as one with all fields."""

    async def story(store, other):
        full = {"name": "A", "kind": "task", "max_attempts": None, "on_timeout": "reject"}
        said = json.dumps([{"type": TYPE, "kind": "plan", "steps": [full]}])
        other.execute("select workflow.publish(%s)", (said,))
        other.commit()
        await store.publish([Definition(type=TYPE, kind="plan", steps=(PlanStep(name="A"),))])

    live(story)


@pytest.mark.parametrize("size", [100, 126, 127, 1_000, 5_000])
def test_a_value_of_just_the_size_that_is_asked_for_is_no_large_one(size):
    """However it is stored: with a header of one byte or of four, compressed, or outside of its row."""

    async def story(_, other):
        other.execute("create temporary table kept (n integer, value json)")
        alike, mixed = ('"' + text[: size - 2] + '"' for text in ("x" * size, uuid4().hex * size))
        other.execute("insert into kept values (1, %s), (2, %s)", (alike, mixed))
        ask = "select workflow.is_large(value, %s) from kept order by n"
        for most, large in ((size, False), (size - 1, True)):
            assert other.execute(ask, (most,)).fetchall() == [(large,), (large,)]

    live(story)


def test_open_waits_drive_no_list_that_has_another_driver(full):
    """A walk over them passes the waits of all other kinds."""
    sql = (
        "select count(*) from workflow.drivers_of_filter(%s, %s::text[], array['-infinity', 'infinity',"
        " '-infinity', 'infinity', '-infinity', 'infinity']::timestamptz[])"
        " where statement like '%%workflow_step%%'"
    )
    for more, wanted, drives in (
        ({"labels": {"a": "b"}}, ["b"], 0),
        ({"statuses": ["waiting"]}, [], 0),
        ({}, [], 1),
    ):
        asked = json.dumps({"waiting_on": "approval", "roots": True, **more})
        assert full.execute(sql, (asked, wanted)).fetchone() == (drives,)
