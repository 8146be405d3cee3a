"""Reads, and the publication of workflows."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast import bounds
from holdfast.contract import CHILDREN_COUNTED, OUTLINES_MAX
from holdfast.escaping import safe_logger
from holdfast.machine.durations import bounded
from holdfast.records import (
    ApprovalRequest,
    ChildCounts,
    Definition,
    Finding,
    Followed,
    Found,
    Instant,
    PlanStep,
    Run,
    RunFilter,
    RunOutline,
    Step,
    Tenant,
    TrailEntry,
    TrailPage,
    instant,
    tenant_name,
)
from holdfast.stores.paged import StepsPage, all_steps
from holdfast.stores.postgres import checkup
from holdfast.stores.postgres.address import Address
from holdfast.stores.run_filter import inside, is_filtered

from .calls import Calls, json_text

_MAX = 2**31 - 1  # the most rows of a page
_RUN = msgspec.json.Decoder(Run)
_RUNS = msgspec.json.Decoder(list[Run])
_OUTLINES = msgspec.json.Decoder(list[RunOutline])
_STEPS = msgspec.json.Decoder(StepsPage)
_TRAIL = msgspec.json.Decoder(list[TrailEntry])
_FOLLOWED = msgspec.json.Decoder(list[Followed])
_TRAIL_PAGE = msgspec.json.Decoder(TrailPage)
_REQUESTS = msgspec.json.Decoder(list[ApprovalRequest])
_COUNTS = msgspec.json.Decoder(list[ChildCounts])
_FOUND = msgspec.json.Decoder(Found)
_IDS = msgspec.json.Decoder(list[UUID])
log = safe_logger("holdfast.postgres")

_DEFINITIONS = msgspec.json.Decoder(list[msgspec.Raw])
_DEFINITION = msgspec.json.Decoder(Definition)
_FACTS = msgspec.json.Decoder(checkup.Facts)


def _readable(raw: msgspec.Raw) -> Definition | None:
    """Return the definition; None for one that cannot be read, which must not hide the others."""
    try:
        return _DEFINITION.decode(raw)
    except (msgspec.DecodeError, ValueError) as error:
        log.warning("a published definition cannot be read, and is left out: %s", error)
        return None


class _Slice(msgspec.Struct, frozen=True):
    """Some runs of a list. `after`: the id after which the next slice begins; None: this was the last one."""

    runs: list[Run]
    after: UUID | None


class _Outlined(msgspec.Struct, frozen=True):
    """The outlines of a slice."""

    runs: list[RunOutline]
    after: UUID | None


_SLICE = msgspec.json.Decoder(_Slice)
_OUTLINED = msgspec.json.Decoder(_Outlined)


class ReadVerbs(Calls):
    """The verbs that read."""

    address: Address

    async def now(self) -> Instant:
        return instant(await self._call("clock"))

    async def get(self, run: UUID, tenant: Tenant) -> Run | None:
        found = await self._call("get", run, tenant_name(tenant))
        return None if found is None else _RUN.decode(found)

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> builtins.list[Run]:
        where = inside(where)
        text = json_text(where)
        if not is_filtered(where):
            return await self._ask(_RUNS, "list", text, min(limit, _MAX), after, bounds.BATCH_BYTES)
        while True:
            part = await self._ask(_SLICE, "list_page", text, min(limit, _MAX), after, bounds.BATCH_BYTES)
            if part.runs or part.after is None or limit <= 0:
                return part.runs
            after = part.after

    async def outlines(
        self, where: RunFilter, limit: int = OUTLINES_MAX, after: UUID | None = None
    ) -> builtins.list[RunOutline]:
        where = inside(where)
        text = json_text(where)
        if not is_filtered(where):
            return await self._ask(_OUTLINES, "outlines", text, limit, after)
        while True:
            part = await self._ask(_OUTLINED, "outlines_page", text, limit, after)
            if part.runs or part.after is None or limit <= 0:
                return part.runs
            after = part.after

    async def search(self, text: str, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Found:
        bounded = bounds.SEARCH_RUNS, bounds.SEARCH_BYTES, bounds.BATCH_BYTES
        filter_ = json_text(inside(where))
        return await self._ask(_FOUND, "search", text, filter_, min(limit, _MAX), after, *bounded)

    async def children(
        self, runs: Sequence[UUID], tenant: Tenant, most: int = CHILDREN_COUNTED
    ) -> builtins.list[ChildCounts]:
        return await self._ask(_COUNTS, "children", [*runs], tenant_name(tenant), min(most, _MAX))

    async def steps(
        self,
        run: UUID,
        tenant: Tenant,
        *,
        largest: int | None = None,
        after: int | None = None,
        before: int | None = None,
        bytes: int | None = None,
    ) -> builtins.list[Step]:
        async def page(last: int, verb: str = "steps_page", most: int | None = None) -> StepsPage:
            most = bounds.BATCH_BYTES if most is None else most
            return await self._ask(_STEPS, verb, run, tenant_name(tenant), last, most, largest)

        if before is not None:
            return (await page(before, "steps_before", bytes)).steps
        return await all_steps(page) if after is None else (await page(after, most=bytes)).steps

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> builtins.list[TrailEntry]:
        since, until = between
        which = {"run": run, "tenant": tenant_name(tenant), "types": types, "since": since, "until": until}
        return await self._ask(_TRAIL, "trail", json_text(which), after, min(limit, _MAX), bounds.BATCH_BYTES)

    async def follow(
        self,
        runs: Sequence[tuple[UUID, int]],
        tenant: Tenant,
        limit: int = 1000,
        bytes: int = bounds.BATCH_BYTES,
    ) -> builtins.list[Followed]:
        ids, afters = [run for run, _ in runs], [after for _, after in runs]
        return await self._ask(
            _FOLLOWED, "follow", ids, afters, tenant_name(tenant), min(limit, _MAX - 1), bytes
        )

    async def follow_all(
        self,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int | None = None,
        limit: int = 1000,
        bytes: int = bounds.BATCH_BYTES,
    ) -> TrailPage:
        which = json_text({"tenant": tenant_name(tenant), "types": types})
        part = after, min(limit, _MAX - 1), bytes, bounds.SCAN_ROWS
        return await self._ask(_TRAIL_PAGE, "follow_all", which, *part)

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> builtins.list[ApprovalRequest]:
        run, step = (None, None) if after is None else after
        return await self._ask(
            _REQUESTS, "approvals", tenant_name(tenant), limit, run, step, bounds.BATCH_BYTES
        )

    async def definitions(self, *, schemas: bool = False) -> builtins.list[Definition]:
        found = await self._ask(_DEFINITIONS, "definitions", schemas)
        return [one for raw in found if (one := _readable(raw)) is not None]

    async def stuck(self, limit: int = 100) -> builtins.list[UUID]:
        return await self._ask(_IDS, "stuck", min(limit, _MAX))

    async def checkup(self) -> builtins.list[Finding]:
        before = checkup.host_clock()
        facts = await self._ask(_FACTS, "checkup")
        return checkup.findings(facts, self.address, (before, checkup.host_clock()))

    async def publish(self, definitions: Sequence[Definition]) -> None:
        if definitions:
            await self._call("publish", json_text([_finite(one) for one in definitions]))


def _finite(one: Definition) -> Definition:
    """Return the definition with finite durations: JSON has no infinity, and null would mean no limit."""
    steps: tuple[PlanStep, ...] = tuple(
        msgspec.structs.replace(step, timeout_seconds=_bounded(step.timeout_seconds)) for step in one.steps
    )
    return msgspec.structs.replace(one, timeout_seconds=_bounded(one.timeout_seconds), steps=steps)


def _bounded(seconds: float | None) -> float | None:
    return None if seconds is None else bounded(seconds)
