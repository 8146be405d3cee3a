"""Checks of API keys, signing keys and audit rows that all stores share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holdfast.arguments import (
    check_instant,
    check_name,
    check_number,
    check_patterns,
    check_tenant,
    check_text,
    check_whole,
)
from holdfast.clipped import clipped
from holdfast.contract import AUDIT_BATCH, PATTERNS_MAX
from holdfast.errors import UsageError
from holdfast.exact import check_fields
from holdfast.records import KEY_RATE_MAX, OPEN_RUNS_MAX, OUTCOMES, AuditWrite, NewApiKey, NewRun, Scope

RATE_MIN = 0.001
SIGNING_BYTES = 32
_ID = re.compile("[a-z0-9]{12}")
_HASH = re.compile("[0-9a-f]{64}")
_SCOPES = frozenset(Scope)


def check_key_id(what: str, id: Any) -> None:
    """Check the id of an API key."""
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise UsageError(f"{what} {clipped(id)} is not the id of an API key: 12 characters of a-z and 0-9")


def check_key_ids(what: str, ids: Sequence[Any]) -> None:
    """Check the ids of several API keys."""
    _check_count(what, ids)
    for one in ids:
        check_key_id(what, one)


def check_secret_hash(what: str, text: Any) -> None:
    """Check the SHA-256 of a secret. The message does not show it."""
    if not isinstance(text, str) or not _HASH.fullmatch(text):
        raise UsageError(f"{what}: give the SHA-256 of a secret as 64 characters of hex")


def check_new_key(_: str, new: NewApiKey) -> None:
    """Check an API key that is to be stored."""
    check_fields(new)
    check_key_id("id", new.id)
    check_tenant(new.tenant)
    check_name("name", new.name)
    check_scopes(new.scopes)
    if len(check_patterns(new.patterns)) > PATTERNS_MAX:
        raise UsageError(f"an API key has at most {PATTERNS_MAX} patterns, not {len(new.patterns)}")
    check_secret_hash("secret_hash", new.secret_hash)
    if new.expires_at is not None:
        check_instant("expires_at", new.expires_at)
    if new.rate is not None:
        check_number("rate", new.rate, RATE_MIN, KEY_RATE_MAX)
    if new.open_runs_max is not None:
        check_whole("open_runs_max", new.open_runs_max, 1, OPEN_RUNS_MAX)
    check_text("by", new.by)


def check_scopes(scopes: Any) -> None:
    """Check the scopes of a key: at least one, none twice."""
    odd = [one for one in scopes if one not in _SCOPES]
    if odd:
        raise UsageError(f"{clipped(odd[0])} is no scope of an API key: {', '.join(Scope)}")
    if not scopes or len(set(scopes)) < len(scopes):
        raise UsageError(f"scopes of an API key: at least one of {', '.join(Scope)}, each once")


def check_signing_key(what: str, fresh: Any) -> None:
    """Check the bytes of a signing key. The message does not show them."""
    if type(fresh) is not bytes or len(fresh) != SIGNING_BYTES:
        raise UsageError(f"{what}: give {SIGNING_BYTES} random bytes for a signing key")


def check_entries(what: str, entries: Sequence[Any]) -> None:
    """Check rows for the audit log; their texts are cut later."""
    _check_count(what, entries)
    for entry in entries:
        check_entry(what, entry)


def check_entry(what: str, entry: Any) -> None:
    """Check one row for the audit log."""
    if not isinstance(entry, AuditWrite):
        raise UsageError(f"{what}: {clipped(entry)} is no AuditWrite")
    for name in entry.__struct_fields__:
        if not isinstance(getattr(entry, name), str):
            raise UsageError(f"{name} of an audit row is {clipped(getattr(entry, name))}: give text")
    if entry.outcome not in OUTCOMES:
        raise UsageError(
            f"outcome of an audit row is one of {', '.join(OUTCOMES)}, not {clipped(entry.outcome)}"
        )


def check_texts(what: str, texts: Sequence[Any]) -> None:
    """Check the texts of a filter of the audit log."""
    _check_count(what, texts)
    for text in texts:
        check_text(what, text)


def _check_count(what: str, rows: Any) -> None:
    if isinstance(rows, str | bytes) or not isinstance(rows, Sequence):
        raise UsageError(f"{what} is {clipped(rows)}: give a list")
    if len(rows) > AUDIT_BATCH:
        raise UsageError(f"{what}: at most {AUDIT_BATCH:,} at once, not {len(rows):,}")


def check_starter(new: NewRun) -> None:
    """Check who starts a run, and the API key that the run counts under."""
    check_text("by", new.by)
    if new.api_key is not None or new.open_runs_max is not None:
        check_key_id("api_key", new.api_key)
    if new.open_runs_max is not None:
        check_whole("open_runs_max", new.open_runs_max, 1, OPEN_RUNS_MAX)


def refuse_counted(new: NewRun) -> None:
    """Refuse an API key of a run that a commit or a schedule starts: only runs of `start` count."""
    if new.api_key is not None:
        raise UsageError(f"api_key={clipped(new.api_key)}: only a run of `start` counts under an API key")
