"""`make_store`: the store of a URL. Only the driver that the URL needs is imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

from .urls import POSTGRES, REDIS, redacted, shown

if TYPE_CHECKING:
    from holdfast.contract import Store
    from holdfast.records import Instant

DEFAULT_URL = "sqlite:///holdfast.db"


def make_store(url: str, clock: Callable[[], Instant] | None = None, *, create: bool = True) -> Store:
    """Return the store that `url` names, not opened yet: sqlite:///file.db, sqlite:////abs/file.db,
    postgresql://user:password@host/database, redis://host:6379/0 (rediss, unix, valkey), memory://.

    `create`: opening creates a missing store, and migrates its schema. Redis has nothing to create.
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
    if scheme in REDIS:
        return _redis(url, clock)
    if scheme in {"http", "https"}:
        raise UsageError(
            f"{shown(url)} is the HTTP API, and this needs the store itself: give the URL of the store; "
            "programs use hf.Client(URL)"
        )
    raise UsageError(
        f"store URL {shown(url)!r} is not known: write sqlite:///holdfast.db, "
        "postgresql://user:password@host/database, redis://host:6379/0, memory://, or https://host of a "
        "server"
    )


def place(store: Any) -> Any:
    """Return something that is equal for two stores with the same data, as far as their URLs show it."""
    from holdfast.transfer.places import innermost  # not above: it brings the records

    store = innermost(store)
    path, address = getattr(store, "path", None), getattr(store, "address", None)
    if address is None and path not in {None, ":memory:"}:
        return Path(path).resolve()
    return id(store) if address is None else address


def _postgres(url: str, clock: Callable[[], Instant] | None, *, create: bool) -> Store:
    try:
        from .postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise UsageError(
            "for a store in Postgres the driver asyncpg is missing: pip install asyncpg"
        ) from None
    return PostgresStore(url, clock=clock, create=create)


def _redis(url: str, clock: Callable[[], Instant] | None) -> Store:
    try:
        from .redis import RedisStore
    except ModuleNotFoundError as error:
        if error.name not in {"redis", "hiredis"}:
            raise
        raise UsageError(
            "for a store in Redis or Valkey the driver is missing: "
            "pip install '.[redis]' in a clone of Holdfast"
        ) from None
    return RedisStore(url, clock=clock)


__all__ = ["DEFAULT_URL", "make_store", "place", "redacted", "shown"]
