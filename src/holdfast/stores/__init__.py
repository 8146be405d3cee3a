"""`make_store`: the store of a URL. Only the driver that the URL needs is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import UsageError

from .urls import POSTGRES, redacted, shown

if TYPE_CHECKING:
    from holdfast.contract import Store
    from holdfast.records import Instant

DEFAULT_URL = "sqlite:///holdfast.db"


def make_store(url: str, clock: Callable[[], Instant] | None = None, *, create: bool = True) -> Store:
    """Return the store that `url` names, not opened yet: sqlite:///file.db, sqlite:////abs/file.db,
    postgresql://user:password@host/database, memory://.

    `create`: opening creates a missing store, and migrates its schema.
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
    if scheme in {"http", "https"}:
        raise UsageError(
            f"{shown(url)} is the HTTP API, and this needs the store itself: give the URL of the store; "
            "programs use hf.Client(URL)"
        )
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
            "for a store in Postgres the driver asyncpg is missing: pip install asyncpg"
        ) from None
    return PostgresStore(url, clock=clock, create=create)


__all__ = ["DEFAULT_URL", "make_store", "redacted", "shown"]
