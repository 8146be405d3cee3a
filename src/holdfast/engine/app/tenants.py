"""`app.of(tenant)`: the same app for one tenant, with all verbs of a caller and none of an operator.

Each name here is the app's verb of the same name, on a client that is bound to the tenant. A run,
schedule or message of another tenant is answered exactly as a missing one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Unpack, overload
from uuid import UUID

from holdfast.arguments import check_tenant
from holdfast.contract import Store
from holdfast.engine.definitions import Defined
from holdfast.engine.options import StartOptions
from holdfast.engine.plans.plan import Plan
from holdfast.engine.typed import A, Given, T, explained_by
from holdfast.errors import HoldfastError
from holdfast.records import ANY, OWN, OwnTenant, Tenant, TrailEntry

from .bulk import BulkOperations
from .client import StartedBy, StoreClient
from .handle import Handle
from .tenant_scope import not_reserved

P = ParamSpec("P")


class _Bound(StoreClient):
    """A client of one caller. It reads store and workflows from its app at each call."""

    def __init__(self, client: StoreClient, tenant: Tenant, started_by: StartedBy | None = None) -> None:
        # A client is made for each request over HTTP, so it makes nothing of its own: it shares the start
        # queue and the published set of its app.
        self._client, self.world, self.workflows = client, client.world, client.workflows
        self.tenant, self.started_by = tenant, started_by
        self._starts = client._starts  # noqa: SLF001 - of its own class

    async def _publish(self, plans: Iterable[Plan]) -> None:
        await self._client._publish(plans)  # noqa: SLF001 - of its own class

    @property
    def store(self) -> Store:  # type: ignore[override] # nothing gives another store to it
        """The store of its app, also after the app was given another store."""
        return self._client.store


def bound_client(client: StoreClient, tenant: Tenant, started_by: StartedBy | None = None) -> StoreClient:
    """Return the verbs of one tenant, or of all (ANY). started_by: the caller, for trail and limits."""
    return _Bound(client, tenant if tenant is ANY else not_reserved(check_tenant(tenant)), started_by)


def bound(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Make the method that calls the bound client's method of the same name."""

    @wraps(method)
    async def called(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await method(self._client, *args, **kwargs)

    return called


class TenantApp:
    """The verbs and reads of an app for one tenant. The handles that it returns are bound too."""

    def __init__(self, client: StoreClient, tenant: str) -> None:
        self.tenant = not_reserved(check_tenant(tenant))
        self._client = _Bound(client, self.tenant)

    def __repr__(self) -> str:
        """Return a short text for logs."""
        return f"<app of tenant {self.tenant!r}>"

    @overload
    async def start(
        self, workflow: Defined[None, T], params: None = None, **options: Unpack[StartOptions]
    ) -> Handle[T]: ...

    @overload
    async def start(
        self, workflow: Defined[A, T], params: Given[A], **options: Unpack[StartOptions]
    ) -> Handle[T]: ...

    @overload
    async def start(
        self, workflow: str, params: Any = None, **options: Unpack[StartOptions]
    ) -> Handle[Any]: ...

    @explained_by(StoreClient.start)
    async def start(self, workflow: Any, params: Any = None, **options: Any) -> Handle[Any]:
        return await self._client.start(workflow, params, **options)

    @overload
    async def start_many(
        self,
        starts: Sequence[tuple[Defined[A, T], A] | tuple[Defined[A, T], A, StartOptions]],
        *,
        connection: Any = None,
    ) -> list[Handle[T] | HoldfastError]: ...

    @overload
    async def start_many(
        self,
        starts: Sequence[tuple[Defined | str, Any] | tuple[Defined | str, Any, StartOptions]],
        *,
        connection: Any = None,
    ) -> list[Handle[Any] | HoldfastError]: ...

    @explained_by(StoreClient.start_many)
    async def start_many(self, starts: Any, *, connection: Any = None) -> list[Handle[Any] | HoldfastError]:
        return await self._client.start_many(starts, connection=connection)

    @property
    def bulk(self) -> BulkOperations:
        """Bulk operations on the runs of this tenant, as `app.bulk`."""
        return self._client.bulk

    @explained_by(StoreClient.follow)
    async def follow(
        self, run: UUID | str | None = None, after: int = 0, *, tenant: Tenant | OwnTenant = OWN
    ) -> AsyncGenerator[TrailEntry, None]:
        async for entry in self._client.follow(run, after, tenant=tenant):
            yield entry

    rerun = bound(StoreClient.rerun)
    schedule = bound(StoreClient.schedule)
    emit = bound(StoreClient.emit)
    cancel = bound(StoreClient.cancel)
    pause = bound(StoreClient.pause)
    resume = bound(StoreClient.resume)
    rewind = bound(StoreClient.rewind)
    retry = bound(StoreClient.retry)
    set_priority = bound(StoreClient.set_priority)
    append_step = bound(StoreClient.append_step)
    delete = bound(StoreClient.delete)
    restore = bound(StoreClient.restore)
    approve = bound(StoreClient.approve)
    reject = bound(StoreClient.reject)
    approvals = bound(StoreClient.approvals)
    counts = bound(StoreClient.counts)
    rates = bound(StoreClient.rates)
    scale = bound(StoreClient.scale)
    get = bound(StoreClient.get)
    known = bound(StoreClient.known)
    present = bound(StoreClient.present)
    list = bound(StoreClient.list)
    search = bound(StoreClient.search)
    children = bound(StoreClient.children)
    steps = bound(StoreClient.steps)
    trail = bound(StoreClient.trail)
    explain = bound(StoreClient.explain)
    result = bound(StoreClient.result)
    ended = bound(StoreClient.ended)
    final = bound(StoreClient.final)
    outbox = bound(StoreClient.outbox)
    resend = bound(StoreClient.resend)
    schedules = bound(StoreClient.schedules)
    unschedule = bound(StoreClient.unschedule)
    pause_schedule = bound(StoreClient.pause_schedule)
    resume_schedule = bound(StoreClient.resume_schedule)
    fire_schedule = bound(StoreClient.fire_schedule)
    create_key = bound(StoreClient.create_key)
    keys = bound(StoreClient.keys)
    rotate_key = bound(StoreClient.rotate_key)
    revoke_key = bound(StoreClient.revoke_key)
    audit = bound(StoreClient.audit)
