"""`app.sync`: the same verbs as blocking calls, for code without an event loop.

Each name here is the async verb of the same name, run on a loop in a background thread. It works in
scripts, in many threads at once, in a notebook whose own loop is running, inside sync steps and
workflows, and in a forked child.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, Unpack, cast, overload
from uuid import UUID

from holdfast.durations import Seconds
from holdfast.engine.definitions import Defined
from holdfast.engine.options import StartOptions, WorkerOptions
from holdfast.engine.typed import A, Given, R_co, T, explained_by
from holdfast.engine.worker.hosting import hosts_worker
from holdfast.engine.worker.worker import Worker
from holdfast.errors import HoldfastError, UsageError
from holdfast.records import OWN, Emitted, OwnTenant, Tenant, TrailEntry
from holdfast.threads import BackgroundLoop

from .app import App
from .bulk import BulkOperations
from .handle import Handle
from .tenants import TenantApp

P = ParamSpec("P")


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Make the blocking method for an async method of the same name."""
    name = method.__name__

    @wraps(method)
    def called(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By name: an app and a client of the HTTP API have the same verbs.
        return self._call(lambda behind: getattr(behind, name)(*args, **kwargs))  # type: ignore[no-any-return]

    return called


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """Run a verb in the caller's own transaction: on the caller's thread, where nothing may wait."""
    try:
        call.send(None)
    except StopIteration as answer:
        return cast("T", answer.value)
    call.close()
    raise UsageError("this connection is async: use the app itself, not app.sync")


async def _begun(worker: Worker) -> asyncio.AbstractEventLoop:
    await worker.__aenter__()
    return asyncio.get_running_loop()


class SyncBase:
    """A loop in a background thread, on which blocking calls are made."""

    def __init__(self, name: str, background: BackgroundLoop | None = None) -> None:
        self._name = name
        self._background = background or BackgroundLoop("holdfast-sync")

    def __enter__(self) -> Self:
        """Do nothing: the loop starts with the first call."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, as `close` does."""
        self.close()

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], context: Context | None = None) -> T:
        """Run a coroutine of your own on the background loop: `app.sync.call(lambda: report(app))`."""
        if hosts_worker():
            raise UsageError(
                f"{self._name} is called on the event loop of a worker, and would block it: "
                f"await the {self._name.partition('.')[0]} itself, or call {self._name} in a sync step"
            )
        return self._background.call(work, context)

    def close(self) -> None:
        """Close, and end the loop."""
        self._background.close()


class SyncHandle(Generic[R_co]):
    """A started run, as `Handle`: its id and type, and whether this call created it. Its methods block."""

    def __init__(self, sync_app: SyncBase, handle: Handle[R_co]) -> None:
        self._sync_app, self._handle = sync_app, handle
        self.id: UUID = handle.id
        self.type: str = handle.type
        self.created: bool = handle.created

    def __repr__(self) -> str:
        """Return a short text for logs."""
        return repr(self._handle)

    @explained_by(Handle.result)
    def result(self, timeout: Seconds | None = None) -> R_co:
        return self._sync_app.call(lambda: self._handle.result(timeout))

    def _call(self, verb: Callable[[Handle[Any]], Coroutine[Any, Any, Any]]) -> Any:
        return self._sync_app.call(lambda: verb(self._handle))

    get = blocking(Handle.get)
    cancel = blocking(Handle.cancel)
    approve = blocking(Handle.approve)
    reject = blocking(Handle.reject)


