"""Search of a text in runs."""

from __future__ import annotations

from uuid import UUID

from holdfast import bounds
from holdfast.bounds import page, text_bytes
from holdfast.records import Found, RunFilter
from holdfast.records.shown import without_values
from holdfast.records.sizes import run_bytes
from holdfast.stores.run_filter import holds

from .reads import matching, shown
from .rows import RunRow, State


def search(state: State, text: str, where: RunFilter, limit: int, after: UUID | None) -> Found:
    """Return runs that hold the text, among those that one call looks at."""
    looked_at: list[UUID] = []
    hits: list[RunRow] = []
    budget, ended = bounds.SEARCH_BYTES, True
    for row in matching(state, where, after):
        budget -= sum(map(text_bytes, (row.params, row.result, row.labels, row.error)))
        if len(hits) == limit or len(looked_at) == bounds.SEARCH_RUNS or (looked_at and budget < 0):
            ended = False
            break
        looked_at.append(row.id)
        if holds(row, text):
            hits.append(row)
    runs = (shown(row, state) for row in hits)
    listed = page(runs if where.values else map(without_values, runs), run_bytes, limit)
    if len(listed) < len(hits):  # the others are too large for this answer
        del looked_at[looked_at.index(listed[-1].id) + 1 :]
        ended = False
    return Found(runs=tuple(listed), after=None if ended else looked_at[-1], looked_at=len(looked_at))
