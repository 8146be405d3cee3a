"""Errors of the driver and of the server, as errors of ours."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from typing import NamedTuple

import redis.exceptions as driver

from holdfast.errors import HoldfastError, StoreError, Unavailable

from .link import Node

DRIVER = (driver.RedisError, OSError, TimeoutError)
# The server is there, and cannot write now; or the connection is gone. The call may be repeated.
_PASSING = (
    driver.ConnectionError,
    driver.TimeoutError,
    driver.ReadOnlyError,
    OSError,
    TimeoutError,
)
# The server has not carried the command out, and may do so in a moment.
WAITING = frozenset({"ASK", "CLUSTERDOWN", "FAILOVER", "LOADING", "MASTERDOWN", "READONLY", "TRYAGAIN"})
_PASSING_WORDS = WAITING | {"BUSY", "MISCONF", "MOVED", "NOREPLICAS", "OOM", "UNKILLABLE"}
# Servers before 7 notice inside of a script that it may not write: before its first write.
_IN_SCRIPT = re.compile(r"Error running script.* -(\w+) ")
_FULL = "command not allowed when used memory"


class Redirect(NamedTuple):
    """An answer that says that the command was not carried out, and why."""

    word: str  # MOVED, or one of WAITING
    node: Node | None = None  # for MOVED and ASK: where to ask; the host may be empty: the same one


def redirect(error: driver.ResponseError) -> Redirect | None:
    """Return what to do about an error, or None if another try would be of no use."""
    text = str(error)
    first, *rest = text.split(" ", 3)
    if first in {"MOVED", "ASK"} and len(rest) >= 2:
        host, _, port = rest[1].rpartition(":")
        return Redirect(first, (host if host != "?" else "", int(port)))
    word = _word(text)
    return Redirect(word) if word in WAITING else None


def _word(text: str) -> str:
    """Return the word for the kind of an error, as the server names it."""
    if found := _IN_SCRIPT.search(text):
        return found[1]
    return "OOM" if _FULL in text else text.partition(" ")[0]


def translated(error: BaseException, where: str) -> HoldfastError:
    """Return our error for one of the driver."""
    text = _said(error, is_socket=where.startswith("unix:"))
    if isinstance(error, driver.AuthenticationError | driver.NoPermissionError):
        return StoreError(f"{where}: {text}")
    if isinstance(error, _PASSING) or _word(str(error)) in _PASSING_WORDS:
        return Unavailable(f"{where}: {text}")
    return StoreError(f"{where}: {text}")


def _said(error: BaseException, *, is_socket: bool) -> str:
    """Return what is wrong, for a person."""
    text = str(error) or type(error).__name__
    if _word(text) == "NOAUTH" or text == "Authentication required.":
        return "the server wants a password: write redis://user:password@host:6379/0"
    if isinstance(error, driver.AuthenticationError):
        return f"the server refuses the user or the password of the URL ({text})"
    if text == "Timeout connecting to server":
        return "it does not answer in time: is this the port of a Redis, and with TLS where the URL has it?"
    if text.startswith(("Protocol error", "Connection closed by server")):
        return f"it does not answer like a Redis: is this its port? ({text})"
    return next(filter(None, (_unreachable(cause, is_socket=is_socket) for cause in _causes(error))), text)


def _unreachable(error: BaseException, *, is_socket: bool) -> str | None:
    """Return why no connection could be made, or None if this error does not tell."""
    match error:
        case ConnectionRefusedError():
            return "nobody listens there (connection refused): is the server running?"
        case FileNotFoundError():
            no_file = "a file that the URL names for TLS (ssl_…) is not there"
            return "nobody listens there (no such socket): is the server running?" if is_socket else no_file
        case ssl.SSLCertVerificationError():
            return f"the certificate of the server is not trusted ({error.verify_message}): see ssl_ca_certs"
        case ssl.SSLError():
            return f"no connection with TLS ({error.reason or error}): redis:// and valkey:// are without TLS"
        case OSError() if error.strerror:
            return f"it cannot be reached ({error.strerror})"
        case _:
            return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Return the error and those that led to it, as far as it was raised while one connected."""
    inner: BaseException | None = error
    while inner is not None:
        yield inner
        inner = inner.__cause__ or inner.__context__
