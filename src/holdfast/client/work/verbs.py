"""The verbs of the contract that go through the HTTP API: starts, events, reads and moves of people.

Code of a run may call them (`app.start` inside a step). The API key needs the scopes for them. A key of one
tenant acts in that tenant, whatever tenant the caller means.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from holdfast.bounds import slices
from holdfast.client.base import Pairs
from holdfast.client.client import Client
from holdfast.client.operators import Caller
from holdfast.client.starts import ENVELOPE_BYTES, STARTS_MAX, EmittedData, Start, finite, start_body
from holdfast.client.transport import Transport
from holdfast.contract import OUTLINES_MAX
from holdfast.contract.forwarding import Forwards
from holdfast.errors import HoldfastError, UsageError
from holdfast.records import (
    ANY,
    BEGINNING,
    COST_UNIT,
    OWN,
    ApprovalRequest,
    ChildCounts,
    Decided,
    Emitted,
    Found,
    Instant,
    NewEvent,
    NewRun,
    Run,
    RunFilter,
    RunOutline,
    Started,
    Stats,
    Step,
    Tenant,
    TrailEntry,
    instant,
    moment,
)
from holdfast.records.shown import outline
from holdfast.records.sizes import start_bytes
from holdfast.wire.answers import PROTOCOL

NO_CONNECTION = "connection= needs the store itself: a worker over HTTP has no transaction"


class WorkClient(Client):
    """A client that starts runs and sends events which an app has made already."""

    def __init__(self, url: str, *, key: str | None = None) -> None:
        super().__init__(url, key=key)
        self._transport.headers["holdfast-protocol"] = str(PROTOCOL)

    @property
    def transport(self) -> Transport:
        """Return the connections of this client."""
        return self._transport

    async def start_new(self, runs: Sequence[NewRun], whose: Pairs) -> list[Started | HoldfastError]:
        """Start runs of one tenant. A run without key gets one that is made of its id, so that the same call
        again starts nothing twice.
        """
        starts = [
            Start(
                body=start_body(new, new.type, f"client:{new.id}" if new.key is None else new.key),
                whose=(),
                size=start_bytes(new) + ENVELOPE_BYTES,
                workflow=None,
            )
            for new in runs
        ]
        answers: list[Started | HoldfastError] = []
        for part in slices(starts, lambda one: one.size, most=STARTS_MAX):
            answers += [
                one if isinstance(one, HoldfastError) else Started(one.id, one.created)
                for one in await self._many(part, whose)
            ]
        return answers

    async def send(self, event: NewEvent, whose: Pairs) -> Emitted:
        """Send an event."""
        body: dict[str, Any] = {"topic": event.topic, "payload": Raw(event.payload.encode()), "id": event.id}
        if event.run is not None:
            body["run"] = event.run
        if event.keep_seconds is not None:
            body["keep"] = finite("keep", event.keep_seconds)
        found = await self._ask("emit", EmittedData, query=whose, body=body)
        return Emitted(found.woken, found.duplicate)


class ClientVerbs(Forwards):
    """The verbs that `holdfast.Client` has too; a part of `RemoteStore`."""

    client: WorkClient
    who: Caller | None

    async def _forward(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        raise UsageError(
            f"{verb} needs the store itself, and this app works over HTTP: use hf.Client(URL), or the URL of "
            "the store"
        )

    def _forward_blocking(self, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        raise UsageError(f"{verb} needs the store itself, and this app works over HTTP")

    @property
    def _acts_everywhere(self) -> bool:
        return self.who is not None and self.who.is_operator

    def _of(self, tenant: Tenant) -> Client:
        """Return the client for one tenant, or for all. A key of one tenant has no choice."""
        return self.client.of(tenant) if self._acts_everywhere else self.client

    def _whose(self, tenant: str) -> Pairs:
        return [("tenant", tenant)] if self._acts_everywhere else []

    # -- starts and events ---------------------------------------------------------------------

    async def start(self, runs: Sequence[NewRun], connection: Any = None) -> list[Started | HoldfastError]:
        """Start runs, those of each tenant in one request."""
        if connection is not None:
            raise UsageError(NO_CONNECTION)
        answers: dict[int, Started | HoldfastError] = {}
        for tenant in dict.fromkeys(one.tenant for one in runs):
            places = [n for n, one in enumerate(runs) if one.tenant == tenant]
            found = await self.client.start_new([runs[n] for n in places], self._whose(tenant))
            answers.update(zip(places, found, strict=True))
        return [answers[n] for n in range(len(runs))]

    async def emit(self, event: NewEvent, connection: Any = None) -> Emitted:
        """Send an event."""
        if connection is not None:
            raise UsageError(NO_CONNECTION)
        return await self.client.send(event, self._whose(event.tenant))

    async def deliver(self, limit: int = 0) -> int:
        """Do nothing: the server delivers events."""
        return 0

    # -- reads ---------------------------------------------------------------------------------

    async def get(self, run: UUID, tenant: Tenant) -> Run | None:
        """Read a run."""
        return await self._of(tenant).get(run)

    async def list(self, where: RunFilter, limit: int = 100, after: UUID | None = None) -> builtins.list[Run]:
        """List runs."""
        return [*await self._of(ANY).list(self._bound(where), limit, after)]

    async def outlines(
        self, where: RunFilter, limit: int = OUTLINES_MAX, after: UUID | None = None
    ) -> builtins.list[RunOutline]:
        """Read a few fields of runs. The API has whole runs only."""
        return [outline(run) for run in await self.list(replace(where, values=False), limit, after)]

    async def search(self, text: str, where: RunFilter, limit: int = 100, after: UUID | None = None) -> Found:
        """Search runs."""
        return await self._of(ANY).search(text, self._bound(where), limit, after)

    def _bound(self, where: RunFilter) -> RunFilter:
        """Return the filter; with the key of one tenant only for that one."""
        if not self._acts_everywhere:
            return replace(where, tenant=OWN)
        return replace(where, tenant=ANY) if where.tenant is None else where

    async def children(
        self, runs: Sequence[UUID], tenant: Tenant, most: int = 10_000
    ) -> Sequence[ChildCounts]:
        """Count the children of runs."""
        return await self._of(tenant).children(runs, most=most)

    async def trail(
        self,
        run: UUID | None,
        tenant: Tenant,
        types: Sequence[str] = (),
        after: int = 0,
        limit: int = 1000,
        between: tuple[Instant | None, Instant | None] = (None, None),
    ) -> Sequence[TrailEntry]:
        """Read the trail."""
        since, until = (None if one is None else moment(one) for one in between)
        asked = self._of(tenant)
        return await asked.trail(run, after, limit, types=types, since=since, until=until)

    async def approvals(
        self, tenant: Tenant, limit: int = 100, after: tuple[UUID, str] | None = None
    ) -> Sequence[ApprovalRequest]:
        """List open gates."""
        asked = self._of(tenant)
        return await asked.approvals(ANY if asked.tenant is ANY else OWN, limit, after)

    async def stats(self) -> Stats:
        """Return an overview; only for operators."""
        return await self.client.stats()

    async def now(self) -> Instant:
        """Return the time of the store's clock."""
        return instant(await self.client.now())

    # -- moves of people -----------------------------------------------------------------------

    async def decide(
        self,
        run: UUID,
        step: str | None = None,
        *,
        approved: bool,
        by: str = "",
        comment: str = "",
        digest: str | None = None,
        tenant: Tenant,
    ) -> Decided:
        """Decide a gate."""
        asked = self._of(tenant)
        verb = asked.approve if approved else asked.reject
        return await verb(run, step, by=by, comment=comment, digest=digest)

    async def cancel(
        self,
        run: UUID,
        tenant: Tenant,
        by: str = "",
        *,
        children: bool = True,
        unchanged_since: Instant | None = None,
    ) -> Run:
        """Cancel a run."""
        _refuse_since(unchanged_since)
        return await self._of(tenant).cancel(run, by, children=children)

    async def pause(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        """Pause a run."""
        _refuse_since(unchanged_since)
        return await self._of(tenant).pause(run, by)

    async def resume(
        self,
        run: UUID,
        tenant: Tenant,
        by: str = "",
        *,
        budget: int | None = None,
        unchanged_since: Instant | None = None,
    ) -> Run:
        """Resume a run."""
        _refuse_since(unchanged_since)
        cost = None if budget is None else budget / COST_UNIT
        return await self._of(tenant).resume(run, by, budget=cost)

    async def rewind(
        self,
        run: UUID,
        step: str | None,
        tenant: Tenant,
        by: str = "",
        *,
        children: bool = True,
        unchanged_since: Instant | None = None,
    ) -> Run:
        """Rewind a run."""
        _refuse_since(unchanged_since)
        return await self._of(tenant).rewind(run, BEGINNING if step is None else step, by, children=children)

    async def retry_run(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        """Retry a run."""
        _refuse_since(unchanged_since)
        return await self._of(tenant).retry(run, by)

    async def set_priority(self, run: UUID, priority: int, tenant: Tenant, by: str = "") -> Run:
        """Change the priority of a run."""
        return await self._of(tenant).set_priority(run, priority, by)

    async def append_step(
        self, run: UUID, name: str, tenant: Tenant, max_attempts: int | None = None
    ) -> Step:
        """Add a task to a plan run."""
        return await self._of(tenant).append_step(run, name, max_attempts)

    async def delete(
        self, run: UUID, tenant: Tenant, by: str = "", *, unchanged_since: Instant | None = None
    ) -> Run:
        """Delete a run."""
        _refuse_since(unchanged_since)
        return await self._of(tenant).delete(run, by)

    async def restore(self, run: UUID, tenant: Tenant, by: str = "") -> Run:
        """Restore a run."""
        return await self._of(tenant).restore(run, by)


def _refuse_since(since: Instant | None) -> None:
    if since is not None:
        raise UsageError("unchanged_since needs the store itself")
