"""The verbs that read runs: get, list, search, steps, trail, explain, and waiting for a result."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.arguments import (
    BIG_MAX,
    Seconds,
    check_duration,
    check_id,
    check_limit,
    check_list,
    check_sought,
    check_text,
    check_whole,
)
from holdfast.clipped import clipped
from holdfast.codec import MARK, untyped
from holdfast.contract import CHILDREN_COUNTED
from holdfast.engine.explain.explanation import Explanation
from holdfast.errors import ResultTimeout, RunCancelled, RunFailed, UnknownRun, UsageError
from holdfast.lifecycle import FINAL, Status
from holdfast.records import (
    OWN,
    ChildCounts,
    Found,
    Json,
    OwnTenant,
    Run,
    RunFilter,
    Step,
    Tenant,
    TrailEntry,
)
from holdfast.sealing.envelope import reason
from holdfast.searching import check_searched
from holdfast.shown.records import error_of, step_of, trail_entry_of
from holdfast.shown.shapes import (
    ChildCountsData,
    ExplanationData,
    ListedRunData,
    ResultData,
    RunValuesData,
    StepData,
    TrailEntryData,
)

from .base import PAGE_MAX, Base, Pairs, flag, times
from .records import (
    child_counts_of,
    explanation_of,
    result_text_of,
    run_of,
)
from .streams import followed

WAIT_SECONDS = 60.0  # the longest wait of one request for a result
PARENTS_MAX = 90  # runs in one question about children
LARGEST = 2**31 - 1


class RunPage(msgspec.Struct, frozen=True):
    """One page of runs."""

    items: tuple[ListedRunData, ...]
    after: UUID | None = None
    looked_at: int | UnsetType = UNSET


class RunChildren(ChildCountsData, frozen=True, kw_only=True, omit_defaults=True):
    """The children of one run."""

    run: UUID


class Children(msgspec.Struct, frozen=True):
    """The children of some runs."""

    items: tuple[RunChildren, ...]


class StepPage(msgspec.Struct, frozen=True):
    """One page of steps."""

    items: tuple[StepData, ...]


class TrailPage(msgspec.Struct, frozen=True):
    """One page of a trail."""

    items: tuple[TrailEntryData, ...]


class ReadVerbs(Base):
    """The verbs that read runs; a part of `Client`."""

    async def get(self, run: UUID | str) -> Run | None:
        """Return the run, or None when it is unknown."""
        try:
            return await self.known(run)
        except UnknownRun:
            return None

    async def known(self, run: UUID | str) -> Run:
        """Return the run; raise UnknownRun when there is none."""
        path = {"run": check_id(run)}
        return run_of(await self._ask("get", RunValuesData, path=path, query=self._of_run()))

    async def present(self, run: UUID | str) -> Run:
        """Return the newest run of this run's chain: the run itself when it never called `continue_as`."""
        found = await self.known(run)
        while found.present != found.id:
            before, found = found, await self.known(found.present)
            if found.present == before.present != found.id:  # the chain is being deleted
                raise UnknownRun(run)
        return found

    async def list(
        self, where: RunFilter | None = None, limit: int = 100, after: UUID | None = None
    ) -> Sequence[Run]:
        """Return runs, newest first; `after` is the last id of the page before.

        A page may hold fewer than `limit` runs, at most 500: only an empty page is the end.
        """
        query = self._filter("list", where)
        if not (rows := check_limit(limit)):
            return []
        return [run_of(one) for one in (await self._page(query, rows, after)).items]

    async def search(
        self, text: str, where: RunFilter | None = None, limit: int = 100, after: UUID | None = None
    ) -> Found:
        """Return runs, newest first, that hold `text` in their params, result, labels, key or error message,
        as `App.search` does. Go on with `after=found.after` until that is None.
        """
        query = [("contains", check_searched(text)), *self._filter("search", where)]
        page = await self._page(query, check_limit(limit, 1), after)
        looked_at = 0 if page.looked_at is UNSET else page.looked_at
        return Found(runs=tuple(map(run_of, page.items)), after=page.after, looked_at=looked_at)

    async def _page(self, query: Pairs, rows: int, after: UUID | None) -> RunPage:
        query = [*query, ("limit", str(min(rows, PAGE_MAX)))]
        if after is not None:
            query.append(("after", str(check_id(after))))
        return await self._ask("list", RunPage, query=query)

    def _filter(self, verb: str, where: RunFilter | None) -> Pairs:
        """Return a filter as a query."""
        if where is not None and not isinstance(where, RunFilter):
            raise UsageError(
                f"{verb}({clipped(where)}): give a filter, as in RunFilter(statuses=(Status.FAILED,))"
            )
        where = where or RunFilter()
        texts = {"type": where.type, "key": where.key, "waiting_on": where.waiting_on}
        check_sought(**texts)
        sought = {**texts, "parent": None if where.parent is None else str(check_id(where.parent))}
        switches = {"roots": where.roots, "deleted": where.deleted, "values": where.values}
        return [
            *self._whose(where.tenant),
            *[("status", one) for one in check_list("statuses", where.statuses)],
            *[(name, value) for name, value in sought.items() if value is not None],
            *[(name, flag(value)) for name, value in switches.items() if value],
            *[("label", _label(name, value)) for name, value in (where.labels or {}).items()],
            *[("error", one) for one in errors_of(where)],
            *times(**times_of(where)),
        ]

    async def children(
        self, runs: Sequence[UUID | str], *, most: int = CHILDREN_COUNTED
    ) -> Sequence[ChildCounts]:
        """Return the children of these runs, counted by status: at most `most` of each run.

        Runs without children, and runs that are unknown, are left out.
        """
        ids = [str(check_id(run)) for run in check_list("runs", runs)]
        counted = str(check_whole("most", most, 1, CHILDREN_COUNTED))
        found: list[ChildCounts] = []
        for n in range(0, len(ids), PARENTS_MAX):
            query = [*self._of_run(), ("most", counted), *[("run", id_) for id_ in ids[n : n + PARENTS_MAX]]]
            page = await self._ask("children_of_many", Children, query=query)
            found += [child_counts_of(one.run, one) for one in page.items]
        return found

    async def steps(
        self, run: UUID | str, *, largest: int | None = None, after: int | None = None
    ) -> Sequence[Step]:
        """Return all steps in the order of their outcomes; values of more than `largest` bytes are left
        out. after: one page only, the steps behind this seq (-1: the first page); an empty page is the end.
        """
        size = LARGEST if largest is None else check_whole("largest", largest)
        if after is not None:
            return await self._steps(run, size, check_whole("after", after, -1, BIG_MAX))
        found: list[Step] = []
        while page := await self._steps(run, size, found[-1].seq if found else -1):
            found += page
        return found

    async def _steps(self, run: UUID | str, largest: int, after: int) -> Sequence[Step]:
        query = [("largest", str(largest)), ("limit", str(PAGE_MAX)), ("after", str(after)), *self._of_run()]
        page = await self._ask("steps", StepPage, path={"run": check_id(run)}, query=query)
        return [step_of(one) for one in page.items]

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

        In pages of at most 500, as `list`: `after` is the last seq of the page before.
        """
        query = [
            *self._whose(tenant, unsaid=True),
            *[("type", check_text("type", one)) for one in check_list("types", types)],
            ("after", str(check_whole("after", after, 0, BIG_MAX))),
            *times(since=since, until=until),
        ]
        if not (rows := check_limit(limit)):
            return []
        query.append(("limit", str(min(rows, PAGE_MAX))))
        if run is None:
            page = await self._ask("trail_of_all", TrailPage, query=query)
            return [trail_entry_of(one) for one in page.items]
        try:
            page = await self._ask("trail", TrailPage, path={"run": check_id(run)}, query=query)
        except UnknownRun:
            return []
        return [trail_entry_of(one) for one in page.items]

    async def follow(
        self, run: UUID | str | None = None, after: int = 0, *, tenant: Tenant | OwnTenant = OWN
    ) -> AsyncGenerator[TrailEntry, None]:
        """Yield the trail as it grows: of one run, then of the present run of its chain, until that ends; or
        of all runs for ever.

        It comes as a stream. When the connection breaks, it goes on behind the last entry: nothing is missed
        and nothing comes twice. UnknownRun; Unavailable, when the server stays away for the client's timeout.
        """
        id_ = None if run is None else check_id(run)
        after, query = check_whole("after", after, 0, BIG_MAX), self._whose(tenant, unsaid=True)
        while True:
            present: UUID | None = None
            async with aclosing(followed(self._transport, id_, after, query)) as stream:
                async for one in stream:
                    if isinstance(one, TrailEntry):
                        yield one
                    else:
                        present = one.present
            if present is None or id_ is None:
                raise UnknownRun(id_ or "")
            if present == id_:
                return
            id_, after = present, 0

    async def explain(self, run: UUID | str) -> Explanation:
        """Say why a run does not move, in words and as data; for a chain, its newest run."""
        path = {"run": check_id(run)}
        return explanation_of(await self._ask("explain", ExplanationData, path=path, query=self._of_run()))

    async def result(self, run: UUID | str, timeout: Seconds | None = None) -> Any:
        """Wait for the end of the run, or of its chain, and return its result. Raises RunFailed,
        RunCancelled, ResultTimeout."""
        id_, text = await self._result_text(run, timeout)
        return untyped.decode(text, f"the result of run {id_}")

    async def _result_text(self, run: UUID | str, timeout: Seconds | None = None) -> tuple[UUID, Json]:
        """Wait until the run has succeeded; return its id, for a chain that of the last one, and its result
        as JSON. Any other end is raised.
        """
        found = await self._until_final(run, timeout)
        run = run if found.id == check_id(run) else found.id
        if found.status is Status.FAILED:
            raise RunFailed(run, error_of(found.error))
        if found.status is Status.CANCELLED:
            raise RunCancelled(f"run {run} was cancelled")
        text = result_text_of(found)
        if text.startswith(MARK):
            raise reason(text, f"the result of run {run}")
        return found.id, text

    async def ended(self, run: UUID | str, timeout: Seconds | None = None) -> Run:
        """Wait until the run has succeeded and return it; any other end is raised.

        The API key needs the scope `runs.read` too, as for `final`; `result` needs `payloads.read` only.
        """
        id_, _ = await self._result_text(run, timeout)
        return await self.known(id_)

    async def final(self, run: UUID | str, timeout: Seconds | None = None) -> Run:
        """Wait for any end and return the run, for a chain the last one; ResultTimeout after `timeout`.

        Each request waits for up to 60 s, and is repeated; the last one reads the run. The API key needs the
        scopes `payloads.read` and `runs.read`.
        """
        return await self.known((await self._until_final(run, timeout)).id)

    async def _until_final(self, run: UUID | str, timeout: Seconds | None) -> ResultData:
        limit = None if timeout is None else check_duration("timeout", timeout)
        id_, began = check_id(run), self.world.monotonic()
        while True:
            left = WAIT_SECONDS if limit is None else began + limit - self.world.monotonic()
            found = await self._waited(id_, max(0.0, min(left, WAIT_SECONDS)))
            if found.status in FINAL:
                return found
            if left <= 0:
                raise ResultTimeout(
                    f"run {run} has not ended within {limit or 0:g} s; the run itself is not affected, and "
                    f"`holdfast explain {run}` says what it waits for"
                )

    async def _waited(self, run: UUID, wait: float) -> ResultData:
        query = [("wait", f"{wait:.3f}"), *self._of_run()]
        return await self._ask("result", ResultData, path={"run": run}, query=query, wait=wait)


def errors_of(where: RunFilter) -> Sequence[str]:
    """Return the fingerprints of a filter."""
    error = where.error
    if error is None:
        return ()
    return [
        check_text("error", one)
        for one in ([error] if isinstance(error, str) else check_list("error", error))
    ]


def times_of(where: RunFilter) -> dict[str, datetime | None]:
    """Return the times of a filter, by name."""
    names = ("created", "finished", "updated")
    return {
        f"{name}_{side}": getattr(where, f"{name}_{side}") for name in names for side in ("since", "until")
    }


def _label(name: Any, value: Any) -> str:
    if not isinstance(name, str) or "=" in name:
        raise UsageError(f"label {clipped(name)}: over HTTP a filter takes no label with = in its name")
    return name if value is None else f"{name}={check_text('label', value)}"
