"""Bounded reads of runs that several pages need."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain, pairwise
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from holdfast.arguments import ALL_TENANTS
from holdfast.contract import OUTLINES_MAX
from holdfast.http.call import PAGE_MAX
from holdfast.http.pages.pagecall import PageCall
from holdfast.records import RunFilter, RunOutline
from holdfast.shown.counts import RateData, RatesData, ScaleData

CALLS = 10  # calls of the list for one page; each may bring few runs, where a filter passes many others
TENANTS_MAX = 20
RATES_CALLS = 5
WINDOWS = 4  # calls of the list at once
LIST_SECONDS = 1.0  # a page that needs longer for its runs says so, and goes without the rest of them
_ALWAYS = "1970-01-01T00:00:00+00:00"


async def listed(call: PageCall, query: Mapping[str, Any]) -> Any:
    """Return a page of the operation `list`; None if it was not there in time.

    A store looks for the runs of a filter in many short statements, and can be stopped between two of them. A
    list over all tenants is one long statement, unless it has a filter by time: so it gets one.
    """
    if call.tenant == ALL_TENANTS and query.get("created_since") is None:
        query = {**query, "created_since": _ALWAYS}
    try:
        async with asyncio.timeout(LIST_SECONDS):
            return await call.ask("list", query=query)
    except TimeoutError:
        return None


async def gathered(
    call: PageCall, query: Mapping[str, Any], most: int, calls: int = CALLS, after: UUID | None = None
) -> tuple[list[Any], bool]:
    """Return the newest runs that match, at most so many, and whether there may be more. All calls together
    take at most LIST_SECONDS. after: only runs behind this id.
    """
    found: list[Any] = []
    try:
        async with asyncio.timeout(LIST_SECONDS):
            for _ in range(calls):
                part = {**query, "limit": min(PAGE_MAX, most - len(found)), "after": after}
                items = (await call.ask("list", query=part)).items
                if not items:
                    return found, False
                found += items
                after = items[-1].id
                if len(found) >= most:
                    break
    except TimeoutError:
        pass
    return found, True


async def outlines(
    call: PageCall, where: RunFilter, limit: int, after: UUID | None = None
) -> Sequence[RunOutline]:
    """Return a few fields of the newest runs that match, of the tenant that is looked at. Whoever calls this
    has checked that the visitor may list runs.
    """
    return await call.api.store.outlines(replace(where, tenant=call.scope), limit, after)


async def outlines_at_once(call: PageCall, where: RunFilter, most: int, calls: int) -> list[RunOutline]:
    """Return the newest runs that match, at most so many, as far as they are read within LIST_SECONDS.

    Runs are listed by their ids, which are sorted by time. The first call says how close together they are;
    from that the ids are guessed between which the others are, and several windows of them are read at once.
    A wrong guess costs time, and leaves out none.
    """
    found: list[RunOutline] = []
    try:
        async with asyncio.timeout(LIST_SECONDS):
            first = found = [*await outlines(call, where, min(OUTLINES_MAX, most))]
            if not first or len(first) >= most:
                return first
            number = min(WINDOWS, -(-(most - len(first)) // len(first)))
            width = first[0].id.int - first[-1].id.int + 1
            edges = [UUID(int=max(1, first[-1].id.int - width * n)) for n in range(number + 1)]
            windows = [_between(call, where, high, low, len(first)) for high, low in pairwise(edges)]
            found = [*first, *chain.from_iterable(await asyncio.gather(*windows))][:most]
            after = edges[-1]
            for _ in range(calls):
                if len(found) >= most:
                    break
                part = await outlines(call, where, min(OUTLINES_MAX, most - len(found)), after)
                if not part:
                    break
                found, after = [*found, *part], part[-1].id
    except TimeoutError:
        pass
    return found


async def _between(call: PageCall, where: RunFilter, high: UUID, low: UUID, likely: int) -> list[RunOutline]:
    """Return the runs that match with an id below `high` and not below `low`; likely: how many there are."""
    found: list[RunOutline] = []
    limit, after = min(OUTLINES_MAX, likely + 10), high
    while part := await outlines(call, where, limit, after):
        found += [run for run in part if run.id >= low]
        after = part[-1].id
        if after <= low:
            break
    return found


async def rates_since(call: PageCall, since: datetime) -> tuple[list[RateData], bool]:
    """Return what happened to runs by minute, and whether something is left out: one answer has at most
    10,000 numbers, the oldest first, and with many types that is less than an hour.
    """
    found: list[RateData] = []
    for _ in range(RATES_CALLS):
        page: RatesData = await call.ask("rates", query={"since": since.isoformat()})
        found += page.items
        if not page.more:
            return found, False
        since = page.items[-1].minute
        if page.items[0].minute == since:
            break  # one minute that is larger than an answer
        found = [one for one in found if one.minute < since]  # the last minute is asked for again
    return found, True


async def scale_of_all(call: PageCall) -> ScaleData:
    """Return the due and leased runs by type and tenant, of all tenants or of the one that is looked at."""
    found: ScaleData = await call.ask("scale", query={"tenant": call.tenant or ALL_TENANTS})
    return found


async def runs_with(call: PageCall, scale: ScaleData, status: str, most: int) -> tuple[list[Any], bool]:
    """Return at most so many runs with a status (`leased` or `pending`), and whether there may be more.

    The tenants that have such runs are asked one by one: a list over all tenants at once may read every run
    of the store.
    """
    field = "leased" if status == "leased" else "due"
    tenants = sorted({one.tenant for one in scale.items if getattr(one, field)})
    found: list[Any] = []
    for tenant in tenants[:TENANTS_MAX]:
        items, more = await gathered(call, {"status": [status], "tenant": tenant}, most - len(found))
        found += items
        if more:
            return found, True
    return found, scale.more_types or len(tenants) > TENANTS_MAX
