"""Whole runs and events of a store, read in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from msgspec.structs import replace

from holdfast.contract import EXPORT_MAX, Store
from holdfast.errors import Unavailable
from holdfast.records.transfer import CarriedEvent, CarriedRun, Digest, Exported

TRIES = 10  # how often a large run that changes meanwhile is read from its beginning


async def runs_of(store: Store, ids: Sequence[UUID]) -> AsyncIterator[CarriedRun]:
    """Yield these runs in their order: small ones whole, large ones in parts. The last part has the digest.
    Runs that are unknown are left out."""
    left = list(ids)
    while left:
        page = await store.export_runs(left[:EXPORT_MAX])
        if not page:
            del left[:EXPORT_MAX]
            continue
        for one in page:
            if one.after is None:
                yield replace(one.part, digest=_digest(one.part))
            else:
                async for part in _parts(store, one):
                    yield part
        del left[: left.index(page[-1].part.id) + 1]


def _digest(part: CarriedRun) -> str:
    digest = Digest()
    digest.add(part)
    return digest.text


async def _parts(store: Store, begun: Exported) -> AsyncIterator[CarriedRun]:
    """Yield the parts of a large run. They are read again from the first when the run has changed: whoever
    writes them drops the earlier ones then."""
    for _ in range(TRIES):
        digest, one = Digest(), begun
        while one.revision == begun.revision:
            digest.add(one.part)
            if one.after is None:
                yield replace(one.part, digest=digest.text)
                return
            yield one.part
            page = await store.export_runs([one.part.id], one.after)
            if not page:
                return  # it was purged
            one = page[0]
        page = await store.export_runs([begun.part.id])
        if not page:
            return
        begun = page[0]
    raise Unavailable(f"run {begun.part.id} changes all the time: pause it, and export it again")


async def events_of(
    store: Store, *, after: int = 0, chain: UUID | None = None, addressed: bool = True
) -> AsyncIterator[Sequence[CarriedEvent]]:
    """Yield pages of events, by number."""
    while page := await store.export_events(after=after, chain=chain, addressed=addressed):
        yield page
        after = page[-1].seq


async def ids_of(store: Store, *, after: UUID | None = None) -> AsyncIterator[Sequence[UUID]]:
    """Yield pages of ids of all runs, in ascending order."""
    while ids := await store.run_ids(EXPORT_MAX, after):
        yield ids
        after = ids[-1]
