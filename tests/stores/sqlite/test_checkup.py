"""stuck and checkup: runs that nothing could ever wake, and problems of the file."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import ANY, Item, StepWrite
from holdfast.records.moves import PARK
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import checkup, migrate
from holdfast.stores.sqlite.connection import turnstile
from tests.stores.sqlite.files import ask, new_run, raw_connection, with_store

WAIT = StepWrite(key="w", kind=StepKind.EVENT, status=StepStatus.WAITING, topic="t")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


async def one_of_each(store):
    """Return an open run in each status, as moves leave them."""
    runs = {status: new_run() for status in (Status.LEASED, Status.WAITING, Status.PAUSED)}
    await store.start(list(runs.values()))
    claims = {claim.id: claim for claim in await store.claim(ask())}
    for status in (Status.WAITING, Status.PAUSED):
        claim = claims[runs[status].id]
        await store.commit([Item(run=claim.id, fence=claim.fence, number=1, move=PARK, steps=(WAIT,))])
    await store.pause(runs[Status.PAUSED].id, ANY)
    runs[Status.PENDING] = new_run()
    await store.start([runs[Status.PENDING]])
    assert await store.stuck() == []
    return {status: run.id for status, run in runs.items()}


ITS_STEPS = "where run_id = (select id from workflow_run where status = '{}')"
BROKEN = {
    "update workflow_run set lease_until = null where status = 'leased'": Status.LEASED,
    "update workflow_run set leased_by = null where status = 'leased'": Status.LEASED,
    f"delete from workflow_step {ITS_STEPS.format('waiting')}": Status.WAITING,
    f"update workflow_step set topic = null {ITS_STEPS.format('waiting')}": Status.WAITING,
    f"update workflow_step set finished_at = 1 {ITS_STEPS.format('waiting')}": Status.WAITING,
    "update workflow_run set resume_to = null where status = 'paused'": Status.PAUSED,
    f"delete from workflow_step {ITS_STEPS.format('paused')}": Status.PAUSED,
}


@pytest.mark.spec("MOVE-7")
@pytest.mark.parametrize("change", BROKEN)
def test_an_open_run_without_a_way_on_is_found(path, change):
    """Verbs cannot leave such a run, and the table refuses most of these changes."""

    async def story(store):
        runs = await one_of_each(store)
        with raw_connection(path) as db:
            db.execute("pragma ignore_check_constraints = on")
            db.execute(change)
        assert await store.stuck() == [runs[BROKEN[change]]]
        assert await store.stuck(limit=0) == []
        await store.delete(runs[BROKEN[change]], ANY)
        assert await store.stuck() == []

    with_store(path, story)


def _no_run_at(row):
    row.run_at = None


def _no_lease(row):
    row.lease_until = None


def _no_wait(row):
    row.steps.clear()


def _nothing_to_resume_to(row):
    row.resume_to = None


@pytest.mark.spec("MOVE-7")
@pytest.mark.parametrize(
    ("status", "change"),
    [
        (Status.PENDING, _no_run_at),
        (Status.LEASED, _no_lease),
        (Status.WAITING, _no_wait),
        (Status.PAUSED, _no_wait),
        (Status.PAUSED, _nothing_to_resume_to),
    ],
)
def test_the_reference_finds_them_too(status, change):
    """The same for the memory store."""

    async def main():
        store = MemoryStore()
        runs = await one_of_each(store)
        change(store._state.runs[runs[status]])
        assert await store.stuck() == [runs[status]]

    asyncio.run(main())


def findings(path, level="warning"):
    found = with_store(path, lambda store: store.checkup())
    return [finding for finding in found if finding.level == level]


def test_a_file_that_is_as_it_should_be_has_nothing_but_good_findings(path):
    """Each finding says what was checked."""
    found = with_store(path, lambda store: store.checkup())
    assert {finding.level for finding in found} == {"ok"}
    told = " ".join(finding.what for finding in found)
    for what in ("wal", "synchronous is full", "schema", "no damage", "log", "disk space", "owner", "lock"):
        assert what in told


def test_memory_says_that_it_does_not_last():
    """One warning, and what to use instead."""
    (finding,) = asyncio.run(MemoryStore().checkup())
    assert (finding.level, "gone" in finding.what, "sqlite" in finding.mend) == ("warning", True, True)


def test_a_file_that_everyone_can_read_is_told_of(path):
    """It holds params and results."""
    with_store(path, lambda store: store.start([new_run()]))
    path.chmod(0o644)
    (finding,) = findings(path)
    assert ("can read" in finding.what, finding.mend) == (True, f"chmod o-rw {path}")


def test_a_newer_schema_is_told_of(path):
    """It works on; but this library is older than another one that uses the file."""
    with_store(path, lambda store: store.start([new_run()]))
    with raw_connection(path) as db:
        db.execute("update workflow_meta set value = '99' where key = 'minor'")
    (finding,) = findings(path)
    assert "1.99" in finding.what


def test_a_full_disk_is_told_of_before_it_is_full(path, monkeypatch):
    """Less than two lengths of the log."""
    usage = type("Usage", (), {"free": 100 << 20})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    (finding,) = findings(path)
    assert "100 MiB of disk space" in finding.what


def test_a_log_that_has_grown_too_long_is_told_of(path, monkeypatch):
    """A reader that never ends keeps the log long."""
    monkeypatch.setattr(checkup, "TOO_LONG", 16)

    async def story(store):
        await store.start([new_run()])
        return await store.checkup()

    (finding,) = [one for one in with_store(path, story) if one.level == "warning"]
    assert "write-ahead log" in finding.what


def test_a_file_that_is_mostly_empty_is_told_of(path, monkeypatch):
    """Free pages are used again. The finding says how to give them back."""
    monkeypatch.setattr(checkup, "SPARE_BYTES", 1 << 20)

    async def story(store):
        runs = [new_run(params='"' + "x" * 100_000 + '"') for _ in range(50)]
        await store.start(runs)
        for run in runs:
            await store.delete(run.id, ANY)
        while (await store.purge(deleted_seconds=0.0)).total:
            pass

    with_store(path, story)
    (finding,) = findings(path)
    assert ("empty" in finding.what, "vacuum" in finding.mend) == (True, True)


@pytest.mark.parametrize("kept", ["the lock", "the turn"])
def test_a_lock_that_is_not_to_be_had_is_an_error(path, monkeypatch, kept):
    """Reads go on meanwhile; but nothing is done any more."""
    monkeypatch.setattr(checkup, "PATIENCE_SECONDS", 0.02)

    async def story(store):
        await store.start([new_run()])
        if kept == "the turn":
            other = turnstile.Turnstile(str(path), 1.0)
            other.enter()
            found = await store.checkup()
            other.close()
        else:
            with raw_connection(path) as other:
                other.execute("begin immediate")
                found = await store.checkup()
                other.execute("rollback")
        before = store._transactor.commits
        assert "error" not in {finding.level for finding in await store.checkup()}
        assert store._transactor.commits == before
        return found

    (finding,) = [one for one in with_store(path, story) if one.level == "error"]
    assert finding.what == "no write was possible for 0.02 s"
    assert "look for one that is stopped" in finding.mend


def test_a_large_file_is_not_looked_through(path, monkeypatch):
    """It would take long; the finding says so."""
    monkeypatch.setattr(checkup, "SMALL_BYTES", 0)
    found = with_store(path, lambda store: store.checkup())
    assert any("not checked for damage" in finding.what for finding in found)


def test_damage_is_found(path):
    """A page that was overwritten, in an index that reads would not touch."""
    with_store(path, lambda store: store.start([new_run() for _ in range(200)]))
    with raw_connection(path) as db:
        (page,) = db.execute(
            "select rootpage from sqlite_schema where name = 'idx_workflow_run_tenant_claim'"
        ).fetchone()
        (size,) = db.execute("pragma page_size").fetchone()
        db.execute("pragma wal_checkpoint(truncate)")
    with path.open("r+b") as file:
        file.seek((page - 1) * size + 12)
        file.write(b"\xff" * 64)
    (finding,) = findings(path, "error")
    assert ("damaged" in finding.what, "backup" in finding.mend) == (True, True)


@pytest.mark.spec("STORE-2")
def test_settings_that_risk_what_was_committed_are_errors(path):
    """No WAL, or a commit that does not wait for the disk."""
    db = migrate.connect(str(path))
    migrate.migrate(db, str(path))
    for change in ("journal_mode = delete", "synchronous = normal"):
        db.run(f"pragma {change}").fetchall()
    errors = [finding.what for finding in checkup.checkup(db, str(path)) if finding.level == "error"]
    db.close()
    assert ["journal_mode is delete" in errors[0], "synchronous is 1" in errors[1]] == [True, True]
