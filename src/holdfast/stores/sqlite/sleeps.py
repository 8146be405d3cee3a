"""Sleeps whose time has come, many at once: a few statements serve a whole slice.

A fast path beside the machine, for code runs that wait. Whatever else is due goes through the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .database import Database, text
from .sql import statements

_SQL = statements("sleeps")

Wait = tuple[str, str]  # run and key


def wake(db: Database, now: int, due: Sequence[Wait]) -> set[Wait]:
    """Settle those of the sleeps that are plain, and wake their runs. Return them."""
    times = Counter(run for run, _ in due)
    asked = [wait for wait in due if times[wait[0]] == 1]
    plain = db.all(_SQL["plain"], {"due": text(asked), "now": now}) if asked else []
    if plain:
        written = {"sleeps": text(plain), "now": now}
        db.run(_SQL["settle"], written)
        db.run(_SQL["wake"], written)
        db.run(_SQL["woken"], written)
    return {(run, key) for run, key in plain}
