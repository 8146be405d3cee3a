"""Where a URL becomes a store. Drivers are imported only here, and only the one that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.records import Instant
    from holdfast.store import Store

DEFAULT_URL = "sqlite:///holdfast.db"
POSTGRES = ("postgresql", "postgres")


def make_store(url: str, clock: Callable[[], Instant] | None = None, *, create: bool = True) -> Store:
    """The store that `url` names, not opened yet: sqlite:///file.db, sqlite:////abs/file.db,
    postgresql://user:password@host/database, memory://.

    `create`: whether opening it makes it where it is missing, and brings its schema up to date.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        from .memory import MemoryStore

        return MemoryStore(clock=clock)
    if scheme == "sqlite":
        from .sqlite import SqliteStore

        if not rest.startswith("/") or rest == "/":
            raise UsageError(
                f"store URL {url!r} names no file: write sqlite:///holdfast.db (three slashes), "
                f"or four for an absolute path"
            )
        return SqliteStore(rest[1:], clock=clock, create=create)
    if scheme in POSTGRES:
        return _postgres(url, clock, create=create)
    raise UsageError(
        f"store URL {shown(url)!r} is not known: write sqlite:///holdfast.db, "
        "postgresql://user:password@host/database or memory://"
    )


def _postgres(url: str, clock: Callable[[], Instant] | None, *, create: bool) -> Store:
    try:
        from .postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise UsageError(
            "for a store in Postgres the driver is missing: pip install 'holdfast[postgres]'"
        ) from None
    return PostgresStore(url, clock=clock, create=create)


def shown(url: str, password: str = "") -> str:
    """For people and logs: without the password, or with this word in its place."""
    place, mark, query = url.partition("?")
    scheme, slashes, rest = place.partition("://")
    credentials, at, where = rest.rpartition("@")
    if not slashes and "@" in url:  # no URL, but a password may be in it
        return f"{url.partition(':')[0]}:…@{url.rpartition('@')[2]}"
    if scheme == "sqlite" or (scheme not in POSTGRES and not at):
        return url
    user, colon, _ = credentials.partition(":")
    secret = colon + password if password else ""
    options = [_option(one, password) for one in query.split("&")]
    mark, query = mark if any(options) else "", "&".join(filter(None, options))
    return f"{scheme}{slashes}{user}{secret}{at}{where}{mark}{query}"


def _option(said: str, password: str) -> str:
    name, _, _ = said.partition("=")
    if "password" not in name.lower():
        return said
    return f"{name}={password}" if password else ""
