"""The trail, beside each change in its own commit; rows that have to say where they lead are written last."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.records import Instant, Json

from .database import Database, text
from .sql import statements

TRAIL = statements("trail")["trail"]


class Tale:
    """What happens to one run within one verb."""

    def __init__(self, db: Database, now: Instant, run: str) -> None:
        self.db, self.now, self.run = db, now, run
        self._rows: list[tuple[str, dict[str, Any]]] = []

    def note(self, what: str, /, **data: Any) -> dict[str, Any]:
        """One more row; its data may be added to until it is written."""
        self._rows.append((what, data))
        return data

    def write(self) -> None:
        for what, data in self._rows:
            self.db.run(TRAIL, (self.run, what, text(data), self.now))
        self._rows.clear()


def raw(json: Json | None) -> msgspec.Raw | None:
    """JSON text as a part of other JSON, not looked into."""
    return None if json is None else msgspec.Raw(json.encode())
