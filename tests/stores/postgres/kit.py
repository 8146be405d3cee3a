"""A Postgres store for a test, and the database behind it."""

from servers.kept import database, make

__all__ = ["database", "make"]
