"""`app.sync`: one thin blocking door over the same verbs, for code that has no event loop.

Each name here is the async verb of the same name, run on a loop in a background thread. It works from
scripts, from many threads at once, from a notebook whose own loop is running, inside plain steps and
workflows, and anew in a forked child.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast
from uuid import UUID

from holdfast.errors import HoldfastError, UsageError
from holdfast.records import Emitted, Schedule
from holdfast.threads import Background

from .app import App
from .client import Client
from .definitions import Defined
from .handle import Handle
from .tenants import TenantApp
from .worker import Worker, hosts_worker

P = ParamSpec("P")
T = TypeVar("T")


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The method of the same name that blocks until there is an answer."""

    @wraps(method)
    def called(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._call(lambda behind: method(behind, *args, **kwargs))  # type: ignore[no-any-return]

    return called


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """The answer of a verb in the caller's own transaction: on his thread, with nothing to wait for."""
    try:
        call.send(None)
    except StopIteration as answer:
        return cast("T", answer.value)
    call.close()
    raise UsageError("this connection is to be awaited: use the app itself, not app.sync")


async def _begun(worker: Worker) -> asyncio.AbstractEventLoop:
    await worker.__aenter__()
    return asyncio.get_running_loop()


class PlainHandle(Generic[T]):
    """A run that was started: its id, and whether this call created it. What would be awaited blocks."""

    def __init__(self, door: Door, handle: Handle[T]) -> None:
        self._door, self._handle = door, handle
        self.id: UUID = handle.id
        self.created: bool = handle.created

    def __repr__(self) -> str:
        """Short, for logs."""
        return repr(self._handle)

    def _call(self, verb: Callable[[Handle[T]], Coroutine[Any, Any, Any]]) -> Any:
        return self._door.call(lambda: verb(self._handle))

    result = blocking(Handle.result)
    get = blocking(Handle.get)
    cancel = blocking(Handle.cancel)
    approve = blocking(Handle.approve)
    reject = blocking(Handle.reject)


class Blocking:
    """The blocking verbs of a caller: those of an app, or of one tenant's."""

    _door: Door
    _client: Client

    @wraps(App.start)
    def start(self, workflow: Defined | str, params: Any = None, **options: Any) -> PlainHandle[Any]:
        connection = options.get("connection")
        return PlainHandle(
            self._door, self._told(lambda app: app.start(workflow, params, **options), connection)
        )

    @wraps(App.start_many)
    def start_many(self, *args: Any, **kwargs: Any) -> list[PlainHandle[Any] | HoldfastError]:
        answers = self._told(lambda app: app.start_many(*args, **kwargs), kwargs.get("connection"))
        return [PlainHandle(self._door, one) if isinstance(one, Handle) else one for one in answers]

    @wraps(App.emit)
    def emit(self, *args: Any, **kwargs: Any) -> Emitted:
        return self._told(lambda app: app.emit(*args, **kwargs), kwargs.get("connection"))

    @wraps(App.schedule)
    def schedule(self, *args: Any, **kwargs: Any) -> Schedule:
        return self._call(lambda app: app.schedule(*args, **kwargs))

    @wraps(App.fire_schedule)
    def fire_schedule(self, *args: Any, **kwargs: Any) -> PlainHandle[Any]:
        return PlainHandle(self._door, self._call(lambda app: app.fire_schedule(*args, **kwargs)))

    def _call(self, verb: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return self._door.call(lambda: verb(self._client))

    def _told(self, verb: Callable[[Client], Coroutine[Any, Any, T]], connection: Any) -> T:
        return self._call(verb) if connection is None else at_once(verb(self._client))

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
    get = blocking(App.get)
    known = blocking(App.known)
    present = blocking(App.present)
    list = blocking(App.list)
    steps = blocking(App.steps)
    trail = blocking(App.trail)
    explain = blocking(App.explain)
    result = blocking(App.result)
    ended = blocking(App.ended)
    final = blocking(App.final)
    outbox = blocking(App.outbox)
    resend = blocking(App.resend)


class Door(Blocking):
    """The verbs of an app, blocking. `with app.sync:` closes it at the end of the block."""

    def __init__(self, app: App) -> None:
        self._door, self._client = self, app
        self._app, self._background = app, Background("holdfast-sync")
        self._workers: dict[Worker, asyncio.AbstractEventLoop] = {}  # and the loop that each is on

    def __enter__(self) -> Self:
        """Nothing begins before the first call."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `close`."""
        self.close()

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], context: Context | None = None) -> T:
        """Run any coroutine of your own behind the door: `app.sync.call(lambda: report(app))`."""
        if hosts_worker():
            raise UsageError(
                "app.sync is called on the event loop of a worker, which would stand still meanwhile: "
                "await the app itself, or call it in a plain step"
            )
        return self._background.call(work, context)

    purge = blocking(App.purge)
    limit = blocking(App.limit)
    unlimit = blocking(App.unlimit)
    limits = blocking(App.limits)
    pause_key = blocking(App.pause_key)
    resume_key = blocking(App.resume_key)
    register = blocking(App.register)
    unregister = blocking(App.unregister)
    registry = blocking(App.registry)
    doctor = blocking(App.doctor)
    publish = blocking(App.publish)
    webhook = blocking(App.webhook)
    webhooks = blocking(App.webhooks)
    remove_webhook = blocking(App.remove_webhook)

    def of(self, tenant: str) -> SyncTenantApp:
        """The same verbs for one tenant, as `app.of`."""
        return SyncTenantApp(self, self._app.of(tenant))

    @contextmanager
    def worker(self, **options: Any) -> Iterator[Worker]:
        """A worker behind the door while the block runs, for notebooks and tests: `app.worker`'s options."""
        # In a context of its own: begun inside a step, it would take all runs for a part of that step.
        worker, context = self._app.worker(**options), Context()
        self._workers[worker] = self.call(lambda: _begun(worker), context)
        try:
            yield worker
        finally:
            self._stop(worker)

    def _stop(self, worker: Worker) -> None:
        """Unless it has gone with its loop: the door was closed meanwhile, or this is a forked child."""
        loop = self._workers.pop(worker, None)
        if loop is not None and loop is self._background.loop:
            self.call(worker.stop, Context())

    def close(self) -> None:
        """Stop its workers, let go of the store and end the loop. The next call opens both anew."""
        for worker in list(self._workers):
            self._stop(worker)
        self.call(self._app.close)
        self._background.close()


class SyncTenantApp(Blocking):
    """The verbs of an app for one tenant, blocking; `app.sync` is closed, and this with it."""

    def __init__(self, door: Door, app: TenantApp) -> None:
        self.tenant = app.tenant
        self._door, self._client = door, app._client  # noqa: SLF001 - its own verbs, blocking

    def __repr__(self) -> str:
        """Short, for logs."""
        return f"<sync app of tenant {self.tenant!r}>"
