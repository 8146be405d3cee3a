"""checkup: check that committed data is on disk, and find problems of the file before they hurt."""

from __future__ import annotations

import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw

from holdfast.errors import Unavailable
from holdfast.records import Finding

from .connection.database import Database
from .connection.errors import translated
from .connection.turnstile import Turnstile
from .connection.wal import TOO_LONG
from .migrate import BUSY_MS, MAJOR, minors, opened, version

SMALL_BYTES = 256 << 20  # a file up to this size is checked completely for damage
SPARE_BYTES = 100 << 20  # free space inside the file that is worth giving back
SPARE_SHARE = 0.5
PATIENCE_SECONDS = BUSY_MS / 1000  # as long as every writer waits for the lock
_FULL = 2  # the value of `pragma synchronous` for full


def alone(path: str, checking: threading.Lock) -> list[Finding]:
    """Run the checkup on a separate connection, because it takes a while and others want to read.

    It holds a lock of the store, so that this connection is never open during a fork.
    """
    with checking:
        db = opened(path, reader=True)
        try:
            return [*checkup(db, path), _lock(path)]
        except apsw.Error as error:
            raise translated(error, path) from error
        finally:
            db.close()


def checkup(db: Database, path: str) -> list[Finding]:
    on_disk = bool(db.connection.filename)
    place = _place(path) if on_disk else _in_memory()
    return [*_settings(db, "wal" if on_disk else "memory"), *_schema(db, path), *_content(db), *place]


def _ok(what: str) -> Finding:
    return Finding(level="ok", what=what)


def _warning(what: str, mend: str) -> Finding:
    return Finding(level="warning", what=what, mend=mend)


def _error(what: str, mend: str) -> Finding:
    return Finding(level="error", what=what, mend=mend)


def _in_memory() -> Iterator[Finding]:
    yield _warning(
        "this store is in memory: all runs are gone when the process ends",
        "use sqlite:///holdfast.db to keep the runs",
    )


def _settings(db: Database, right_mode: str) -> Iterator[Finding]:
    mode, synchronous = _pragma(db, "journal_mode"), _pragma(db, "synchronous")
    if mode == right_mode:
        yield _ok(f"journal_mode is {mode}")
    else:
        yield _error(
            f"journal_mode is {mode}: readers and the writer stop each other",
            "put the file on a local disk, and let no other program change its journal_mode",
        )
    if synchronous == _FULL:
        yield _ok("synchronous is full: every commit is on disk")
    else:
        yield _error(
            f"synchronous is {synchronous}, not full: a power failure may undo commits",
            "open the file only with Holdfast",
        )
    if db.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1):
        yield _ok("query plans are stable")
    else:
        yield _warning("queries are planned again at each call", "use a newer apsw")


def _pragma(db: Database, name: str) -> object:
    row = db.one(f"pragma {name}")
    return None if row is None else row[0]


def _schema(db: Database, path: str) -> Iterator[Finding]:
    there, here = version(db, path), len(minors())
    if there > here:
        yield _warning(
            f"the schema is of version {MAJOR}.{there}, this library's is {MAJOR}.{here}: it can be used",
            "upgrade holdfast here too",
        )
    elif there < here:
        yield _warning(
            f"the schema is of version {MAJOR}.{there}, this library's is {MAJOR}.{here}",
            "run `holdfast migrate`",
        )
    else:
        yield _ok(f"the schema is of version {MAJOR}.{there}")


def _lock(path: str) -> Finding:
    """Check that a write is possible: take the write lock in turn, and give it back."""
    turnstile = Turnstile(path, PATIENCE_SECONDS)
    try:
        turnstile.enter()
        db = opened(path)
        try:
            db.connection.set_busy_timeout(round(PATIENCE_SECONDS * 1000))
            db.run("begin immediate")
            db.run("rollback")
        except apsw.BusyError as error:
            raise translated(error, path) from None
        finally:
            db.close()
    except Unavailable as error:
        return _error(f"no write was possible for {PATIENCE_SECONDS:g} s", str(error))
    finally:
        turnstile.close()
    return _ok("the write lock is available")


def _content(db: Database) -> Iterator[Finding]:
    pages, free, page = (int(str(_pragma(db, n))) for n in ("page_count", "freelist_count", "page_size"))
    if pages * page > SMALL_BYTES:
        yield _ok(f"the file is {_size(pages * page)} large: it was not checked for damage")
    else:
        damage = [str(row[0]) for row in db.all("pragma quick_check(3)")]
        if damage == ["ok"]:
            yield _ok("no damage was found in the file")
        else:
            yield _error(f"the file is damaged: {'; '.join(damage)}", "restore it from a backup")
    if free * page > SPARE_BYTES and free > pages * SPARE_SHARE:
        yield _warning(
            f"{_size(free * page)} of the file's {_size(pages * page)} are empty; SQLite will use them again",
            "to shrink the file, stop all workers and run `vacuum` on the file",
        )


def _place(path: str) -> Iterator[Finding]:
    file, log = Path(path).stat(), Path(path + "-wal")
    free = shutil.disk_usage(Path(path).absolute().parent).free
    wal = log.stat().st_size if log.exists() else 0
    if wal > 2 * TOO_LONG:
        yield _warning(
            f"the write-ahead log is {_size(wal)} long, and should stay near {_size(TOO_LONG)}",
            "look for a program that keeps a transaction open on this file",
        )
    else:
        yield _ok(f"the write-ahead log is {_size(wal)} long")
    if free < max(file.st_size // 10, 2 * TOO_LONG):
        yield _warning(
            f"{_size(free)} of disk space are left beside a file of {_size(file.st_size)}",
            "make space before it is full: work stops then until there is some again",
        )
    else:
        yield _ok(f"{_size(free)} of disk space are free")
    if file.st_mode & (stat.S_IROTH | stat.S_IWOTH):
        yield _warning(
            "every user of this machine can read the file, with all params and results",
            f"chmod o-rw {path}",
        )
    else:
        yield _ok("only its owner and group can read the file")


def _size(count: int) -> str:
    if count < 1 << 20:
        return f"{count >> 10} KiB"
    return f"{count >> 20} MiB" if count < 10 << 30 else f"{count >> 30} GiB"
