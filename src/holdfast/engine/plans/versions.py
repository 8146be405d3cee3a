"""Runs of other versions of a plan: which of them a worker serves, and by which handlers.

After its start only the rows of a run decide. So the handler of a task is found by the plan's name and the
task's, in whatever version of the plan this process knows it, unless it is bound to its own version. A worker
that knows only v2 of a plan serves v1 too, as the store has it published: all of its runs when it has a
handler of each task; else those whose remaining tasks it can execute, while no live worker has all handlers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from holdfast.engine.definitions import Defined, bare, matches, version
from holdfast.escaping import safe_logger
from holdfast.lifecycle import StepKind
from holdfast.records import Definition

from .plan import Handler, Plan

if TYPE_CHECKING:
    from holdfast.engine.worker import Worker

log = safe_logger("holdfast.worker")


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
        self._whole: tuple[str, ...] = ()  # those of which it has all handlers
        self._partial: dict[str, tuple[str, ...]] = {}  # those of which it has some: the others
        self._nobodys: tuple[str, ...] = ()  # those of which no live worker has all
        self._own_lacking = {type_: tasks for type_, one in own.items() if (tasks := self._missing(one))}
        self._own = tuple(type_ for type_ in own if type_ not in self._own_lacking)

    @property
    def types(self) -> tuple[str, ...]:
        """The types of which it can execute every run."""
        return (*self._own, *self._whole)

    @property
    def claimed(self) -> tuple[str, ...]:
        """The types that it claims."""
        return (*self._own, *self._whole, *self._nobodys)

    @property
    def lacking(self) -> dict[str, tuple[str, ...]]:
        return {**self._own_lacking, **self._partial}

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

    def standing_in(self, type_: str) -> Plan:
        """The plan that stands in for a version that is not here."""
        return self._known[type_]

    async def look(self) -> None:
        """Learn which other versions of the plans here are published, and whether somebody serves them."""
        if not self._plans:
            return
        plans = [self._stand_in(one) for one in await self._worker.store.definitions()]
        found = {one.type: self._missing(one) for one in plans if one is not None}
        whole = tuple(type_ for type_, tasks in found.items() if not tasks)
        partial = {type_: tasks for type_, tasks in found.items() if tasks and self._ends_here(type_)}
        for type_ in sorted({*whole, *partial} - {*self._whole, *self._partial}):
            but = f", but for {', '.join(found[type_])}" if type_ in partial else ""
            log.info("runs of %s are executed by handlers of another version%s", type_, but)
        self._nobodys = await self._unserved(partial) if partial else ()
        self._whole, self._partial = whole, partial

    def _stand_in(self, published: Definition) -> Plan | None:
        """The plan of a version that is not here, with the options of the newest one that is.

        But for `no_handler_after`, which speaks of the runs of its own version: these may have a worker yet.
        """
        plans, type_ = self._plans.get(bare(published.type)), published.type
        if published.kind != "plan" or not plans or type_ in self.workflows:
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

    async def _unserved(self, types: Iterable[str]) -> tuple[str, ...]:
        """Those of which no live worker can execute every run: none is kept from it by being given back."""
        served = {type_ for one in (await self._worker.store.stats()).workers for type_ in one.types}
        return tuple(type_ for type_ in types if type_ not in served)
