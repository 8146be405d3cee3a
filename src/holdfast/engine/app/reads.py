"""The verbs that read runs: get, list, search, children, steps, trail, explain, and waiting for a result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from holdfast.arguments import (
    BIG_MAX,
    Seconds,
    check_datetime,
    check_duration,
    check_id,
    check_limit,
    check_list,
    check_sought,
    check_text,
    check_whole,
    check_words,
    exact_text,
)
from holdfast.clipped import clipped
from holdfast.codec import MARK
from holdfast.contract import CHILDREN_COUNTED, Store
from holdfast.engine.explain.explanation import Explanation
from holdfast.engine.explain.lookup import explained
from holdfast.engine.present import present_run
from holdfast.engine.wake_up import WakeUp
from holdfast.errors import ResultTimeout, RunCancelled, RunFailed, UnknownRun, UsageError
from holdfast.lifecycle import FINAL, Status, StepKind
from holdfast.records import (
    ANY,
    OWN,
    ChildCounts,
    Found,
    OwnTenant,
    Run,
    RunFilter,
    RunOutline,
    Step,
    Tenant,
    TrailEntry,
)
from holdfast.sealing.envelope import reason
from holdfast.searching import check_searched
from holdfast.transfer.places import cancelled_words

from .tenant_scope import tenant_of


def _exact_labels(labels: Any) -> Any:
    """Return labels of a filter as plain texts. The store refuses everything that is not text."""
    if not isinstance(labels, dict):
        return labels
    return {exact_text(name): None if value is None else exact_text(value) for name, value in labels.items()}


def checked_kinds(where: RunFilter) -> RunFilter:
    """Return the filter with statuses, kind of wait and parent in their own types; their texts count too."""
    waits = () if where.waiting_on is None else check_words("waiting_on", StepKind, [where.waiting_on])
    return msgspec.structs.replace(
        where,
        statuses=check_words("statuses", Status, where.statuses),
        waiting_on=next(iter(waits), None),
        parent=None if where.parent is None else check_id(where.parent),
    )


class ReadVerbs:
    """The verbs that read runs; a part of `StoreClient`."""

    store: Store
    tenant: Tenant

    if TYPE_CHECKING:

        async def _opened(self) -> None: ...

    async def get(self, run: UUID | str) -> Run | None:
        """Return the run, or None when it is unknown."""
        await self._opened()
        return await self.store.get(check_id(run), self.tenant)

    async def known(self, run: UUID | str) -> Run:
        """Return the run; raise UnknownRun when there is none."""
        found = await self.get(run)
        if found is None:
            raise UnknownRun(run)
        return found

    async def present(self, run: UUID | str) -> Run:
        """Return the newest run of this run's chain: the run itself when it never called `continue_as`."""
        await self._opened()
        return await present_run(self.store, run, self.tenant)

    async def list(
        self, where: RunFilter | None = None, limit: int = 100, after: UUID | None = None
    ) -> Sequence[Run]:
        """Return runs, newest first; `after` is the last id of the page before.

        A page may hold fewer than `limit` runs when values are large (8 MiB a page), or when few runs match
        and many had to be looked at: only an empty page is the end.
        """
        where, rows = self._filter("list", where), check_limit(limit)
        await self._opened()
        return await self.store.list(where, rows, None if after is None else check_id(after))

    async def _outlines(self, where: RunFilter, limit: int, after: UUID | None) -> Sequence[RunOutline]:
        """Return a few fields of the runs of `list`, for parts of the engine that count many."""
        where = self._filter("list", where)
        await self._opened()
        return await self.store.outlines(where, limit, after)

    async def search(
        self, text: str, where: RunFilter | None = None, limit: int = 100, after: UUID | None = None
    ) -> Found:
        """Return runs, newest first, that hold `text` in their params, result, labels, key or error message.

        The text is literal, and case counts. One call looks at no more than 2,000 runs, and 32 MiB of values:
        it may find nothing and not be at the end. Go on with `after=found.after` until that is None. An app
        that encrypts or compresses its values cannot search in them.
        """
        text, where = check_searched(text), self._filter("search", where)
        rows = check_limit(limit, 1)
        await self._opened()
        return await self.store.search(text, where, rows, None if after is None else check_id(after))

    def _filter(self, verb: str, where: RunFilter | None) -> RunFilter:
        """Return the filter with exact texts, and with the tenant of this client."""
        if where is not None and not isinstance(where, RunFilter):
            raise UsageError(
                f"{verb}({clipped(where)}): give a filter, as in RunFilter(statuses=(Status.FAILED,))"
            )
        where = where or RunFilter()
        type_, key = check_sought(type=where.type, key=where.key)
        error = check_sought(error=where.error)[0] if isinstance(where.error, str) else where.error
        tenant = tenant_of(self.tenant, where.tenant)
        labels = _exact_labels(where.labels) if where.labels else where.labels
        return msgspec.structs.replace(
            checked_kinds(where), type=type_, tenant=tenant, key=key, error=error, labels=labels
        )

    async def children(
        self, runs: Sequence[UUID | str], *, most: int = CHILDREN_COUNTED
    ) -> Sequence[ChildCounts]:
        """Return the children of these runs, counted by status: at most `most` of each run.

        Runs without children, and runs that are unknown, are left out.
        """
        ids = [check_id(run) for run in check_list("runs", runs)]
        counted = check_whole("most", most, 1, CHILDREN_COUNTED)
        await self._opened()
        return await self.store.children(ids, self.tenant, counted)

    async def steps(
        self, run: UUID | str, *, largest: int | None = None, after: int | None = None
    ) -> Sequence[Step]:
        """Return all steps in the order of their outcomes; values of more than `largest` bytes are left
        out. after: one page only, the steps behind this seq (-1: the first page); an empty page is the end.
        """
        await self._opened()
        return await self.store.steps(check_id(run), self.tenant, largest=largest, after=after)

    async def trail(
        self,
        run: UUID | str | None = None,
        after: int = 0,
        limit: int = 1000,
        *,
        types: Sequence[str] = (),
        tenant: Tenant | OwnTenant = OWN,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Sequence[TrailEntry]:
        """Return trail rows of one run or of all, oldest first; filtered by type, tenant and time.

        In pages, as `list`: `after` is the last seq of the page before; only an empty page is the end.
        """
        types = [check_text("type", one) for one in check_list("types", types)]
        whose = tenant_of(self.tenant, tenant, ANY)
        after, limit = check_whole("after", after, 0, BIG_MAX), check_limit(limit)
        between = (
            None if since is None else check_datetime("since", since),
            None if until is None else check_datetime("until", until),
        )
        await self._opened()
        chosen = None if run is None else check_id(run)
        return await self.store.trail(chosen, whose, types, after, limit, between)

    async def follow(
        self, run: UUID | str | None = None, after: int = 0, *, tenant: Tenant | OwnTenant = OWN
    ) -> AsyncGenerator[TrailEntry, None]:
        """Yield the trail as it grows: of one run, then of the present run of its chain, until that ends; or
        of all runs for ever.

        `after`: begin behind this seq. UnknownRun, also when the run is deleted meanwhile.
        """
        id_, whose = None if run is None else check_id(run), tenant_of(self.tenant, tenant, ANY)
        after, wake_up = check_whole("after", after, 0, BIG_MAX), WakeUp()
        await self._opened()
        unlisten = self.store.listen(wake_up.ring)
        try:
            while True:
                # Read the status before the trail: then the trail holds all that led to a final status.
                seen = None if id_ is None else await self.known(id_)
                while page := await self.trail(id_, after, tenant=whose):
                    wake_up.found()
                    for entry in page:
                        yield entry
                    after = page[-1].seq
                if seen is not None and seen.present != seen.id:
                    id_, after = seen.present, 0
                elif seen is not None and seen.status in FINAL:
                    return
                else:
                    await wake_up.wait(None)
        finally:
            unlisten()

    async def explain(self, run: UUID | str) -> Explanation:
        """Say why a run does not move, in words and as data; for a chain, its newest run."""
        await self._opened()
        return await explained(self.store, check_id(run), self.tenant)

    async def result(self, run: UUID | str, timeout: Seconds | None = None) -> Any:
        """Wait for the end of the run, or of its chain, and return its result. Raises RunFailed,
        RunCancelled, ResultTimeout."""
        return (await self.ended(run, timeout)).result

    async def ended(self, run: UUID | str, timeout: Seconds | None = None) -> Run:
        """Wait until the run has succeeded and return it; any other end is raised."""
        found = await self.final(run, timeout)
        run = run if found.id == check_id(run) else found.id
        if found.status is Status.FAILED:
            raise RunFailed(run, found.error)
        if found.status is Status.CANCELLED:
            raise RunCancelled(cancelled_words(found))
        if found.result_json is not None and found.result_json.startswith(MARK):
            raise reason(found.result_json, f"the result of run {run}")
        return found

    async def final(self, run: UUID | str, timeout: Seconds | None = None) -> Run:
        """Wait for any end and return the run, for a chain the last one; ResultTimeout after `timeout`."""
        limit = None if timeout is None else check_duration("timeout", timeout)
        await self._opened()
        wake_up = WakeUp()
        unlisten = self.store.listen(wake_up.ring)
        try:
            async with asyncio.timeout(limit):
                while (found := await self.present(run)).status not in FINAL:
                    await wake_up.wait(None)
        except TimeoutError:
            raise ResultTimeout(
                f"run {run} has not ended within {limit or 0:g} s; the run itself is not affected, and "
                f"`holdfast explain {run}` says what it waits for"
            ) from None
        finally:
            unlisten()
        return found
