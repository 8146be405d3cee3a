"""Kept counts: names of their keys and fields, and the moves of runs that change them.

The server runs one script at a time, so a script adds to the counts directly: nothing is folded later.
scripts/counting.lua has the same names.

| key | content |
|---|---|
| `counts`, `counts:<tenant>` | hash: `<type>:<status>` runs, not deleted ones; `<type>:+<happening>` totals |
| `rates:<hour>`, `rates:<hour>:<tenant>` | hash: `<minute>:<type>:<happening>`; it expires |
| `types`, `tenants` | sorted sets of the types and tenants that have a run |
| `recount`, `recounted`, `recounted:<tenant>` | hashes of a recount that is under way |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from holdfast.records import SECOND, Counted, Instant

from .names import Names, part, unpart

if TYPE_CHECKING:
    from .rows import RunRow
    from .snapshot import Snapshot

HOUR = 3600 * SECOND
# By the word of the trail.
COUNTED = {
    "created": Counted.STARTED,
    "succeeded": Counted.SUCCEEDED,
    "failed": Counted.FAILED,
    "cancelled": Counted.CANCELLED,
    "retried": Counted.RETRIED,
    "lease_expired": Counted.EXPIRED,
}
State = tuple[str, str, str]  # tenant, type, status


def counts_key(names: Names, tenant: str | None) -> str:
    """Return the hash of counts of a tenant. None: of all tenants."""
    return names("counts") if tenant is None else names.of("counts", tenant)


def hour_of(at: Instant) -> Instant:
    """Return the start of the hour of an instant."""
    return at - at % HOUR


def rates_key(names: Names, hour: Instant, tenant: str | None) -> str:
    """Return the hash of happenings per minute, for one hour."""
    kind = f"rates:{hour}"
    return names(kind) if tenant is None else names.of(kind, tenant)


@lru_cache(maxsize=4096)
def keys(names: Names, hour: Instant, tenant: str) -> tuple[str, ...]:
    """Return all keys that a change of this tenant's counts may write."""
    return tuple(
        key for whose in (None, tenant)
        for key in (counts_key(names, whose), rates_key(names, hour, whose), recounted_key(names, whose))
    )  # fmt: skip


def recounted_key(names: Names, tenant: str | None) -> str:
    """Return the hash of a recount that is under way."""
    return names("recounted") if tenant is None else names.of("recounted", tenant)


def kept(fields: Mapping[str, str]) -> tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]:
    """Return the rows of a hash of counts: types, statuses and numbers; types, happenings and numbers."""
    runs: list[tuple[str, str, int]] = []
    totals: list[tuple[str, str, int]] = []
    for field, number in fields.items():
        kind, _, name = field.rpartition(":")
        if name.startswith("+"):
            totals.append((unpart(kind), name[1:], int(number)))
        else:
            runs.append((unpart(kind), name, int(number)))
    return runs, totals


def minutes(fields: Mapping[str, str]) -> list[tuple[Instant, str, Counted, int]]:
    """Return the rows of a hash of happenings: minute, type, happening, number."""
    found = ((*field.split(":"), number) for field, number in fields.items())
    return sorted((int(minute), unpart(kind), Counted(what), int(n)) for minute, kind, what, n in found)


def state_of(row: RunRow | None) -> State | None:
    """Return where a run counts. A deleted run counts nowhere."""
    if row is None or row.deleted_at is not None:
        return None
    return row.tenant, row.type, row.status.value


def move(snapshot: Snapshot, before: RunRow | None, after: RunRow | None) -> None:
    """Count a run that has changed, is new (`before` is None) or is removed (`after` is None)."""
    old, new, row = state_of(before), state_of(after), after or before
    if row is not None and old != new:
        statuses = ("" if one is None else one[2] for one in (old, new))
        snapshot.moved(str(row.id), part(row.tenant), part(row.type), *statuses)


def note(snapshot: Snapshot, run: RunRow, word: str, minute: Instant) -> None:
    """Count an entry of the trail, if it is one that is counted. The caller leaves out given-up waits."""
    what = COUNTED.get(word)
    if what is not None:
        snapshot.happened(part(run.tenant), part(run.type), what.value, minute)
