"""The place of a store, for people."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from holdfast.lifecycle import FINAL, Status
from holdfast.machine.relocating import MOVES_TO, NEVER, has_moved
from holdfast.records import MessageStatus, OutboxMessage, Run, instant
from holdfast.records.transfer import MOVED, MOVING


def is_away(run: Run) -> bool:
    """Return True when a run has left its store, is leaving it, or waits for its release there."""
    return run.status in FINAL and run.pause_asked_by in {MOVING, MOVED}


def went_on(run: Run) -> bool:
    """Return True when a store has recorded that a run goes on at another one."""
    expires_at = None if run.expires_at is None else instant(run.expires_at)
    return is_away(run) and run.pause_asked_by == MOVED and expires_at != NEVER


def goes_to(run: Run) -> str | None:
    """Return the target of an open run that was stopped. None: unknown, because it had ended."""
    error = run.error if run.status is Status.CANCELLED else None
    message = "" if error is None or error.kind != "moved" else error.message
    return message.removeprefix(MOVES_TO) if message.startswith(MOVES_TO) else None


def moved_words(run: Run) -> str:
    """Return where a run is that has moved to another store, or moves. Empty: it is here."""
    if not is_away(run):
        return ""
    to = goes_to(run) or "another store"
    return f"it moved to {to}" if run.pause_asked_by == MOVED else f"it is on its way to {to}"


def is_sent_elsewhere(message: OutboxMessage) -> bool:
    """Return True when a message has moved to another store with its run: that store sends it."""
    return message.status is MessageStatus.DEAD and has_moved(message.error)


def shown_place(store: Any) -> str:
    """Return where a store is, for people and logs: without password and options."""
    store = innermost(store)
    path, address = getattr(store, "path", None), getattr(store, "address", None)
    if address is not None:
        return str(address.shown)
    return MEMORY if path is None else f"sqlite:///{path}"


def target_of(store: Any) -> str:
    """Return the name of a store that runs move to. It has the name of this machine if the place is one of
    this machine only: a file, a socket, a loopback address, or memory."""
    here, inner = shown_place(store), innermost(store)
    path, address = getattr(inner, "path", None), getattr(inner, "address", None)
    if address is not None:
        return _on_machine(here) if _is_local(here) else here
    if path in {None, ":memory:"}:
        return _on_machine(f"{MEMORY}, {os.getpid()}-{id(inner):x}")
    return _on_machine(f"sqlite:///{Path(path).resolve()}")


def same_url(one: str, other: str) -> bool:
    """Return True when two names of targets differ at most by the machine."""
    return one.partition(_ON)[0] == other.partition(_ON)[0]


_ON = " on machine "


def _on_machine(place: str) -> str:
    return f"{place}{_ON}{socket.gethostname()}"


def _is_local(url: str) -> bool:
    """Return True for a URL of a server that is another one on another machine."""
    scheme, _, rest = url.partition("://")
    hosts = rest.partition("?")[0].partition("/")[0].rpartition("@")[2].split(",")
    return scheme == "unix" or any(_is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name in _HERE or name.startswith("127.") or name.endswith(".localhost")


_HERE = frozenset({"", "localhost", "::1", "::", "0.0.0.0"})  # noqa: S104 - nothing is bound to it


def cancelled_words(run: Run) -> str:
    """Return the message for one who waits for the result of a cancelled run."""
    moved = moved_words(run)
    return f"run {run.id} was cancelled" + (f": {moved}, ask that store" if moved else "")


MEMORY = "a store in memory"


def innermost(store: Any) -> Any:
    """Return the store behind those that measure or encrypt."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store
