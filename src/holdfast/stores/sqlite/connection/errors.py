"""Errors of the driver, translated to errors of Holdfast: one clear line, and what to do about it."""

from __future__ import annotations

import apsw

from holdfast.errors import NotADatabase, StoreError, Unavailable

# Transient errors: caused by the machine, not by a job. The whole commit is rolled back and may be retried.
TRANSIENT = (
    apsw.FullError,
    apsw.IOError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.NoMemError,
    apsw.PermissionsError,
    apsw.AuthError,
    apsw.NotADBError,
    apsw.CorruptError,
)

# The transient errors that can happen to any statement, whoever wrote it.
MACHINE = (apsw.FullError, apsw.IOError, apsw.NoMemError)


def translated(error: Exception, path: str) -> StoreError:
    """Return the Holdfast error for an error of the driver."""
    match error:
        case apsw.FullError():
            return Unavailable(
                f"{path}: the disk is full (or a size limit is reached); nothing recorded is lost, "
                "and work goes on by itself when there is space again"
            )
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(
                f"{path}: another process has held the database for too long; look for one that is stopped, "
                "or has a transaction open"
            )
        case apsw.ReadOnlyError():
            return Unavailable(
                f"{path}: the file cannot be written; give this user write permission on it and on its folder"
            )
        case apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return Unavailable(
                f"{path}: the file cannot be opened; check its folder, and that this user may write there"
            )
        case apsw.NotADBError():
            return NotADatabase(
                f"{path}: this is no SQLite database; name another file, or move this one away"
            )
        case apsw.CorruptError():
            return NotADatabase(f"{path}: the database is damaged ({error}); restore it from a backup")
        case apsw.IOError():
            return Unavailable(f"{path}: the disk refused a read or a write ({error}); see the system's log")
        case apsw.NoMemError():
            return Unavailable(f"{path}: out of memory; nothing recorded is lost")
        case _:
            return StoreError(f"{path}: {type(error).__name__}: {error}")
