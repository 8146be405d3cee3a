"""`app.of(tenant)`: the same app for one tenant, with all verbs of a caller and none of an operator.

Each name here is the app's verb of the same name, on a client that is bound to the tenant. A run,
schedule or message of another tenant is answered exactly as a missing one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Unpack, overload

from holdfast.arguments import check_tenant
from holdfast.contract import Store
from holdfast.engine.definitions import Defined
from holdfast.engine.options import StartOptions
from holdfast.engine.plans.plan import Plan
from holdfast.engine.typed import A, Given, T, explained_by
from holdfast.errors import HoldfastError

from .bulk import BulkOperations
from .client import Client
from .handle import Handle
from .tenant_scope import not_reserved

P = ParamSpec("P")


class _Bound(Client):
    """A client of one tenant. It reads store and workflows from its app at each call."""

    def __init__(self, client: Client, tenant: str) -> None:
        self._client = client
        super().__init__(client.store, client.world)
        self.workflows, self.tenant = client.workflows, tenant
        # An app of one tenant is made for a request: it shares the start queue and the published set of its
        # app.
        self._starts = client._starts  # noqa: SLF001 - of its own class

    async def _publish(self, plans: Iterable[Plan]) -> None:
        await self._client._publish(plans)  # noqa: SLF001 - of its own class

    @property
    def store(self) -> Store:
        """The store of its app, also after the app was given another store."""
        return self._client.store

    @store.setter
    def store(self, store: Store) -> None:
        assert store is self._client.store


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

    def __init__(self, client: Client, tenant: str) -> None:
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

    @explained_by(Client.start)
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

    @explained_by(Client.start_many)
    async def start_many(self, starts: Any, *, connection: Any = None) -> list[Handle[Any] | HoldfastError]:
        return await self._client.start_many(starts, connection=connection)

    @property
    def bulk(self) -> BulkOperations:
        """Bulk operations on the runs of this tenant, as `app.bulk`."""
        return self._client.bulk

    rerun = bound(Client.rerun)
    schedule = bound(Client.schedule)
    emit = bound(Client.emit)
    cancel = bound(Client.cancel)
    pause = bound(Client.pause)
    resume = bound(Client.resume)
    rewind = bound(Client.rewind)
    retry = bound(Client.retry)
    set_priority = bound(Client.set_priority)
    append_step = bound(Client.append_step)
    delete = bound(Client.delete)
    restore = bound(Client.restore)
    approve = bound(Client.approve)
    reject = bound(Client.reject)
    approvals = bound(Client.approvals)
    get = bound(Client.get)
    known = bound(Client.known)
    present = bound(Client.present)
    list = bound(Client.list)
    children = bound(Client.children)
    steps = bound(Client.steps)
    trail = bound(Client.trail)
    explain = bound(Client.explain)
    result = bound(Client.result)
    ended = bound(Client.ended)
    final = bound(Client.final)
    outbox = bound(Client.outbox)
    resend = bound(Client.resend)
    schedules = bound(Client.schedules)
    unschedule = bound(Client.unschedule)
    pause_schedule = bound(Client.pause_schedule)
    resume_schedule = bound(Client.resume_schedule)
    fire_schedule = bound(Client.fire_schedule)
