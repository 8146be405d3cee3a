"""The steps of a run: by their order, or the newest first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from holdfast.bounds import BATCH_BYTES, SHOWN_BYTES
from holdfast.engine.app.client import StoreClient
from holdfast.http.call import PAGE, Call
from holdfast.http.operation import operation
from holdfast.http.problems import Code, Refusal
from holdfast.records import Scope, Step
from holdfast.records.sizes import shown_step_bytes
from holdfast.shown.data import step_data
from holdfast.shown.shapes import Shape, StepData

from .fields import Limit, OneTenant, RunPath, StepKey

TAG = "Runs"
SEQ_MAX = 2**31 - 1
PARTS = (128 * 1024, 512 * 1024, 2**21)  # bytes that are read at once for a page of the newest steps


class StepsQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """largest: values of more bytes are left out. newest, before, name, step: see the operation."""

    largest: Annotated[int, Meta(ge=0, le=SEQ_MAX)] = SHOWN_BYTES
    limit: Limit = PAGE
    after: Annotated[int, Meta(ge=-1, le=SEQ_MAX, description="The last seq of the page before.")] = -1
    newest: Annotated[bool, Meta(description="The newest steps first.")] = False
    before: (
        Annotated[
            int, Meta(ge=0, le=SEQ_MAX, description="With `newest`: the lowest seq of the page before.")
        ]
        | None
    ) = None
    name: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                description="With `newest`: steps with this text in their name; case does not count.",
            ),
        ]
        | None
    ) = None
    step: Annotated[StepKey, Meta(description="With `newest`: only the step with this key.")] | None = None


class Steps(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Steps of a run by seq. next: the `after` of the next page; null: this page is empty, the end.

    The newest first: `next` is the `before` of the next page, null after the last page. `total` counts all
    steps that match; it is left out if not all of them were read.
    """

    items: tuple[StepData, ...]
    next: int | None
    total: int | UnsetType = UNSET


@operation("GET", "/runs/{run}/steps", tag=TAG, scope=Scope.RUNS_READ)
async def steps(call: Call, path: RunPath, query: StepsQuery) -> Steps:
    """List the recorded steps of a run, in the order of their outcomes; of a plan all its steps.

    With `newest` the last ones come first, and `name` or `step` chooses among them.
    """
    client = call.client(query.tenant)
    if query.newest and query.step is not None:
        return await _by_key(call, client, path.run, query)
    if query.newest:
        return await _newest(call, client, path.run, query)
    if query.before is not None or query.name is not None or query.step is not None:
        raise Refusal(Code.BAD_VALUE, "query: before, name and step need newest=true")
    found = await client.steps(path.run, largest=query.largest, after=query.after)
    items = tuple(call.shown(step_data(one)) for one in found[: query.limit])
    return Steps(items=items, next=items[-1].seq if items else None)


async def _by_key(call: Call, client: StoreClient, run: UUID, query: StepsQuery) -> Steps:
    """Return the step with a key, which is there once. The walk to it reads no large values."""
    before, parts = SEQ_MAX if query.before is None else query.before, 0
    while True:
        size, parts = PARTS[min(parts, len(PARTS) - 1)], parts + 1
        steps = await client.store.steps(run, call.scope, largest=0, before=before, bytes=size)
        if not steps:
            return Steps(items=(), next=None, total=0)
        found = next((one for one in steps if one.key == query.step), None)
        if found is not None:
            break
        before = steps[-1].seq
        await asyncio.sleep(0)
    at = found.seq + 1
    near = await client.store.steps(run, call.scope, largest=query.largest, before=at, bytes=0)
    whole = next((one for one in near if one.key == query.step), found)
    is_asked = (query.name or "").casefold() in whole.key.casefold()
    items = (call.shown(step_data(whole)),) if is_asked else ()
    return Steps(items=items, next=None, total=len(items))


async def _newest(call: Call, client: StoreClient, run: UUID, query: StepsQuery) -> Steps:
    """Return a page of the newest steps. The store is read from its end, in parts that grow, until there are
    enough of them: so a page of a long run costs little, unless few of its steps match. A page of large
    values has fewer steps.
    """
    sought = (query.name or "").casefold()
    found: list[Step] = []
    before, parts, is_whole = SEQ_MAX if query.before is None else query.before, 0, False
    left = BATCH_BYTES

    async def part(size: int) -> Sequence[Step]:
        return await client.store.steps(run, call.scope, largest=query.largest, before=before, bytes=size)

    while len(found) <= query.limit and left > 0 and not is_whole:
        steps, parts = await part(PARTS[min(parts, len(PARTS) - 1)]), parts + 1
        matching = [one for one in steps if sought in one.key.casefold()]
        found += matching
        left -= sum(map(shown_step_bytes, matching))
        await asyncio.sleep(0)  # a store in this process reads at once: let other requests have their turn
        before, is_whole = (steps[-1].seq, False) if steps else (before, True)
    if not is_whole and parts == 1:  # perhaps it had all steps
        is_whole = not await part(0)
    chosen = found[: query.limit]
    more = len(found) > len(chosen) or not is_whole
    return Steps(
        items=tuple(call.shown(step_data(one)) for one in chosen),
        next=chosen[-1].seq if more else None,
        total=len(found) if is_whole and query.before is None else UNSET,
    )
