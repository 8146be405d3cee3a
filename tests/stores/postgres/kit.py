"""A Postgres store for a test, and the database behind it."""

from servers.reused_store import database, make

__all__ = ["database", "make"]
