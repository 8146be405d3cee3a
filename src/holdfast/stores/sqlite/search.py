"""Search of a text in runs, in parts of bounded cost, on the thread for large reads."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast import bounds
from holdfast.records import Found, RunFilter
from holdfast.searching import json_forms
from holdfast.stores.run_filter import inside

from . import listing
from .connection.database import Database, text
from .sql import statements

_SQL = statements("search")
_LOOK = _SQL["look"].replace("$message", _SQL["message"])


class SearchVerbs:
    """The verb `search`."""

    if TYPE_CHECKING:

        async def _read_apart(self, work: Any, *args: Any) -> Any: ...

    async def search(self, text: str, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Found:
        place = None if after is None else str(after)
        found: Found = await self._read_apart(search, text, inside(where), limit, place)
        return found


def search(db: Database, sought: str, where: RunFilter, limit: int, after: str | None) -> Found:
    """Return runs that hold the text, among those that one call looks at."""
    found = listing.matching(db, where, bounds.SEARCH_RUNS, after)
    looked_at, hits = _look(db, sought, found.ids[: bounds.SEARCH_RUNS], limit)
    runs = listing.records(db, where, hits, limit)
    if len(runs) < len(hits):  # the others are too large for this answer
        looked_at = looked_at[: looked_at.index(hits[len(runs) - 1]) + 1]
    after = looked_at[-1] if len(looked_at) < len(found.ids) else found.after
    return Found(runs=tuple(runs), after=None if after is None else UUID(after), looked_at=len(looked_at))


def _look(db: Database, sought: str, ids: list[str], limit: int) -> tuple[list[str], list[str]]:
    """Return the ids of the runs that were looked at, and of those that hold the text."""
    codec, ascii_ = json_forms(sought)
    asked = {"ids": text(ids), "text": sought, "form": codec, "ascii": ascii_, "same": codec == ascii_}
    looked_at: list[str] = []
    hits: list[str] = []
    budget = bounds.SEARCH_BYTES
    # A separate cursor that is closed: rows that are not asked for are not read.
    with closing(db.connection.cursor()) as rows:
        for run, size, holds in rows.execute(_LOOK, asked):
            budget -= size
            if looked_at and budget < 0:
                break
            looked_at.append(run)
            if holds:
                hits.append(run)
                if len(hits) == limit:
                    break
    return looked_at, hits
