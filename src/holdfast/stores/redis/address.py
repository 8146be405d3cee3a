"""The store URL: where the server is, the namespace of the store, and options."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from holdfast.errors import UsageError
from holdfast.stores.urls import ESCAPES, is_readable, shown

PREFIX = "holdfast"
SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
DURABILITIES = ("fsync", "second", "memory")
WAIT_MS = 1000
WAIT_MS_MAX = 60_000
REPLICAS_MAX = 100
_PREFIX_NAME = re.compile(r"[A-Za-z0-9_.-]{1,48}")
_OURS = frozenset({"prefix", "durability", "replicas", "wait_ms", "aof"})
_FIXED = frozenset({"credential_provider", "decode_responses", "protocol", "redis_connect_func", "retry"})
_EXAMPLE = "redis://user:password@host:6379/0"


class Address(NamedTuple):
    """The place of a store, and how it is reached."""

    url: str  # for the driver, without our own options
    shown: str  # for people and logs: without password and options, except a prefix of its own
    prefix: str = PREFIX
    durability: str = "second"  # the least that the server must keep
    replicas: int = 0  # so many must have a write before it is answered
    aof: bool = False  # the append-only file must have a write before it is answered
    wait_ms: int = WAIT_MS  # the longest time to wait for replicas and the file

    @property
    def confirming(self) -> tuple[object, ...] | None:
        """The command that waits until a write is as safe as the URL asks for; None: it is at once."""
        if self.aof:
            return ("WAITAOF", 1, self.replicas, self.wait_ms)
        return ("WAIT", self.replicas, self.wait_ms) if self.replicas else None

    @property
    def has_password(self) -> bool:
        place, _, query = self.url.partition("://")[2].partition("?")
        return ":" in place.rpartition("@")[0] or "password" in dict(parse_qsl(query))

    @property
    def typed(self) -> str:
        """The URL as a person would type it, without the password."""
        given = {name: getattr(self, name) for name in sorted(_OURS)}
        ours = {
            name: int(value) if value is True else value
            for name, value in given.items()
            if value != self._field_defaults[name]
        }
        theirs = shown(self.url)
        return theirs + (("&" if "?" in theirs else "?") + urlencode(ours) if ours else "")


def parsed(url: str) -> Address:
    """Return the address that a URL names."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    ours = {name: value for name, value in options if name in _OURS}
    theirs = [(name, value) for name, value in options if name not in _OURS]
    prefix, durability = ours.get("prefix", PREFIX), ours.get("durability", "second")
    if not _PREFIX_NAME.fullmatch(prefix):
        raise UsageError(
            f"prefix {prefix!r} of the store URL: write letters, digits and . _ -, at most 48 characters"
        )
    if durability not in DURABILITIES:
        raise UsageError(f"durability={durability} in the store URL: write one of {', '.join(DURABILITIES)}")
    if not place.strip("/"):
        raise UsageError("the store URL names no server: write redis://host:6379/0 or unix:///run/redis.sock")
    _check(place, "".join(name for name, _ in options), is_socket=scheme == "unix")
    if fixed := sorted(_FIXED & dict(theirs).keys()):
        raise UsageError(f"{fixed[0]} in the store URL: Holdfast chooses it itself; leave it out")
    replicas = _number(ours, "replicas", 0, REPLICAS_MAX)
    is_waiting = replicas > 0 or _number(ours, "aof", 0, 1) == 1
    if "wait_ms" in ours and not is_waiting:
        raise UsageError("wait_ms in the store URL says how long to wait: write also replicas=1 or aof=1")
    driver = f"{SCHEMES[scheme]}://{place}" + (f"?{urlencode(theirs, safe='/')}" if theirs else "")
    return Address(
        driver,
        shown(f"{scheme}://{place}") + ("" if prefix == PREFIX else f"?prefix={prefix}"),
        prefix,
        durability,
        replicas,
        ours.get("aof", "0") == "1",
        _number(ours, "wait_ms", WAIT_MS, WAIT_MS_MAX, least=1),
    )


def _check(place: str, names: str, *, is_socket: bool) -> None:
    """Refuse a URL that cannot be read. A password with a special character of URLs ends too early, so the
    message must not quote any part of the URL. The driver takes database 0 where the number is no number.
    """
    netloc, _, path = place.rstrip("/").partition("/")
    port = netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    is_port = not port or (port.isdecimal() and 0 < int(port) < 65536)
    is_database = is_socket or not path or (path.isdecimal() and path.isascii())
    if not (is_port and is_database) or not is_readable(netloc) or "@" in names or "#" in place + names:
        raise UsageError(
            f"the store URL cannot be read: write {_EXAMPLE}, the port and the database as numbers, and in "
            f"user and password {ESCAPES}"
        )


def _number(options: dict[str, str], name: str, default: int, most: int, least: int = 0) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not text.isascii() or not least <= int(text) <= most:
        raise UsageError(f"{name}={text} in the store URL: write a whole number from {least} to {most}")
    return int(text)
