"""Runs of older versions of a plan: which of them a worker serves, and by which handlers.

After its start only the rows of a run decide. So the handler of a task is found by the plan's name and the
task's, in whatever version of the plan this process knows it, unless it is bound to its own version. A worker
that knows only v2 of a plan stands in for v1, as the store has it published, while no live worker has v1
itself: it executes the runs whose remaining tasks it has handlers of. It never stands in for a newer version.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.arguments import is_type
from holdfast.engine.definitions import Defined, bare, matches, version
from holdfast.escaping import safe_logger
from holdfast.lifecycle import StepKind
from holdfast.records import Definition, Presence

from .plan import Handler, Plan

if TYPE_CHECKING:
    from holdfast.engine.worker import Worker

log = safe_logger("holdfast.worker")

SHARE = 10  # of this many slots one may take a run of another version that has not begun; at least one does

Claiming = Callable[[tuple[str, ...], int], Awaitable[bool]]


class Versions:
    """What a worker can execute. `lacking`: by plan, the tasks that it has no handler of.

    `workflows` are all that its app has, `own` those that match the worker's patterns.
    """

    def __init__(self, worker: Worker, workflows: Mapping[str, Defined], own: Mapping[str, Defined]) -> None:
        self._worker = worker
        self.workflows = workflows
        self._plans: dict[str, list[Plan]] = {}  # by name, the newest version first
        for one in sorted(workflows.values(), key=lambda one: -version(one.type)):
            if isinstance(one, Plan):
                self._plans.setdefault(bare(one.type), []).append(one)
        self._known: dict[str, Plan] = {}  # that stand in for versions that are not here
        self._missed: dict[str, tuple[str, ...]] = {}  # by version that it could stand in for: what it lacks
        self._stood: tuple[str, ...] = ()  # those of them that no live worker has itself
        self._left = 0  # how many runs of them it may still claim before the next look
        self._first = False  # whether they go before its own once
        self._own_lacking = {type_: tasks for type_, one in own.items() if (tasks := self._missing(one))}
        self._own = tuple(type_ for type_ in own if type_ not in self._own_lacking)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of which it can execute every run."""
        return (*self._own, *(type_ for type_ in self._stood if not self._missed[type_]))

    @property
    def claimed(self) -> tuple[str, ...]:
        """The types that it claims now."""
        return (*self._own, *self._stood) if self._left else self._own

    @property
    def lacking(self) -> dict[str, tuple[str, ...]]:
        """By plan, the tasks without a handler. A type that it stands in for is there even if it lacks none:
        this tells other workers that the version is not its own.
        """
        stood = {type_: tasks for type_, tasks in self._missed.items() if tasks or type_ in self._stood}
        return {**self._own_lacking, **stood}

    def handler(self, plan: Plan, task: str) -> Handler | None:
        """The handler of a task: of the run's own version, else of the newest that has one."""
        found = plan.handlers.get(task)
        if found is not None:
            return found
        others = (one.handlers.get(task) for one in self._plans.get(bare(plan.type), ()))
        return next((one for one in others if one is not None and not one.only_this_version), None)

    def _missing(self, known: Defined) -> tuple[str, ...]:
        """The tasks that have no handler: the worker could not bring a run of this plan to its end."""
        if not isinstance(known, Plan):
            return ()
        return tuple(name for name in known.missing if self.handler(known, name) is None)

    async def claim(self, claim: Claiming, limit: int) -> bool:
        """Claim runs by this function; whether there may be more at once.

        A worker's own runs go first. Once after each look the others do, so that they do not wait for ever
        for a worker that is never idle.
        """
        if self._first:
            self._first = False
            await self._claim_others(claim, limit)
            limit = min(limit, self._worker.free)
        if not limit or (self._own and await claim(self._own, limit)):
            return True
        return await self._claim_others(claim, min(limit, self._worker.free))

    async def _claim_others(self, claim: Claiming, limit: int) -> bool:
        limit = min(limit, self._left)
        return bool(self._stood and limit) and await claim(self._stood, limit)

    def taken(self, type_: str) -> Plan:
        """A run of a version that is not here was claimed: the plan that stands in for it."""
        self._left = max(0, self._left - 1)
        return self._known[type_]

    def begins(self) -> None:
        """Such a run is executed, not given back: another one may be claimed for it."""
        self._left = min(self._left + 1, self._most)
        self._worker.look_again()

    @property
    def _most(self) -> int:
        return max(1, self._worker.slots // SHARE)

    async def look(self) -> None:
        """Learn which other versions of the plans here are published, and whether somebody serves them."""
        if not self._plans:
            return
        plans = [self._stand_in(one) for one in await self._worker.store.definitions()]
        known = {one.type: self._missing(one) for one in plans if one is not None}
        found = {type_: tasks for type_, tasks in known.items() if not tasks or self._ends_here(type_)}
        stood = await self._unserved(tuple(found)) if found else ()
        for type_ in sorted({*stood} - {*self._stood}):
            but = f", but for {', '.join(found[type_])}" if found[type_] else ""
            log.info("runs of %s are executed by handlers of another version%s", type_, but)
        self._missed, self._stood = found, stood
        self._left, self._first = (self._most, True) if stood else (0, False)

    def _stand_in(self, published: Definition) -> Plan | None:
        """The plan of an older version that is not here, with the options of the newest one that is.

        But for `no_handler_after`, which speaks of the runs of its own version: these may have a worker yet.
        """
        plans, type_ = self._plans.get(bare(published.type)), published.type
        if published.kind != "plan" or not plans or type_ in self.workflows or not is_type(type_):
            return None
        if version(type_) > version(plans[0].type):  # old code must not decide what a newer version means
            return None
        if not matches(type_, self._worker.patterns):
            return None
        known = self._known.get(type_)
        if known is None or known.steps != published.steps:
            known = self._known[type_] = copy.copy(plans[0])
            known.type, known.steps, known.handlers, known.stands_in = type_, published.steps, {}, True
            known.no_handler_seconds = None
        return known

    def _ends_here(self, type_: str) -> bool:
        """Whether a run may come to where all that is left can be executed here."""
        plan = self._known[type_]
        last = next((one.name for one in reversed(plan.steps) if one.kind is StepKind.TASK), None)
        return last is not None and self.handler(plan, last) is not None

    async def _unserved(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """Those that have runs to claim, and that no live worker has as its own.

        The workers are read only if there is such a run: that read counts all runs.
        """
        worker = self._worker
        if (await worker.store.due(types, worker.tenants, runtime=worker.runtime)).claim_at is None:
            return ()
        live = [one for one in (await worker.store.stats()).workers if self._serves(one)]
        served = {type_ for one in live for type_ in one.types if type_ not in one.lacking}
        return tuple(type_ for type_ in types if type_ not in served)

    def _serves(self, other: Presence) -> bool:
        """Whether another worker takes every run that this one may take, as far as tenants and runtime go."""
        ours = self._worker.tenants
        covered = other.tenants is None or (ours is not None and {*ours} <= {*other.tenants})
        return covered and other.runtime == self._worker.runtime
