"""Calls of the library with hostile arguments: each is done, or refused with an error of Holdfast."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from holdfast import StartOptions
from holdfast.engine.app.app import App
from holdfast.errors import HoldfastError, StoreError
from holdfast.records import ANY, RunFilter

from .statements import TOPICS, TYPES, UNKNOWN_TYPES
from .values import HostileValues

SLOW_SECONDS = 15.0
LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
KEY_ID = "k00000000001"
INSTANTS = (LAST, LAST.replace(tzinfo=None), LAST.replace(tzinfo=None, year=1))
Call = Callable[[], Coroutine[Any, Any, Any]]


class Calls:
    """A stream of hostile calls, by a seed."""

    def __init__(self, app: App, seed: int) -> None:
        self.app, self.values = app, HostileValues(seed + 2)
        self.runs: list[UUID] = []

    async def next(self) -> tuple[str, str, str]:
        """Make the next call; return its kind, the name of its error or "", and its fault or ""."""
        makers: list[tuple[int, str, Call]] = [
            (8, "start", self._start),
            (3, "emit", self._emit),
            (4, "people", self._people),
            (2, "schedule", self._schedule),
            (2, "operate", self._operate),
            (2, "keys", self._keys),
            (3, "read", self._read),
        ]
        ((kind, call),) = self.values.dice.choices([one[1:] for one in makers], [one[0] for one in makers])
        began = time.monotonic()
        try:
            await call()
        except StoreError as error:
            return kind, type(error).__name__, f"{type(error).__name__}: {error}"[:300]
        except HoldfastError as error:
            return kind, type(error).__name__, ""
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            return kind, type(error).__name__, f"{type(error).__name__}: {error}"[:300]
        took = time.monotonic() - began
        return kind, "", "" if took < SLOW_SECONDS else f"took {took:.1f} s"

    def _run(self) -> Any:
        return self.values.one(self.runs) if self.runs and self.values.chance(0.95) else self.values.any()

    def _options(self) -> dict[str, Any]:
        s = self.values
        makers: dict[str, Callable[[], Any]] = {
            "key": s.name,
            "priority": s.number,
            "timeout": s.number,
            "max_attempts": s.number,
            "ttl": s.number,
            "budget": s.number,
            "limit_key": s.name,
            "tenant": s.name,
            "delay": s.number,
            "parent": self._run,
            "labels": lambda: s.one([{s.text(): s.text()}, {s.text(): s.any()}, s.any()]),
            "run_at": lambda: s.one([*INSTANTS, s.number()]),
        }
        return {name: maker() for name, maker in makers.items() if s.chance(0.1)}

    async def _start(self) -> None:
        s = self.values
        type_ = s.one(TYPES) if s.chance(0.9) else s.one([*UNKNOWN_TYPES, s.text()])
        answers = await self.app.start_many([(type_, s.value(), cast("StartOptions", self._options()))])
        for answer in answers:
            if isinstance(answer, HoldfastError):
                raise answer
            self.runs = [*self.runs[-100:], answer.id]

    async def _emit(self) -> None:
        s = self.values
        topic = s.one([*TOPICS, s.text(), s.any()])
        await self.app.emit(
            topic, s.value(), id=s.one([None, s.name()]), keep=s.one([None, None, s.number()])
        )

    async def _people(self) -> None:
        s, run = self.values, self._run()
        verbs: list[Call] = [
            lambda: self.app.cancel(run, by=s.text()),
            lambda: self.app.pause(run, by=s.text()),
            lambda: self.app.resume(run, by=s.text()),
            lambda: self.app.resume(run, by=s.text(), budget=s.number()),
            lambda: self.app.rerun(run, s.value(), key=s.one([None, s.name(), s.any()])),
            lambda: self.app.rewind(run, s.text(), by=s.text()),
            lambda: self.app.retry(run, by=s.text()),
            lambda: self.app.delete(run, by=s.text()),
            lambda: self.app.restore(run, by=s.text()),
            lambda: self.app.append_step(run, s.text(), s.number()),
            lambda: self.app.bulk.pause(RunFilter(key=s.text()), rate=s.number(), by=s.text()),
            lambda: self.app.set_priority(run, s.number(), by=s.text()),
            lambda: self.app.approve(run, s.one([None, "GATE", s.text()]), by=s.text(), comment=s.text()),
        ]
        await s.one(verbs)()

    async def _schedule(self) -> None:
        s = self.values
        cron = s.one(["* * * * *", "59/59 */23 * feb MON#5", s.text(), "0 0 31 2 *", "*/0 * * * *", s.any()])
        how = s.one([{"cron": cron}, {"every": s.number()}, {"cron": cron, "zone": s.text()}, {}])
        await self.app.schedule(s.name(), "hostile.echo.v1", s.value(), **how)

    async def _operate(self) -> None:
        s = self.values
        name = f"hostile.{s.name()}"
        verbs: list[Call] = [
            lambda: self.app.register(name, runtime=s.one([None, s.text()]), description=s.text()),
            lambda: self.app.limit(key=name, concurrency=s.number()),
            lambda: self.app.limit(key=name, rate=(s.number(), s.number())),
            lambda: self.app.limit(tenant=name, weight=s.number()),
            lambda: self.app.pause_key(name, s.one([timedelta(seconds=1), s.number()])),
        ]
        await s.one(verbs)()

    async def _keys(self) -> None:
        s = self.values
        id_ = s.one([KEY_ID, s.text(), s.any()])
        options = {
            "patterns": lambda: s.one([["hostile.%"], [s.text()], s.any()]),
            "expires_at": lambda: s.one([*INSTANTS, s.number()]),
            "rate": s.number,
            "open_runs_max": s.number,
            "tenant": s.name,
            "by": s.text,
        }
        more = {name: make() for name, make in options.items() if s.chance(0.2)}
        scopes = s.one([["work"], ["runs.read", "admin"], [s.text()], s.any()])
        verbs: list[Call] = [
            lambda: self.app.create_key(s.one([s.name(), s.any()]), scopes=scopes, **more),
            lambda: self.app.rotate_key(id_, overlap=s.number(), by=s.text()),
            lambda: self.app.revoke_key(id_, by=s.text()),
            lambda: self.app.keys(ANY, s.number(), s.one([None, s.text()])),
            lambda: self.app.audit(ANY, s.number(), s.number(), actions=[s.text()], keys=[s.text()]),
            lambda: self.app.audit(since=s.one(INSTANTS)),
        ]
        await s.one(verbs)()

    async def _read(self) -> None:
        s, run = self.values, self._run()
        verbs: list[Call] = [
            lambda: self.app.get(run),
            lambda: self.app.steps(run),
            lambda: self.app.trail(run),
            lambda: self.app.explain(run),
            lambda: self.app.trail(after=s.number(), limit=s.one([1, 100])),
            lambda: self.app.list(RunFilter(type=s.text(), tenant=ANY), s.one([1, 100])),
            lambda: self.app.list(RunFilter(tenant=ANY), 100),
            lambda: self.app.list(RunFilter(tenant=ANY, labels={s.text(): s.text()}, error=s.text()), 100),
            lambda: self.app.store.outlines(RunFilter(type=s.text(), tenant=ANY), s.one([1, 100]), run),
            lambda: self.app.search(s.text(), RunFilter(tenant=ANY), s.one([1, 100])),
            lambda: self.app.search(s.text()[:200] or "x", RunFilter(tenant=ANY, type=s.text()), after=run),
            lambda: self.app.children([run], most=s.one([1, 0, 10_000])),
            lambda: self.app.approvals(tenant=ANY),
        ]
        await s.one(verbs)()
