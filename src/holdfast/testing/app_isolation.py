"""Isolation of apps during a rehearsal: no step can reach the real store of an app.

A rehearsed app uses the store and the world of the simulation until the rehearsal ends. Steps and workflows
of the rehearsal get an error when they call any other app of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from typing import Any, TypeVar

from holdfast.engine.app.app import APPS, App
from holdfast.engine.app.start_queue import AT_ONCE
from holdfast.engine.app.sync import SyncApp
from holdfast.engine.definitions import Defined
from holdfast.errors import UsageError

from .faulty import Call, Fault, Faulty, OnAnswer
from .simulation import Simulation
from .virtual import process

T = TypeVar("T")


class AppIsolation:
    """The rehearsed apps, and the store, world and sync API that each had before."""

    def __init__(self, what: Iterable[App | Defined]) -> None:
        given = list(what)
        known = {id(one): app for app in APPS if app.origin is None for one in app.workflows.values()}
        found = [one if isinstance(one, App) else known.get(id(one)) for one in given]
        self.apps: list[App] = list(dict.fromkeys(app for app in found if app is not None))
        self._kept: list[tuple[App, dict[str, Any]]] = []

    def isolate(self, simulation: Simulation) -> None:
        """Give the rehearsed apps the simulation's store, and refuse calls of the other apps."""
        for app in self.apps:
            if isinstance(vars(app).get("sync"), SimulatedSyncApp):
                raise UsageError("this app is in another rehearsal already: end that one first")
        vars(simulation.app)["sync"] = SimulatedSyncApp(simulation.app, simulation)
        for app in self.apps:
            self._keep(app)
            app.store, app.world = _SimulatedStore(simulation.store), simulation.app.world
            vars(app)["sync"] = SimulatedSyncApp(app, simulation)
        for app in APPS:
            if not isinstance(vars(app).get("sync"), SimulatedSyncApp) and not isinstance(
                app.store, _RefusedStore
            ):
                self._keep(app)
                # Not by `app.store = …`, which would put it behind the app's codec a second time.
                vars(app)["_store"] = _RefusedStore(app.store, app.name)

    def _keep(self, app: App) -> None:
        self._kept.append((app, dict(vars(app))))

    def restore(self) -> None:
        """Give each app back its store, world and sync API."""
        while self._kept:
            app, had = self._kept.pop()
            vars(app).pop("sync", None)
            vars(app).update({name: had[name] for name in ("_store", "world", "sync") if name in had})


class _SimulatedStore(Faulty):
    """The simulation's store for calls by steps: a call of a crashed process is never sent."""

    def fault_for(self, verb: str, args: tuple[Any, ...]) -> tuple[Fault | None, OnAnswer | None]:
        caller = process()
        return (_stand_still if caller is not None and caller.frozen else None), None

    async def close(self) -> None:
        """Do nothing: the simulation closes its store."""


async def _stand_still(call: Call) -> Any:
    await asyncio.sleep(0)  # does not return while the process is frozen
    return await call()


class _RefusedStore:
    """The store of an app that is not rehearsed."""

    def __init__(self, store: Any, name: str) -> None:
        self._inner, self._name = store, name

    def __getattr__(self, verb: str) -> Any:
        if process() is not None:
            raise UsageError(
                f"app {self._name!r} is not part of this rehearsal, and its own store is not touched: "
                "give it to the Rehearsal too, as in Rehearsal(app, other)"
            )
        return getattr(self._inner, verb)


class SimulatedSyncApp(SyncApp):
    """`app.sync` in a rehearsal: nothing else runs beside a sync function, so it cannot wait for anything."""

    def __init__(self, app: App, simulation: Simulation) -> None:
        super().__init__(app)
        self._simulation = simulation

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], context: Context | None = None) -> T:
        """Return the answer of a call that needs no time; UsageError when it has to wait."""
        if not self._simulation.running:
            answer: T = self._simulation.do(work())
            return answer
        call, token = work(), AT_ONCE.set(True)
        try:
            call.send(None)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
        except RuntimeError as error:
            if not _in_a_thread():
                raise
            raise UsageError(_CANNOT_WAIT) from error
        finally:
            AT_ONCE.reset(token)
        call.close()
        raise UsageError(_CANNOT_WAIT)

    def close(self) -> None:
        """Do nothing: the rehearsal ends by itself."""


_CANNOT_WAIT = (
    "app.sync cannot wait in a rehearsal, where nothing else runs beside a sync function: "
    "let the test look at results, or write the step async"
)


def _in_a_thread() -> bool:
    """Return True when no loop runs here: then a call that has to wait raises RuntimeError."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False
