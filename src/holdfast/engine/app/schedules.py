"""The verbs of schedules: set, list, pause, fire by hand, remove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec

from holdfast.arguments import Seconds, check_by, check_name, check_sought, exact_text, is_type
from holdfast.clipped import clipped
from holdfast.cron import micros_of_jitter, rhythm
from holdfast.engine.definitions import Defined
from holdfast.engine.options import RunOptions
from holdfast.engine.plans.plan import Plan
from holdfast.engine.schedules.firing import firing_by_hand, rhythm_of
from holdfast.engine.schedules.versions import published_types, resolved
from holdfast.errors import Conflict, UnknownSchedule, UnknownWorkflow, UsageError
from holdfast.records import (
    OWN,
    CatchUp,
    Fire,
    Instant,
    NewRun,
    NewSchedule,
    Overlap,
    OwnTenant,
    Schedule,
    Tenant,
)

from .new_run import new_run
from .tenant_scope import one_tenant, tenant_of

if TYPE_CHECKING:
    from holdfast.contract import Store
    from holdfast.world import World

E = TypeVar("E", bound=StrEnum)

OPTIONS = ("priority", "timeout", "max_attempts", "ttl", "budget", "limit_key", "labels")
TRIES = 10  # tries: a keeper may fire the schedule at the same moment
PAGE = 500


class ScheduleVerbs:
    """The verbs of schedules; a part of `StoreClient`."""

    store: Store
    world: World
    tenant: Tenant

    if TYPE_CHECKING:

        async def _opened(self) -> None: ...

        async def _workflow(self, workflow: Defined | str, *, look: bool) -> Defined | str: ...

        async def _publish(self, plans: Iterable[Plan]) -> None: ...

        def _signed(self, new: NewRun) -> NewRun: ...

    async def schedule(
        self,
        name: str,
        workflow: Defined | str,
        params: Any = None,
        *,
        cron: str | None = None,
        zone: str | None = None,
        every: Seconds | None = None,
        jitter: Seconds = 0,
        overlap: str = Overlap.SKIP,
        catch_up: str = CatchUp.ONE,
        tenant: str | OwnTenant = OWN,
        **options: Unpack[RunOptions],
    ) -> Schedule:
        """Start runs by cron in a time zone, or at an interval (`every`). A second call changes nothing.

        A name without version (`shop.report`) starts the newest version that is published at each time.
        Other values under the same name change the schedule; only another cron, zone or every resets its
        times. overlap: skip, allow or queue, while one of its runs is open. catch_up: none, one or all of the
        times that passed while no keeper ran. Options of each run: priority, timeout, max_attempts, ttl,
        budget, limit_key, labels.
        """
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise UsageError(f"schedule has no option {unknown[0]!r}; its options: {', '.join(OPTIONS)}")
        name, whose = check_name("schedule", name), one_tenant(self.tenant, tenant)
        await self._opened()
        now = await self.store.now()
        # In a thread: zones are read from files, and a cron expression may need thousands of steps.
        times = await self.world.thread(rhythm, cron, every, zone, now, jitter, separate=True)
        known, type_ = await self._scheduled(workflow)
        run = new_run(self.world, known, params, tenant=whose, **options)
        if isinstance(known, Plan):
            await self._publish([known])
        new = NewSchedule(
            id=run.id,
            name=name,
            tenant=run.tenant,
            type=type_ or run.type,
            params=run.params,
            cron=times.cron,
            zone=times.zone,
            every_us=times.every_us,
            anchor_at=times.anchor_at,
            next_at=times.after(now),
            jitter_us=micros_of_jitter(jitter),
            overlap=_one_of(Overlap, "overlap", overlap),
            catch_up=_one_of(CatchUp, "catch_up", catch_up),
            priority=run.priority,
            # Values that are left out are taken from the published definition when a run starts, not from the
            # code now.
            max_attempts=run.max_attempts if options.get("max_attempts") is not None else None,
            timeout_seconds=run.timeout_seconds if options.get("timeout") is not None else None,
            ttl_seconds=run.ttl_seconds,
            budget=run.budget if options.get("budget") is not None else None,
            limit_key=run.limit_key,
            labels=run.labels,
        )
        return await self.store.schedule(new)

    async def _scheduled(self, workflow: Defined | str) -> tuple[Defined | str, str | None]:
        """The workflow whose types check the params, and the bare name that the schedule keeps, if any."""
        if not isinstance(workflow, str) or is_type(workflow):
            return await self._workflow(workflow, look=True), None
        try:
            return await self._workflow(workflow, look=True), exact_text(workflow)
        except UnknownWorkflow:
            # It may be published until the schedule fires. The version is only to check the options.
            return f"{exact_text(workflow)}.v1", exact_text(workflow)

    async def schedules(
        self, tenant: Tenant | OwnTenant = OWN, name: str | None = None
    ) -> Sequence[Schedule]:
        """Return the schedules of a tenant, or of all tenants (ANY), by name; or those of one name."""
        whose, (name,) = tenant_of(self.tenant, tenant), check_sought(schedule=name)
        await self._opened()
        found: list[Schedule] = []
        after: tuple[str, str] | None = None
        while page := await self.store.schedules(whose, name, PAGE, after):
            found += page
            after = page[-1].tenant, page[-1].name
        return found

    async def unschedule(self, name: str, tenant: str | OwnTenant = OWN) -> bool:
        """Remove a schedule. Return True when there was one. Its runs continue."""
        whose, (name,) = one_tenant(self.tenant, tenant), check_sought(schedule=name)
        await self._opened()
        return await self.store.unschedule(name, whose)

    async def pause_schedule(self, name: str, tenant: str | OwnTenant = OWN, by: str = "") -> Schedule:
        """Pause a schedule: it skips its times until it is resumed."""
        whose, (name,) = one_tenant(self.tenant, tenant), check_sought(schedule=name)
        await self._opened()
        return await self.store.pause_schedule(name, whose, check_by(by))

    async def resume_schedule(self, name: str, tenant: str | OwnTenant = OWN) -> Schedule:
        """Resume a schedule with its next time from now on."""
        found = await self._schedule(name, tenant)
        next_at = rhythm_of(found).after(await self.store.now())
        return await self.store.resume_schedule(found.name, found.rev, next_at, found.tenant)

    async def _fire(self, name: str, tenant: str | OwnTenant) -> NewRun:
        run = self.world.uuid7()
        for _ in range(TRIES):
            found = await self._schedule(name, tenant)
            found = resolved(found, await published_types(self.store, [found]))
            firing = firing_by_hand(found, run, await self.store.now())
            (fire,) = firing.fires
            firing = msgspec.structs.replace(firing, fires=(Fire(fire.at, self._signed(fire.run)),))
            if (await self.store.fire_schedule(firing)).answer == "applied":
                return firing.fires[0].run
        raise Conflict(f"schedule {name!r} is being changed by others at the same time: try again")

    async def _schedule(self, name: str, tenant: str | OwnTenant) -> Schedule:
        whose, (name,) = one_tenant(self.tenant, tenant), check_sought(schedule=name)
        await self._opened()
        found = await self.store.schedules(whose, name)
        if not found:
            raise UnknownSchedule(name)
        return found[0]


def upcoming(schedule: Schedule, now: Instant, count: int) -> list[Instant]:
    """Return the next times of a schedule, as if it were not paused."""
    return list(islice(rhythm_of(schedule).times(now), count))


def _one_of(kind: type[E], what: str, said: object) -> E:
    try:
        return kind(str(said))
    except ValueError:
        raise UsageError(f"{what} is {clipped(said)}: give one of {', '.join(kind)}") from None
