"""What a URL says: where the database is, in which schema the store lives, and what it may do without."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.errors import UsageError

SCHEMA = "workflow"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_SWITCH = {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}


class Address(NamedTuple):
    """Where a store is, and how it is reached."""

    dsn: str  # for the driver, without what is ours
    schema: str = SCHEMA
    listen: bool = True  # off: behind a pooler that hands out another session for each transaction
    allow_fsync_off: bool = False

    @property
    def shown(self) -> str:
        """For people and logs: without the password."""
        parts = urlsplit(self.dsn)
        user, at, host = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=user.partition(":")[0] + at + host, query=""))


def parsed(url: str) -> Address:
    """The address that a URL names."""
    parts = urlsplit(url)
    ours: dict[str, str] = {}
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in {"schema", "listen", "allow_fsync_off"}:
            ours[name] = value
        else:
            theirs.append((name, value))
    schema = ours.get("schema", SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise UsageError(
            f"schema {schema!r} of the store URL: write lower-case letters, digits and _, at most 48, no digit first"
        )
    dsn = urlunsplit(parts._replace(scheme="postgresql", query=urlencode(theirs)))
    return Address(
        dsn, schema, listen=_switch(ours, "listen", default=True), allow_fsync_off=_switch(ours, "allow_fsync_off")
    )


def _switch(given: dict[str, str], name: str, *, default: bool = False) -> bool:
    said = given.get(name)
    if said is None:
        return default
    if said.lower() not in _SWITCH:
        raise UsageError(f"{name}={said} in the store URL: write {name}=on or {name}=off")
    return _SWITCH[said.lower()]
