"""trail, follow and follow_all: the rows of the trail, once or again and again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast import bounds
from holdfast.bounds import Quota, page
from holdfast.lifecycle import FINAL
from holdfast.records import Followed, Instant, TrailEntry, TrailPage, moment
from holdfast.records.sizes import entry_bytes

from .rows import RunRow, State, TrailRow


def trail(
    state: State,
    run: UUID | None,
    tenant: str | None,
    *,
    types: Sequence[str],
    after: int,
    limit: int,
    between: tuple[Instant | None, Instant | None],
) -> list[TrailEntry]:
    since, until = between
    if run is not None and not _is_there(state, run):
        return []
    rows = (
        entry for entry in _later(state, after)
        if run in {None, entry.run} and _is_shown(state, entry, tenant, types)
        and (since is None or entry.at >= since) and (until is None or entry.at < until)
    )  # fmt: skip
    return page(map(_shown, rows), entry_bytes, limit)


def follow(
    state: State, runs: Sequence[tuple[UUID, int]], tenant: str | None, limit: int, budget: int
) -> list[Followed]:
    """Return the news of these runs. The rows of all of them are found in one walk over the trail."""
    asked = {run for run, _ in runs}
    rows: dict[UUID, list[TrailRow]] = {}
    for entry in _later(state, min((after for _, after in runs), default=state.trail_seq)):
        if entry.run in asked:
            rows.setdefault(entry.run, []).append(entry)
    quota = Quota(entry_bytes, limit, budget)
    found = []
    for run, after in runs:
        row = state.seen(run, tenant)
        later = [entry for entry in rows.get(run, ()) if entry.seq > after]
        if row is None:
            found.append(Followed(run=run, gone=True))
        elif later or row.status in FINAL or _present(row) != run:
            entries, more = quota.take(map(_shown, later))
            found.append(
                Followed(
                    run=run, tenant=row.tenant, status=row.status, present=_present(row), entries=entries,
                    more=more,
                )
            )  # fmt: skip
    return found


def _present(row: RunRow) -> UUID:
    return row.head.present or row.head.id


def follow_all(
    state: State, tenant: str | None, types: Sequence[str], after: int | None, part: tuple[int, int]
) -> TrailPage:
    """Return a page of the whole trail. `part`: the most rows, and the most bytes."""
    if after is None:
        return TrailPage(seq=state.trail_seq)
    rows = _later(state, after)
    looked = rows[: bounds.SCAN_ROWS]
    entries, is_cut = Quota(entry_bytes, *part).take(
        _shown(entry) for entry in looked if _is_shown(state, entry, tenant, types)
    )
    if is_cut:
        return TrailPage(entries=entries, seq=entries[-1].seq if entries else after, more=True)
    if len(looked) < len(rows):
        return TrailPage(entries=entries, seq=looked[-1].seq, more=True)
    return TrailPage(entries=entries, seq=max(after, state.trail_seq))


def _later(state: State, after: int) -> list[TrailRow]:
    return state.trail[bisect_right(state.trail, after, key=lambda entry: entry.seq) :]


def _is_shown(state: State, entry: TrailRow, tenant: str | None, types: Sequence[str]) -> bool:
    whose = tenant is None or (tenant == entry.tenant and _is_there(state, entry.run))
    return whose and (not types or entry.type in types)


def _is_there(state: State, run: UUID) -> bool:
    return run in state.runs and state.runs[run].deleted_at is None


def _shown(entry: TrailRow) -> TrailEntry:
    data = entry.data if isinstance(entry.data, str) else msgspec.json.encode(entry.data).decode()
    return TrailEntry(seq=entry.seq, run=entry.run, type=entry.type, at=moment(entry.at), data_json=data)