def _handled(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Handle[T]]],
) -> Callable[Concatenate[Any, P], SyncHandle[T]]:
    """Make the blocking method for an async method that returns a handle."""
    name = method.__name__

    @wraps(method)
    def called(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[T]:
        return SyncHandle(self._sync_app, self._call(lambda behind: getattr(behind, name)(*args, **kwargs)))

    return called


class SyncBulkOperations:
    """Bulk operations, as `BulkOperations`. Its methods block."""

    def __init__(self, sync_app: SyncBase, bulk: Any) -> None:
        self._sync_app, self._bulk = sync_app, bulk

    def _call(self, verb: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        return self._sync_app.call(lambda: verb(self._bulk))

    preview = blocking(BulkOperations.preview)
    cancel = _handled(BulkOperations.cancel)
    pause = _handled(BulkOperations.pause)
    resume = _handled(BulkOperations.resume)
    retry = _handled(BulkOperations.retry)
    rewind = _handled(BulkOperations.rewind)
    delete = _handled(BulkOperations.delete)


class SyncVerbs:
    """The blocking verbs that `SyncApp`, `SyncTenantApp` and `SyncClient` share."""

    _sync_app: SyncBase
    _client: Any  # with the verbs of `StoreClient`

    @property
    def bulk(self) -> SyncBulkOperations:
        """Verbs on every run that a filter matches, as `app.bulk`."""
        return SyncBulkOperations(self._sync_app, self._client.bulk)

    @overload
    def start(
        self, workflow: Defined[None, T], params: None = None, **options: Unpack[StartOptions]
    ) -> SyncHandle[T]: ...

    @overload
    def start(
        self, workflow: Defined[A, T], params: Given[A], **options: Unpack[StartOptions]
    ) -> SyncHandle[T]: ...

    @overload
    def start(
        self, workflow: str, params: Any = None, **options: Unpack[StartOptions]
    ) -> SyncHandle[Any]: ...

    @explained_by(App.start)
    def start(self, workflow: Any, params: Any = None, **options: Any) -> SyncHandle[Any]:
        connection = options.get("connection")
        return SyncHandle(
            self._sync_app, self._call_with(lambda app: app.start(workflow, params, **options), connection)
        )

    @overload
    def start_many(
        self,
        starts: Sequence[tuple[Defined[A, T], A] | tuple[Defined[A, T], A, StartOptions]],
        *,
        connection: Any = None,
    ) -> list[SyncHandle[T] | HoldfastError]: ...

    @overload
    def start_many(
        self,
        starts: Sequence[tuple[Defined | str, Any] | tuple[Defined | str, Any, StartOptions]],
        *,
        connection: Any = None,
    ) -> list[SyncHandle[Any] | HoldfastError]: ...

    @explained_by(App.start_many)
    def start_many(self, starts: Any, *, connection: Any = None) -> list[SyncHandle[Any] | HoldfastError]:
        answers = self._call_with(lambda app: app.start_many(starts, connection=connection), connection)
        return [SyncHandle(self._sync_app, one) if isinstance(one, Handle) else one for one in answers]

    @explained_by(App.emit)
    def emit(
        self,
        topic: str,
        payload: Any = None,
        id: str | None = None,
        run: UUID | str | None = None,
        tenant: str | OwnTenant = OWN,
        keep: Seconds | None = None,
        *,
        connection: Any = None,
    ) -> Emitted:
        return self._call_with(  # type: ignore[no-any-return]
            lambda app: app.emit(topic, payload, id, run, tenant, keep, connection=connection), connection
        )

    @explained_by(App.rerun)
    def rerun(self, *args: Any, **kwargs: Any) -> SyncHandle[Any]:
        return SyncHandle(self._sync_app, self._call(lambda app: app.rerun(*args, **kwargs)))

    @explained_by(App.fire_schedule)
    def fire_schedule(self, name: str, tenant: str | OwnTenant = OWN) -> SyncHandle[Any]:
        return SyncHandle(self._sync_app, self._call(lambda app: app.fire_schedule(name, tenant)))

    def follow(
        self, run: UUID | str | None = None, after: int = 0, *, tenant: Tenant | OwnTenant = OWN
    ) -> Iterator[TrailEntry]:
        """Yield the trail as it grows, as `App.follow` does; each entry is waited for."""
        entries: AsyncGenerator[TrailEntry, None] = self._client.follow(run, after, tenant=tenant)
        try:
            while (entry := self._sync_app.call(lambda: _next(entries))) is not None:
                yield entry
        finally:
            self._sync_app.call(entries.aclose)

    def _call(self, verb: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        return self._sync_app.call(lambda: verb(self._client))

    def _call_with(self, verb: Callable[[Any], Coroutine[Any, Any, T]], connection: Any) -> T:
        return self._call(verb) if connection is None else at_once(verb(self._client))

    schedule = blocking(App.schedule)
    cancel = blocking(App.cancel)
    approve = blocking(App.approve)
    reject = blocking(App.reject)
    approvals = blocking(App.approvals)
    pause = blocking(App.pause)
    resume = blocking(App.resume)
    rewind = blocking(App.rewind)
    retry = blocking(App.retry)
    set_priority = blocking(App.set_priority)
    append_step = blocking(App.append_step)
    delete = blocking(App.delete)
    restore = blocking(App.restore)
    schedules = blocking(App.schedules)
    unschedule = blocking(App.unschedule)
    pause_schedule = blocking(App.pause_schedule)
    resume_schedule = blocking(App.resume_schedule)
    counts = blocking(App.counts)
    rates = blocking(App.rates)
    scale = blocking(App.scale)
    get = blocking(App.get)
    known = blocking(App.known)
    present = blocking(App.present)
    list = blocking(App.list)
    search = blocking(App.search)
    children = blocking(App.children)
    steps = blocking(App.steps)
    trail = blocking(App.trail)
    explain = blocking(App.explain)
    result = blocking(App.result)
    ended = blocking(App.ended)
    final = blocking(App.final)
    outbox = blocking(App.outbox)
    resend = blocking(App.resend)
    create_key = blocking(App.create_key)
    keys = blocking(App.keys)
    rotate_key = blocking(App.rotate_key)
    revoke_key = blocking(App.revoke_key)
    audit = blocking(App.audit)


class SyncOperatorVerbs(SyncVerbs):
    """The blocking verbs on the whole store that `SyncApp` and `SyncClient` share."""

    now = blocking(App.now)
    stats = blocking(App.stats)
    workers = blocking(App.workers)
    backlog = blocking(App.backlog)
    limit = blocking(App.limit)
    unlimit = blocking(App.unlimit)
    limits = blocking(App.limits)
    pause_key = blocking(App.pause_key)
    resume_key = blocking(App.resume_key)
    register = blocking(App.register)
    unregister = blocking(App.unregister)
    definitions = blocking(App.definitions)
    registry = blocking(App.registry)
    doctor = blocking(App.doctor)
    export = blocking(App.export)
    import_ = blocking(App.import_)
    confirm_export = blocking(App.confirm_export)
    release_import = blocking(App.release_import)
    undo_export = blocking(App.undo_export)
    move = blocking(App.move)
    preview_move = blocking(App.preview_move)
    undo_move = blocking(App.undo_move)
    unserved = blocking(App.unserved)
    rotate_signing_key = blocking(App.rotate_signing_key)
    webhook = blocking(App.webhook)
    webhooks = blocking(App.webhooks)
    remove_webhook = blocking(App.remove_webhook)


async def _next(entries: AsyncGenerator[TrailEntry, None]) -> TrailEntry | None:
    return await anext(entries, None)


class SyncApp(SyncOperatorVerbs, SyncBase):
    """The blocking verbs of an app. `with app.sync:` closes it at the end of the block."""

    def __init__(self, app: App) -> None:
        super().__init__("app.sync")
        self._sync_app, self._client, self._app = self, app, app
        self._workers: dict[Worker, asyncio.AbstractEventLoop] = {}  # and the event loop of each

    purge = blocking(App.purge)
    recount = blocking(App.recount)
    publish = blocking(App.publish)

    def of(self, tenant: str) -> SyncTenantApp:
        """Return the same verbs for one tenant, as `app.of`."""
        return SyncTenantApp(self, self._app.of(tenant))

    @contextmanager
    def worker(self, **options: Unpack[WorkerOptions]) -> Iterator[Worker]:
        """Run a worker on the background loop while the block runs, for notebooks and tests. Options:
        `app.worker`.
        """
        # In a context of its own: a worker that begins inside a step would take all its runs for parts of
        # that step.
        worker, context = self._app.worker(**options), Context()
        self._workers[worker] = self.call(lambda: _begun(worker), context)
        try:
            yield worker
        finally:
            self._stop(worker)

    def _stop(self, worker: Worker) -> None:
        """Stop the worker, unless its loop is gone: `close` was called meanwhile, or this is a forked
        child.
        """
        loop = self._workers.pop(worker, None)
        if loop is not None and loop is self._background.loop:
            self.call(worker.stop, Context())

    def close(self) -> None:
        """Stop the workers, close the store and end the loop. The next call opens both again."""
        for worker in list(self._workers):
            self._stop(worker)
        self.call(self._app.close)
        self._background.close()


class SyncTenantApp(SyncVerbs):
    """The blocking verbs of an app for one tenant. Closing `app.sync` closes this too."""

    def __init__(self, sync_app: SyncApp, app: TenantApp) -> None:
        self.tenant = app.tenant
        self._sync_app, self._client = sync_app, app._client  # noqa: SLF001 - its own verbs, blocking

    def __repr__(self) -> str:
        """Return a short text for logs."""
        return f"<sync app of tenant {self.tenant!r}>"
