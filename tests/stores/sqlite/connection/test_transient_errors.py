"""Transient errors: a full disk, a locked file, a read-only place. One clear line each, and later calls
work."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from holdfast.errors import NotADatabase, SchemaMismatch, Unavailable
from holdfast.records import ANY
from tests.stores.sqlite.files import ask, new_run, opened, raw_connection, with_store

NOBODY = 65534


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    assert "holdfast.db" in text
    return text


@pytest.fixture
def path(tmp_path):
    return tmp_path / "holdfast.db"


def room(store, pages):
    """Limit the size of the file, like a disk of that size."""
    return store._write(lambda db, _: db.run(f"pragma max_page_count = {pages}").fetchall()[0][0])


def test_a_full_disk_is_told_and_work_goes_on_when_there_is_space(path):
    """Unavailable says what is wrong and that nothing is lost; the thread lives, and later calls succeed."""
    first, later = new_run(), new_run()

    async def story(store):
        await store.start([first])
        await room(store, 1)
        with pytest.raises(Unavailable) as error:
            await store.start([new_run(params='"' + "x" * 200_000 + '"')])
        kept = await store.get(first.id, ANY)
        await room(store, 1_000_000)
        await store.start([later])
        return one_line(error), kept.id, [claim.id for claim in await store.claim(ask())]

    message, kept, claimed = with_store(path, story)
    assert "disk is full" in message
    assert "nothing recorded is lost" in message
    assert (kept, claimed) == (first.id, [first.id, later.id])


def test_all_who_share_a_commit_that_cannot_be_made_are_told(path):
    """None of them is left waiting, and none is told that it was done."""

    async def story(store):
        await room(store, 1)
        large = [store.start([new_run(params='"' + "x" * 200_000 + '"')]) for _ in range(5)]
        answers = await asyncio.gather(*large, return_exceptions=True)
        return answers, (await store.stats()).by_status["pending"]

    answers, pending = with_store(path, story)
    assert [type(answer) for answer in answers] == [Unavailable] * 5
    assert pending == 0


def test_a_file_that_another_program_locks_is_told_and_work_goes_on_after(path):
    """A person with an open transaction gives an error, not an endless wait."""

    async def story(store):
        await store._write(lambda db, _: db.connection.set_busy_timeout(20))
        with raw_connection(path) as other:
            other.execute("begin immediate")
            with pytest.raises(Unavailable) as error:
                await store.start([new_run()])
            other.execute("rollback")
        return one_line(error), await store.start([new_run()])

    message, started = with_store(path, story)
    assert "another process has held the database" in message
    assert started[0].created


def opening(path):
    async def main():
        async with opened(path):
            pass

    return asyncio.run(main())


def test_a_file_that_is_no_database_is_left_alone(path):
    """It is named, and not a byte of it changes."""
    path.write_text("these are my notes, and no database\n" * 50)
    before = path.read_bytes()
    with pytest.raises(NotADatabase) as error:
        opening(path)
    assert "no SQLite database" in one_line(error)
    assert path.read_bytes() == before


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(Unavailable) as error:
        opening(tmp_path / "nowhere" / "holdfast.db")
    assert f"there is no folder {tmp_path / 'nowhere'}" in one_line(error)


def test_a_folder_in_the_place_of_the_file_is_named(path):
    path.mkdir()
    with pytest.raises(Unavailable) as error:
        opening(path)
    assert "this is a folder" in one_line(error)


@pytest.mark.spec("STORE-5")
def test_a_newer_major_version_is_refused_and_a_newer_minor_one_works(path):
    """Another major version says so and stops; an older library of the same one works on."""
    opening(path)
    with raw_connection(path) as db:
        db.execute("update workflow_meta set value = '99' where key = 'minor'")
        db.execute("alter table workflow_run add column something_new text")
    assert with_store(path, lambda store: store.start([new_run()]))[0].created
    with raw_connection(path) as db:
        assert db.execute("select value from workflow_meta where key = 'minor'").fetchone() == ("99",)
        db.execute("update workflow_meta set value = '2' where key = 'major'")
    with pytest.raises(SchemaMismatch) as error:
        opening(path)
    assert "upgrade holdfast" in one_line(error)


def test_files_are_for_their_owner_only(path):
    """The database, its log and its locks: mode 0600, whatever the umask."""

    async def story(store):
        await store.start([new_run()])
        return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

    before = os.umask(0)
    try:
        modes = with_store(path, story)
    finally:
        os.umask(before)
    assert {"holdfast.db", "holdfast.db-wal", "holdfast.db-turn", "holdfast.db-next"} <= modes.keys()
    assert set(modes.values()) == {0o600}


OPEN_AS_NOBODY = """
import asyncio, os, sys
from holdfast.errors import Unavailable
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.migrate import minors
minors()
if os.geteuid() == 0:
    os.setuid(int(sys.argv[2]))
try:
    asyncio.run(SqliteStore(sys.argv[1]).open())
except Unavailable as error:
    print(error)
"""


@pytest.fixture
def public_folder():
    """A folder that other users can reach: pytest's own are for their owner only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def told_when_opened_without_rights(path):
    # Root may write anywhere: the process gives up its rights first.
    command = [sys.executable, "-c", OPEN_AS_NOBODY, str(path), str(NOBODY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


@pytest.mark.slow
def test_a_folder_that_is_read_only_is_told_in_one_line(public_folder):
    public_folder.chmod(0o555)
    told = told_when_opened_without_rights(public_folder / "holdfast.db")
    assert "is read-only for this user" in told
    assert str(public_folder) in told
    assert "\n" not in told


@pytest.mark.slow
def test_a_file_that_is_read_only_is_told_in_one_line(public_folder):
    path = public_folder / "holdfast.db"
    opening(path)
    path.chmod(0o444)
    public_folder.chmod(0o777)
    told = told_when_opened_without_rights(path)
    assert "the file is read-only for this user" in told
    assert "\n" not in told
