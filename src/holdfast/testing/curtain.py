"""While the curtain is up, the apps are on the stage: no step may reach the store they have in reality.

An app that plays uses the stage's store and world until the curtain falls. Every other app of the process is
refused to whoever calls it from the stage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from typing import Any, TypeVar

from holdfast.engine.app import APPS, App
from holdfast.engine.definitions import Defined
from holdfast.engine.door import Door
from holdfast.engine.gathering import AT_ONCE
from holdfast.errors import UsageError

from .clockwork import Clockwork
from .faulty import Call, Fault, Faulty, Heard
from .virtual import process

T = TypeVar("T")


class Curtain:
    """Who plays, and what each had before."""

    def __init__(self, what: Iterable[App | Defined]) -> None:
        given = list(what)
        known = {id(one): app for app in APPS if app.origin is None for one in app.workflows.values()}
        found = [one if isinstance(one, App) else known.get(id(one)) for one in given]
        self.apps: list[App] = list(dict.fromkeys(app for app in found if app is not None))
        self._kept: list[tuple[App, dict[str, Any]]] = []

    def rise(self, works: Clockwork) -> None:
        """Put the apps on the stage."""
        for app in self.apps:
            if isinstance(vars(app).get("sync"), StageDoor):
                raise UsageError("this app is on another stage already: end that rehearsal before this one")
        vars(works.app)["sync"] = StageDoor(works.app, works)
        for app in self.apps:
            self._keep(app)
            app.store, app.world = _Lent(works.store), works.app.world
            vars(app)["sync"] = StageDoor(app, works)
        for app in APPS:
            if not isinstance(vars(app).get("sync"), StageDoor) and not isinstance(app.store, _Away):
                self._keep(app)
                vars(app)["_store"] = _Away(app.store, app.name)  # behind its codec, which it has already

    def _keep(self, app: App) -> None:
        self._kept.append((app, dict(vars(app))))

    def fall(self) -> None:
        """Give each what it had."""
        while self._kept:
            app, had = self._kept.pop()
            vars(app).pop("sync", None)
            vars(app).update({name: had[name] for name in ("_store", "world", "sync") if name in had})


class _Lent(Faulty):
    """The stage's store in the hands of a step: what is called by the dead is never sent."""

    def struck(self, verb: str, args: tuple[Any, ...]) -> tuple[Fault | None, Heard | None]:
        caller = process()
        return (_stand_still if caller is not None and caller.frozen else None), None

    async def close(self) -> None:
        """It is the stage's: that closes it."""


async def _stand_still(call: Call) -> Any:
    await asyncio.sleep(0)  # which does not come back while the process is frozen
    return await call()


class _Away:
    """The store of an app that does not play."""

    def __init__(self, store: Any, name: str) -> None:
        self._inner, self._name = store, name

    def __getattr__(self, verb: str) -> Any:
        if process() is not None:
            raise UsageError(
                f"app {self._name!r} is not on this stage, and its own store is not touched: "
                "give it to the Rehearsal too, as in Rehearsal(app, other)"
            )
        return getattr(self._inner, verb)


class StageDoor(Door):
    """`app.sync` on a stage: nothing else moves while a plain function runs, so nothing can be waited for."""

    def __init__(self, app: App, works: Clockwork) -> None:
        super().__init__(app)
        self._works = works

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], context: Context | None = None) -> T:
        """Its answer, if it can be had at once."""
        if not self._works.running:
            answer: T = self._works.do(work())
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
        """The stage ends by itself."""


_CANNOT_WAIT = (
    "app.sync cannot wait on a stage, where nothing else moves while a plain function runs: "
    "let the test look at results, or write the step async"
)


def _in_a_thread() -> bool:
    """Where there is no loop, whatever has to wait says so by a RuntimeError."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return True
    return False
