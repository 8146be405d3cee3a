"""The present run of a chain."""

from __future__ import annotations

from uuid import UUID

from holdfast.arguments import check_id
from holdfast.contract import Store
from holdfast.errors import UnknownRun
from holdfast.records import Run, Tenant


async def present_run(store: Store, run: UUID | str, tenant: Tenant) -> Run:
    """Return the newest run of this run's chain: the run itself when it never called `continue_as`.
    UnknownRun.
    """
    found = await _known(store, run, tenant)
    while found.present != found.id:
        before, found = found, await store.get(found.present, tenant) or await _known(store, run, tenant)
        if found.present == before.present != found.id:  # the chain is being deleted
            raise UnknownRun(run)
    return found


async def _known(store: Store, run: UUID | str, tenant: Tenant) -> Run:
    found = await store.get(check_id(run), tenant)
    if found is None:
        raise UnknownRun(run)
    return found
