"""start: record intents, one commit for all."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import HoldfastError
from holdfast.machine import starting
from holdfast.records import Instant, NewRun, Started

from .database import Database
from .view import SqliteView


def start(db: Database, now: Instant, runs: Sequence[NewRun]) -> list[Started | HoldfastError]:
    """One answer each, in order."""
    view = SqliteView(db, now)
    answers = starting.start(view, runs)
    view.save()
    return answers
