"""Groups of runs that must move together: a run with its parents, its children and its chain.

A parent waits for its children, and shares its budget with them. So a family stops, is carried and goes on as
one; parents are first in a group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from msgspec.structs import replace

from holdfast.contract import EXPORT_MAX, Store
from holdfast.records import ANY, Run, RunFilter

TOGETHER = 200  # runs of one group, if they do not belong together

ALL = RunFilter(tenant=ANY, deleted=True, values=False)


async def pages_of(store: Store, where: RunFilter | None) -> AsyncIterator[Sequence[Run]]:
    """Yield pages of the runs that match, newest first. None: all runs, deleted ones too."""
    wanted, after = ALL if where is None else replace(where, values=False), None
    while page := await store.list(wanted, EXPORT_MAX, after):
        yield page
        after = page[-1].id


async def number_of(store: Store, where: RunFilter | None) -> int:
    """Return the number of runs that match, for people who wait."""
    return sum([len(page) async for page in pages_of(store, where)])


async def groups_of(
    store: Store, pages: AsyncIterator[Sequence[Run]], most: int = TOGETHER, *, apart: bool = False
) -> AsyncIterator[list[UUID]]:
    """Yield groups of about `most` runs. A family is never divided. apart: each family is a group. Each page
    is grouped by itself: a family that was in an earlier page comes again."""
    async for page in pages:
        with_children = {one.run for one in await store.children([run.id for run in page], ANY, 1)}
        group: list[UUID] = []
        seen: set[UUID] = set()
        for run in page:
            if run.id in seen:
                continue
            is_single = run.parent is None and run.id == run.chain == run.present
            family = [run.id]
            if not is_single or run.id in with_children:
                family = [one for one in await family_of(store, run) if one not in seen]
                seen.update(family)
            if apart and len(family) > 1:
                yield family
                continue
            group += family
            if len(group) >= most:
                yield group
                group = []
        if group:
            yield group


async def family_of(store: Store, run: Run) -> list[UUID]:
    """Return the whole family of a run, parents before their children."""
    top = await top_of(store, run)
    found: dict[UUID, None] = {}
    left: list[Run] = [top]
    while left:
        one = left.pop(0)
        # The first run of a chain comes first: the others cannot be imported without it.
        chain = dict.fromkeys((one.chain, one.present, one.id))
        for member in chain:
            if member not in found:
                found[member] = None
                left += await _children(store, member)
    for member in (run.chain, run.present, run.id):
        found.setdefault(member)
    return list(found)


async def top_of(store: Store, run: Run) -> Run:
    """Return the ancestor of a run that has no parent, or whose parent is gone."""
    seen = {run.id}
    while run.parent is not None and run.parent not in seen:
        seen.add(run.parent)
        parent = await run_of(store, run.parent)
        if parent is None:
            return run
        run = parent
    return run


async def _children(store: Store, run: UUID) -> list[Run]:
    where = replace(ALL, parent=run)
    return [child async for page in pages_of(store, where) for child in page]


async def run_of(store: Store, run: UUID) -> Run | None:
    """Return a run, also a deleted one."""
    found = await store.get(run, ANY)
    if found is not None:
        return found
    page = await store.list(ALL, 1, _next_id(run))
    return page[0] if page and page[0].id == run else None


def _next_id(run: UUID) -> UUID:
    """Return the id behind this one: a list begins below it."""
    return UUID(int=min(run.int + 1, (1 << 128) - 1))
