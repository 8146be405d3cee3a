"""Errors of the server and the driver as errors of this library: one clear line each.

`Unavailable` means that a retry is safe. An error that a retry cannot mend (a wrong statement, a value that
the server does not accept) is a `StoreError`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from holdfast.errors import (
    ChangedSince,
    Conflict,
    HoldfastError,
    IllegalMove,
    SchemaMismatch,
    StoreError,
    Unavailable,
    UnknownApiKey,
    UnknownMessage,
    UnknownRun,
    UnknownSchedule,
    UnknownStep,
    UsageError,
)
from holdfast.lifecycle import Status

from .verbs.calls import NO_TEXT

OURS = "HF"  # the first letters of the error codes that our functions raise
# Two calls collided: a retry succeeds. A number that two calls take at once is a unique violation.
COLLISIONS = frozenset({"40P01", "40001", "55P03", "23505"})
LOCK_TIMEOUT = "55P03"
_NO_TEXT = frozenset({"22021", "22P05"})  # codes for a text itself, and for a text inside a record
NO_RIGHT = "42501"

# Every error of a call. A timeout is an OSError, and so is an unknown host name.
DRIVER = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError)

_BY_NAME: dict[str, type[HoldfastError]] = {
    "Conflict": Conflict,
    "UnknownStep": UnknownStep,
    "UsageError": UsageError,
    "SchemaMismatch": SchemaMismatch,
}
_POOLER = "a pooler that shares sessions is between this process and the server: add listen=off to the URL"
_OPTIONS = "ours are schema, listen and allow_fsync_off"
_WORDS = {
    "25006": "it takes no writes now (a standby, or default_transaction_read_only is on): name the primary",
    "26000": _POOLER,
    "42P05": _POOLER,
    "28000": "the server does not let this user in ({reason}): check user and password, and pg_hba.conf",
    "28P01": "the server refuses the password of this user: check the URL",
    "3D000": "there is no such database ({reason}): create it, or check the URL",
    NO_RIGHT: "this user lacks a right ({reason}): grant it, as grants.sql of this package does",
    "42P01": "the store is not there, or not all of it ({reason}): `holdfast migrate` makes it",
    "42883": "the store is not there, or not all of it ({reason}): `holdfast migrate` makes it",
    "40001": "other transactions changed the same rows at each of several tries",
    "40P01": "the call deadlocked with others at each of several tries",
    "53100": "the server's disk is full; nothing recorded is lost, and work goes on by itself with space",
    "53200": "the server is out of memory; nothing recorded is lost",
    "53300": "the server has no connection left: raise max_connections, or start fewer processes",
    LOCK_TIMEOUT: "a row or table has been locked by someone else for too long: look at pg_locks",
    "57014": "the server gave the call up (statement_timeout, or an administrator)",
    "57P01": "the server is shutting down",
    "57P02": "the server has crashed and restarts",
    "57P03": "the server is starting up, or shutting down",
    "58P01": "the server misses one of its own files ({reason})",
}
# Only errors about values or about our own statements are permanent: a retry fails again. All other errors
# are transient, and a run must not fail because of them; schema and functions may be missing for a moment.
_MISTAKES = ("0A", "21", "22", "23", "2B", "2F", "39", "42", "54", "P0")
_TRANSIENT_TOO = frozenset({NO_RIGHT, "42P01", "42883", *COLLISIONS})
_PASSING = ("cached plan must not change result type", "too many notifications in the NOTIFY queue")


def translated(error: BaseException, where: str) -> HoldfastError:
    """Return the library's error for an error of a driver."""
    if isinstance(error, HoldfastError):
        return error
    code, message, detail = error_parts(error)
    if code.startswith(OURS) and detail:
        return refusal(message, detail)
    if code in _NO_TEXT or isinstance(error.__cause__, UnicodeEncodeError):
        return UsageError(NO_TEXT)
    if code == "08P01" and "startup parameter" in message:
        return StoreError(f"{where}: {_POOLER}, or leave out what it does not take ({message})")
    if message.startswith("unrecognized configuration parameter"):
        return StoreError(f"{where}: {message}: check the options of the URL; {_OPTIONS}")
    reason = _WORDS.get(code, "{reason}").format(reason=message)
    if code and _passes(code, message):
        return Unavailable(f"{where}: {reason}" + ("" if code in _WORDS else f" ({code})"))
    if code or _is_mistake(error):
        notes = [*getattr(error, "__notes__", ()), *([code] if code and code not in _WORDS else [])]
        return StoreError(f"{where}: {reason}" + (f" ({', '.join(notes)})" if notes else ""))
    return Unavailable(f"{where}: {_unreachable(error, message)}")


def _passes(code: str, message: str) -> bool:
    return not code.startswith(_MISTAKES) or code in _TRANSIENT_TOO or message.startswith(_PASSING)


def is_session_lost(error: BaseException) -> bool:
    """Return True when the session is gone or cannot be trusted any more."""
    code = error_parts(error)[0]
    # A cancel (57014) and a full disk leave the session usable. A session that takes no writes is on a server
    # that has become a standby: another server may be the primary now.
    return code.startswith(("08", "57P", "25P03", "25P04", "25006")) if code else not _is_mistake(error)


def error_parts(error: BaseException) -> tuple[str, str, str]:
    """Return code, message and detail of an error of any driver."""
    message = str(error.args[0]).splitlines()[0] if error.args and str(error.args[0]) else ""
    code = getattr(error, "sqlstate", None) or ""
    detail = getattr(error, "detail", None) or getattr(getattr(error, "diag", None), "message_detail", None)
    return code, message, detail or ""


def _is_mistake(error: BaseException) -> bool:
    """Return True for a mistake of the caller or in the URL: a value that cannot be sent, an option that the
    driver does not know.
    """
    if isinstance(error, asyncpg.InterfaceError):
        # The driver has one class for its own state and for wrong arguments: only the text tells them apart.
        text = str(error)
        return isinstance(error, ValueError) or not ("operation" in text or "connection" in text)
    return not isinstance(error, DRIVER)


def _unreachable(error: BaseException, message: str) -> str:
    if isinstance(error, TimeoutError):
        return message or "it does not answer in time"
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "no server that the URL names is now what its target_session_attrs asks for"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens there (connection refused): is the server running?"
    if isinstance(error, FileNotFoundError):
        return "nobody listens there (no such socket): is the server running?"
    if isinstance(error, OSError):
        return f"it cannot be reached ({error.strerror or message or type(error).__name__})"
    return f"the connection was lost ({message or type(error).__name__})"


def refusal(message: str, detail: str) -> HoldfastError:
    """Return the error that one of our functions has raised."""
    refused: dict[str, Any] = msgspec.json.decode(detail)
    name, data = refused["error"], refused["data"]
    match name:
        case "UnknownRun":
            return UnknownRun(UUID(data["run"]))
        case "ChangedSince":
            return ChangedSince(UUID(data["run"]))
        case "IllegalMove":
            return IllegalMove(UUID(data["run"]), data["move"], Status(data["status"]), data.get("hint", ""))
        case "UnknownMessage":
            return UnknownMessage(data["id"])
        case "UnknownApiKey":
            return UnknownApiKey(data["id"])
        case "UnknownSchedule":
            return UnknownSchedule(data["name"])
        case _:
            return _BY_NAME[name](message)
