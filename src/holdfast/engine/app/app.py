"""The app: it defines workflows, starts runs, and can run a worker."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, overload
from weakref import WeakSet

from holdfast.arguments import (
    Seconds,
    check_kept,
    check_list,
    check_name,
    check_positive,
    check_whole,
)
from holdfast.backoff import Backoff
from holdfast.bounds import RUN_BYTES
from holdfast.clipped import clipped
from holdfast.contract import TTL_SECONDS
from holdfast.engine.definitions import REFRESH_SECONDS, STEPS_MAX, Defined, Workflow, check_reserved
from holdfast.engine.hooks import Hooks, check_names, register
from holdfast.engine.measured import measured, unmeasured
from holdfast.engine.measures import Measures
from holdfast.engine.options import PlanOptions, WorkerOptions
from holdfast.engine.outbox.sinks import SINK_SECONDS, Sinks, sink_of
from holdfast.engine.plans.elements import Element
from holdfast.engine.plans.plan import MAX_WAITS, Plan
from holdfast.engine.step_failures import Raises
from holdfast.engine.typed import A, WorkflowDecorator
from holdfast.engine.worker.stopping import RUN_STORE, run, work_until_stopped
from holdfast.engine.worker.worker import Worker
from holdfast.errors import UsageError
from holdfast.escaping import safe_logger
from holdfast.sealing import CodecHook, Sealed
from holdfast.world import THREADS, RealWorld, World

from .client import StoreClient

if TYPE_CHECKING:
    from holdfast.contract import Store

    from .sync import SyncApp
    from .tenants import TenantApp

log = safe_logger("holdfast.worker")

D = TypeVar("D", bound=Defined)
H = TypeVar("H", bound=Callable[..., Any])

APPS: WeakSet[App] = WeakSet()  # every app of this process: a test keeps each of them away from its own store


class App(StoreClient):
    """Workflows, and a store for their runs: `sqlite:///holdfast.db`, or the URL in HOLDFAST_STORE.

    With the URL of a server (https://…) the app works over HTTP, with the API key in HOLDFAST_KEY: workers
    need no access to the database. `ctx.transaction` and functions as sinks are not possible then.

    Sync functions (`def`) run in threads: at most `threads` for workflows, and as many for steps. Finished
    runs are kept for `ttl`, unless they were started with a ttl of their own.
    """

    _measures: Measures | None

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        name: str = "app",
        world: World | None = None,
        threads: int = THREADS,
        codec: CodecHook | Sequence[CodecHook] | None = None,
        ttl: Seconds = TTL_SECONDS,
    ) -> None:
        from holdfast.stores import DEFAULT_URL

        if store is None:
            store = os.environ.get("HOLDFAST_STORE") or DEFAULT_URL
        if not isinstance(store, str) and not hasattr(store, "traits"):
            raise UsageError(
                f"store is {clipped(store)}: give a URL, as in 'sqlite:///holdfast.db', or a Store"
            )
        threads = check_whole("threads", threads, 1)
        name, ttl_seconds = check_name("name", name), check_kept("ttl", ttl)
        world = world or RealWorld(threads)
        self._codec, self._measures = codec, None
        super().__init__(store_of(store, world) if isinstance(store, str) else store, world)
        self.name, self.ttl_seconds = name, ttl_seconds
        self.hooks: Hooks = {}
        self.sinks: Sinks = {}
        self.origin: App | None = None  # the app that owns these workflows, if it is another one
        APPS.add(self)

    def at(self, store: str | Store) -> App:
        """Return the same app on another store: it shares workflows, hooks, sinks, threads and codec, not
        runs.
        """
        other = App(store, name=self.name, world=self.world, codec=self._codec, ttl=self.ttl_seconds)
        other.workflows, other.hooks, other.sinks = self.workflows, self.hooks, self.sinks
        other.origin = self.origin or self
        if self._measures is not None:
            other.measures = self._measures
        return other

    @property
    def store(self) -> Store:
        """The store of the app's runs. A store that is assigned here is put behind the codec too: otherwise
        values would be written unencrypted.

        In steps, hooks and sinks of a run that `app.at(other).run()` or `app.run(stores=…)` executes, it is
        the store of that run.
        """
        found = RUN_STORE.get()
        return self._store if found is None or found[0] is not self else found[1]

    @store.setter
    def store(self, store: Store) -> None:
        store = unmeasured(store)
        if self._codec is not None and store.traits.served:
            raise UsageError(
                "this app works over HTTP, where the server encrypts values: give codec= to the app of the "
                "server, and not to this one"
            )
        if self._codec is not None and not isinstance(store, Sealed):
            store = Sealed(store, self._codec)
        measures = self._measures
        self._store = store if measures is None else measured(store, measures, self.world.monotonic)

    @property
    def measures(self) -> Measures | None:
        """The measures of this app's workers and store calls; `holdfast.telemetry.measure` sets them. Workers
        that were made before are not measured."""
        return self._measures

    @measures.setter
    def measures(self, measures: Measures) -> None:
        self._measures = measures
        self.store = self._store

    def workflow(
        self,
        type_: str,
        *,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        steps_max: int = STEPS_MAX,
        bytes_max: int = RUN_BYTES,
        checkpoint: Literal["step", "segment"] = "step",
        refresh: Seconds = REFRESH_SECONDS,
        budget: float | None = None,
        budget_covers_children: bool = False,
        raises: Raises = (),
    ) -> WorkflowDecorator:
        """Define a function as a workflow: `@app.workflow("shop.order.v1")`.

        checkpoint: "step" commits each result before the next step begins; "segment" keeps results until the
        run ends, parks, pauses or fails, and asks the store for a pause or cancel every `refresh`.
        budget: the cost at which a run pauses, unless it was started with another.
        budget_covers_children: the cost of its child runs, and theirs, counts against its budget too.
        steps_max, bytes_max: how many steps a run may record, and how many bytes of values; then it fails
        with kind `history`. An endless loop continues with `ctx.continue_as`.
        raises: classes of exceptions that failed steps raise as themselves, not as StepFailed.
        """
        if callable(type_):
            raise UsageError('a workflow needs a type: write @app.workflow("shop.order.v1")')

        def named(function: Callable[..., Any]) -> Workflow:
            return self._define(
                Workflow(
                    type_,
                    function,
                    retry,
                    timeout,
                    steps_max,
                    checkpoint,
                    refresh,
                    budget,
                    bytes_max,
                    raises,
                    budget_covers_children=budget_covers_children,
                )
            )

        return cast("WorkflowDecorator", named)

    @overload
    def plan(
        self, type_: str, steps: Sequence[Element], *, params: type[A], **options: Unpack[PlanOptions]
    ) -> Plan[A]: ...

    @overload
    def plan(
        self, type_: str, steps: Sequence[Element], *, params: Any = Any, **options: Unpack[PlanOptions]
    ) -> Plan[Any]: ...

    def plan(
        self,
        type_: str,
        steps: Sequence[Element],
        *,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        budget: float | None = None,
        budget_covers_children: bool = False,
        params: Any = Any,
        max_waits: int = MAX_WAITS,
        no_handler_after: Seconds | None = None,
        description: str = "",
    ) -> Plan[Any]:
        """Define a fixed list of steps as a workflow: `app.plan("shop.fulfil.v1", [hf.Task("SHIP")])`.

        params: the type of a run's params. max_waits: how often one task may wait.
        no_handler_after: a run whose current step no worker knows fails after this time.
        """
        made: Plan[Any] = Plan(
            type_,
            steps,
            retry=retry,
            timeout=timeout,
            budget=budget,
            budget_covers_children=budget_covers_children,
            params=params,
            max_waits=max_waits,
            no_handler_after=no_handler_after,
            description=description,
        )
        return self._define(made)

    def _define(self, made: D) -> D:
        check_reserved(None, made.type)
        if made.type in self.workflows:
            raise UsageError(
                f"workflow {made.type} is defined twice in this app: raise the version of one of them"
            )
        self.workflows[made.type] = made
        return made

    def on(self, *names: str) -> Callable[[H], H]:
        """Call a function when something happens to a run of this worker: `@app.on("run.failed")`.

        The function gets a `Notice` after the commit, beside the run. It is called at most once; a crash may
        lose the call.
        """
        checked = check_names(names)

        def hooked(function: H) -> H:
            register(self.hooks, checked, function)
            return function

        return hooked

    def sink(self, name: str, *, timeout: Seconds = SINK_SECONDS) -> Callable[[H], H]:
        """Make a function the receiver of messages to `name`: `@app.sink("mail")`. It gets a `Delivery`.

        The function is async, or sync in a thread. When it raises or takes longer than `timeout`, the
        delivery is retried for three days; `Fatal` is not retried. Workers of this app deliver to it. It may
        get a message twice.
        """
        if callable(name):
            raise UsageError('a sink needs a name: write @app.sink("mail")')

        name = check_name("sink", name)
        timeout_seconds = check_positive(f"sink {name!r}: timeout", timeout)

        def named(function: H) -> H:
            if name in self.sinks:
                raise UsageError(f"sink {name!r} is defined twice in this app: give one another name")
            self.sinks[name] = sink_of(name, function, timeout_seconds)
            return function

        return named

    async def publish(self) -> None:
        """Write this app's workflows to the store, so that other programs can start them by name."""
        await self._opened()
        await self.store.publish([one.definition() for one in self.workflows.values()])

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """Return a worker for this app's workflows; use it as `async with app.worker(slots=100):`."""
        if "opentelemetry.metrics" in sys.modules:
            from holdfast.telemetry.otel import measure_if_configured

            measure_if_configured(self)
        mine: dict[str, Any] = {"name": self.name, "ttl": self.ttl_seconds, "sinks": self.sinks}
        made = Worker(self._store, self.world, self.workflows, self.hooks, **{**mine, **options})
        if self.origin is not None:
            made.run_store = self.origin, self._store
        return made

    async def work(
        self, *, stores: Sequence[str | Store] | None = None, **options: Unpack[WorkerOptions]
    ) -> None:
        """Run a worker until SIGTERM or SIGINT; a second signal stops it at once.

        stores: work on these stores instead of the app's own, with one worker and its slots for each. A store
        that cannot be reached is retried while the others are served.
        """
        await work_until_stopped(self._workers(stores, options))

    def run(self, *, stores: Sequence[str | Store] | None = None, **options: Unpack[WorkerOptions]) -> None:
        """Run a worker, blocking. Takes the options of `worker`, and `stores` as `work` does."""
        with ExitStack() as last:
            run(work_until_stopped(self._workers(stores, options), last=last), loop_factory())

    def _workers(self, stores: Sequence[str | Store] | None, options: WorkerOptions) -> list[Worker]:
        if stores is None:
            return [self.worker(**options)]
        listed = check_list("stores", stores)
        if not listed:
            raise UsageError(f"stores is {clipped(stores)}: give a list of at least one store")
        from holdfast.stores import place, shown
        from holdfast.transfer.places import shown_place

        apps = [self.at(one) for one in listed]
        names = [shown(one) if isinstance(one, str) else shown_place(one) for one in listed]
        places = [place(one.store) for one in apps]
        for name, one in zip(names, places, strict=True):
            if places.count(one) > 1:
                raise UsageError(f"stores has {name} twice: give each store once")
        workers = [one.worker(**options) for one in apps]
        if len(workers) > 1:
            for worker, name in zip(workers, names, strict=True):
                log.info("worker %s will work at %s", worker.id, name)
        return workers

    def of(self, tenant: str) -> TenantApp:
        """Return the same app for one tenant: it sees and changes only that tenant's runs."""
        from .tenants import TenantApp

        return TenantApp(self, tenant)

    @cached_property
    def sync(self) -> SyncApp:
        """The same verbs, blocking, for code without an event loop: `app.sync.start(order).result()`."""
        from .sync import SyncApp

        return SyncApp(self)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()


def store_of(url: str, world: World) -> Store:
    """Return the store that a URL names. With https:// it is a server: workers reach it with the API key in
    HOLDFAST_KEY.
    """
    from holdfast.stores import make_store

    if not is_server(url):
        return make_store(url)
    from holdfast.client.work.store import RemoteStore

    return cast("Store", RemoteStore(url, world=world))


def is_server(url: str) -> bool:
    """Return True for the URL of a server."""
    return url.lower().startswith(("http://", "https://"))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop factory when uvloop is installed, else None. No global policy is set."""
    if sys.platform == "win32":
        raise UsageError("Holdfast runs on Linux and macOS; on Windows use WSL")
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
