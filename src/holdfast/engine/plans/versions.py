"""Runs of older versions of a plan: which of them a worker serves, and with which handlers.

After its start only the rows of a run decide. So the handler of a task is found by the plan's name and the
task's name, in any version of the plan that this process knows, unless the handler is bound to its own
version. A worker that knows only v2 of a plan stands in for v1, as v1 is published in the store, while no
live worker has v1 itself: it executes the runs for whose remaining tasks it has handlers. It never stands in
for a newer version.
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
    from holdfast.engine.worker.worker import Worker

log = safe_logger("holdfast.worker")

SHARE = 10  # one slot in this many, but at least one, may hold a run of another version that has not begun

BUILT_IN_SHARE = 4  # one slot in this many, but at least one, may hold a run of the engine itself

Claiming = Callable[[tuple[str, ...], int], Awaitable[bool]]


class Versions:
    """The workflows that a worker can execute. `lacking`: by plan, the tasks without a handler here.

    `workflows` are all workflows of its app, `own` those that match the worker's patterns, `built_in` types
    of the engine itself, which every worker claims.
    """

    def __init__(
        self,
        worker: Worker,
        workflows: Mapping[str, Defined],
        own: Mapping[str, Defined],
        built_in: tuple[str, ...] = (),
    ) -> None:
        self._worker = worker
        self.workflows = workflows
        self._plans: dict[str, list[Plan]] = {}  # by name, the newest version first
        for one in sorted(workflows.values(), key=lambda one: -version(one.type)):
            if isinstance(one, Plan):
                self._plans.setdefault(bare(one.type), []).append(one)
        self._stand_ins: dict[str, Plan] = {}  # plans that stand in for versions that are not defined here
        # By type that it could stand in for: tasks without a handler.
        self._lacking: dict[str, tuple[str, ...]] = {}
        self._served: tuple[str, ...] = ()  # types that it stands in for now: no live worker has them itself
        self._claims_left = 0  # runs of these types that it may still claim before the next look
        self._others_first = False  # the next claim asks for these types before its own
        self._own_lacking = {type_: tasks for type_, one in own.items() if (tasks := self._missing(one))}
        self._own = tuple(type_ for type_ in own if type_ not in self._own_lacking)
        self.built_in = built_in
        self._always = (*self._own, *built_in)  # the types that it claims at any time

    @property
    def types(self) -> tuple[str, ...]:
        """The types whose every run it can execute."""
        return (*self._own, *(type_ for type_ in self._served if not self._lacking[type_]))

    @property
    def claimed(self) -> tuple[str, ...]:
        """The types that it claims now."""
        always = self._always if self._built_in_left > 0 else self._own
        return (*always, *self._served) if self._claims_left else always

    @property
    def _built_in_left(self) -> int:
        """How many more runs of the engine itself it may hold."""
        slots, held = self._worker.slots, self._worker.leases.held.values()
        most = max(1, slots // BUILT_IN_SHARE) if self._own else slots
        return most - sum(one.claim.type in self.built_in for one in held)

    @property
    def stands_in(self) -> bool:
        """True when it found runs of other versions at the last look, which it serves."""
        return bool(self._served)

    @property
    def lacking(self) -> dict[str, tuple[str, ...]]:
        """By plan, the tasks without a handler. A type that it stands in for is listed even with no such
        task:
        this tells other workers that the version is not defined here.
        """
        served = {type_: tasks for type_, tasks in self._lacking.items() if tasks or type_ in self._served}
        return {**self._own_lacking, **served}

    def handler(self, plan: Plan, task: str) -> Handler | None:
        """Return the handler of a task: from the run's own version, else from the newest version that has
        one.
        """
        found = plan.handlers.get(task)
        if found is not None:
            return found
        others = (one.handlers.get(task) for one in self._plans.get(bare(plan.type), ()))
        return next((one for one in others if one is not None and not one.only_this_version), None)

    def _missing(self, known: Defined) -> tuple[str, ...]:
        """Return the tasks without a handler: the worker could not finish a run of this plan."""
        if not isinstance(known, Plan):
            return ()
        return tuple(name for name in known.missing if self.handler(known, name) is None)

    async def claim(self, claim: Claiming, limit: int) -> bool:
        """Claim runs with this function; return True when more may be claimed at once.

        A worker's own types come first. Once after each look the other versions come first, so that their
        runs do not wait for ever for a worker that is never idle. Runs of the engine itself get a share of
        the slots only: they come first in the queue, and many of them must not hold up the others.
        """
        if self._others_first:
            self._others_first = False
            await self._claim_others(claim, limit)
            limit = min(limit, self._worker.free)
        if not limit or (self._always and await self._claim_own(claim, limit)):
            return True
        return await self._claim_others(claim, min(limit, self._worker.free))

    async def _claim_own(self, claim: Claiming, limit: int) -> bool:
        """Claim runs of the types that are always claimed; of the engine's own not more than their share."""
        left = self._built_in_left if self._own and self.built_in else limit
        if left > 0:
            if not await claim(self._always, min(left, limit)):
                return False
            limit = min(limit - left, self._worker.free)
        return limit <= 0 or await claim(self._own, limit)

    async def _claim_others(self, claim: Claiming, limit: int) -> bool:
        limit = min(limit, self._claims_left)
        return bool(self._served and limit) and await claim(self._served, limit)

    def taken(self, type_: str) -> Plan:
        """Count a claimed run of a version that is not defined here, and return the plan that stands in."""
        self._claims_left = max(0, self._claims_left - 1)
        return self._stand_ins[type_]

    def begins(self) -> None:
        """Allow one more claim: such a run is executed here, not given back."""
        self._claims_left = min(self._claims_left + 1, self._most)
        self._worker.look_again()

    @property
    def _most(self) -> int:
        return max(1, self._worker.slots // SHARE)

    async def look(self) -> None:
        """Read which other versions of the plans here are published, and which of them no live worker
        serves.
        """
        if not self._plans:
            return
        plans = [self._stand_in(one) for one in await self._worker.store.definitions()]
        known = {one.type: self._missing(one) for one in plans if one is not None}
        found = {type_: tasks for type_, tasks in known.items() if not tasks or self._ends_here(type_)}
        served = await self._unserved(tuple(found)) if found else ()
        for type_ in sorted({*served} - {*self._served}):
            but = f", but for {', '.join(found[type_])}" if found[type_] else ""
            log.info("runs of %s are executed by handlers of another version%s", type_, but)
        self._lacking, self._served = found, served
        self._claims_left, self._others_first = (self._most, True) if served else (0, False)
        if served:
            self._worker.look_again()  # they have runs to claim now

    def _stand_in(self, published: Definition) -> Plan | None:
        """Return the plan for an older version that is not defined here, with the options of the newest
        version.

        `no_handler_after` is left out: it concerns runs of its own version. The older runs may still get a
        worker.
        """
        plans, type_ = self._plans.get(bare(published.type)), published.type
        if published.kind != "plan" or not plans or type_ in self.workflows or not is_type(type_):
            return None
        if version(type_) > version(plans[0].type):  # older code must not execute a newer version
            return None
        if not matches(type_, self._worker.patterns):
            return None
        known = self._stand_ins.get(type_)
        if known is None or known.steps != published.steps:
            known = self._stand_ins[type_] = copy.copy(plans[0])
            known.type, known.steps, known.handlers, known.stands_in = type_, published.steps, {}, True
            known.no_handler_seconds = None
        return known

    def _ends_here(self, type_: str) -> bool:
        """Return True when at least the last task can be executed here: a run may get so far."""
        plan = self._stand_ins[type_]
        last = next((one.name for one in reversed(plan.steps) if one.kind is StepKind.TASK), None)
        return last is not None and self.handler(plan, last) is not None

    async def _unserved(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """Return the types, if one of them has a run to claim, that no live worker has as its own.

        The workers are read only if there is such a run, because that read counts far more than it needs.
        """
        worker = self._worker
        if (await worker.store.due(types, worker.tenants, runtime=worker.runtime)).claim_at is None:
            return ()
        live = [one for one in (await worker.store.stats()).workers if self._serves(one)]
        served = {type_ for one in live for type_ in one.types if type_ not in one.lacking}
        return tuple(type_ for type_ in types if type_ not in served)

    def _serves(self, other: Presence) -> bool:
        """Return True when another worker has the same runtime and at least the tenants of this worker."""
        ours = self._worker.tenants
        covered = other.tenants is None or (ours is not None and {*ours} <= {*other.tenants})
        return covered and other.runtime == self._worker.runtime
