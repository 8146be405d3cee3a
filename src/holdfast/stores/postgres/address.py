"""The store URL: where the database is, the schema of the store, and options."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from holdfast.errors import UsageError
from holdfast.stores.urls import ESCAPES, is_readable, shown

SCHEMA = "workflow"
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_SWITCH = {"1": True, "on": True, "true": True, "0": False, "off": False, "false": False}
_OURS = frozenset({"schema", "listen", "allow_fsync_off"})
_WHICH = "target_session_attrs"
_WHICH_SERVER = ("any", "primary", "read-write")  # a store writes, so a standby is of no use


class Address(NamedTuple):
    """The place of a store, and how it is reached."""

    dsn: str  # for the driver, without our own options
    shown: str  # for people and logs: without password and options
    schema: str = SCHEMA
    listen: bool = True  # off: behind a pooler that gives out another session for each transaction
    allow_fsync_off: bool = False

    @property
    def channel(self) -> str:
        """The channel of wake-ups."""
        return f"holdfast_{self.schema}"

    @property
    def each(self) -> list[str]:
        """One DSN for each server that the URL names."""
        parts = _Parts.of(self.dsn)
        credentials, at, hosts = parts.netloc.rpartition("@")
        rest = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return [f"postgresql://{credentials}{at}{host}{rest}" for host in hosts.split(",")]

    @property
    def has_password(self) -> bool:
        parts = _Parts.of(self.dsn)
        return ":" in parts.netloc.rpartition("@")[0] or "password" in dict(parse_qsl(parts.query))

    @property
    def typed(self) -> str:
        """The URL as a person would type it, without the password."""
        ours = {"schema": self.schema} if self.schema != SCHEMA else {}
        ours |= {} if self.listen else {"listen": "off"}
        ours |= {"allow_fsync_off": "on"} if self.allow_fsync_off else {}
        theirs = shown(self.dsn)
        return theirs + (("&" if "?" in theirs else "?") + urlencode(ours) if ours else "")


class _Parts(NamedTuple):
    """The parts of a URL. Some versions of urllib cannot read several hosts or hosts in brackets."""

    netloc: str
    path: str
    query: str
    fragment: str

    @classmethod
    def of(cls, url: str) -> _Parts:
        place, _, fragment = url.partition("://")[2].partition("#")
        place, _, query = place.partition("?")
        netloc, slash, path = place.partition("/")
        return cls(netloc, slash + path, query, fragment)


def parsed(url: str) -> Address:
    """Return the address that a URL names."""
    parts = _Parts.of(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    _check(parts.netloc, "".join([parts.path, parts.fragment, *(name for name, _ in options)]))
    ours = {name: value for name, value in options if name in _OURS}
    theirs = [(name, value) for name, value in options if name not in _OURS]
    schema = ours.get("schema", SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise UsageError(
            f"schema {schema!r} of the store URL: write lower-case letters, digits and _, "
            "at most 48, no digit first"
        )
    _check_server(dict(theirs).get(_WHICH, "any"))
    if _WHICH not in dict(theirs) and "," in parts.netloc.rpartition("@")[2]:
        theirs.append((_WHICH, "read-write"))  # one of several servers takes writes, and which one may change
    path = parts.path.rstrip("/")  # a trailing slash is not part of the name
    # Concatenated by hand: urllib drops the slashes before an empty host, which is a unix socket.
    dsn = f"postgresql://{parts.netloc}{path}" + (f"?{urlencode(theirs, safe='/')}" if theirs else "")
    return Address(
        dsn,
        _shown(parts.netloc, path, dict(theirs)),
        schema,
        listen=_switch(ours, "listen", default=True),
        allow_fsync_off=_switch(ours, "allow_fsync_off"),
    )


_EXAMPLE = "postgresql://user:password@host:5432/database"


def _check(netloc: str, after: str) -> None:
    """Refuse a URL that cannot be read. A password with a special character of URLs ends too early, so the
    message must not quote any part of the URL.
    """
    ports = (host.rpartition("]")[2].partition(":")[2] for host in netloc.rpartition("@")[2].split(","))
    wrong = [port for port in ports if port and not (port.isdecimal() and 0 < int(port) < 65536)]
    if wrong or not is_readable(netloc) or "@" in after or netloc.count("@") > 1:
        raise UsageError(
            f"the store URL cannot be read: write {_EXAMPLE}, the port as a number, and in user and password "
            f"{ESCAPES}"
        )


def _check_server(which: str) -> None:
    """Checked here, because the driver's own message names an object in memory."""
    if which not in _WHICH_SERVER:
        raise UsageError(f"{_WHICH}={which} in the store URL: write one of {', '.join(_WHICH_SERVER)}")


def _shown(netloc: str, path: str, options: dict[str, str]) -> str:
    credentials, _, host = netloc.rpartition("@")
    user = credentials.partition(":")[0] or quote(options.get("user", ""))
    at = "@" if user else ""
    database = path.strip("/") or quote(options.get("database") or options.get("dbname", ""))
    where = host or options.get("host", "")
    if where.startswith("/"):
        return f"postgresql://{user}{at}/{database}?host={where}"
    return f"postgresql://{user}{at}{where}/{database}"


def _switch(given: dict[str, str], name: str, *, default: bool = False) -> bool:
    value = given.get(name)
    if value is None:
        return default
    if value.lower() not in _SWITCH:
        raise UsageError(f"{name}={value} in the store URL: write {name}=on or {name}=off")
    return _SWITCH[value.lower()]
