"""The verbs of schedules: set, list, pause, fire by hand, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
from msgspec import Raw

from holdfast.arguments import Seconds, check_duration, check_name, check_sought, exact_text, is_type
from holdfast.engine.app.handle import Handle
from holdfast.engine.app.new_run import new_run
from holdfast.engine.app.schedules import OPTIONS
from holdfast.engine.definitions import Defined
from holdfast.engine.options import RunOptions
from holdfast.errors import UnknownSchedule, UsageError
from holdfast.records import OWN, CatchUp, Overlap, OwnTenant, Schedule, Tenant
from holdfast.shown.shapes import ScheduleData, StartedData

from .base import PAGE_MAX, Base, no_by, set_fields
from .handles import ClientHandle
from .outbox import Removed
from .records import schedule_of
from .starts import cost, finite

if TYPE_CHECKING:
    from .client import Client


class SchedulePage(msgspec.Struct, frozen=True):
    """One page of schedules."""

    items: tuple[ScheduleData, ...]
    next: str | None = None


class ScheduleVerbs(Base):
    """The verbs of schedules; a part of `Client`."""

    if TYPE_CHECKING:

        def of(self, tenant: Tenant) -> Client: ...

        def _named(self, workflow: Any) -> tuple[str, Defined | None]: ...

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
        """Start runs by cron in a time zone, or at an interval (`every`), as `App.schedule` does. A second
        call changes nothing.
        """
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise UsageError(f"schedule has no option {unknown[0]!r}; its options: {', '.join(OPTIONS)}")
        name, (type_, known) = check_name("schedule", name), self._named(workflow)
        new = new_run(self.world, known or (type_ if is_type(type_) else f"{type_}.v1"), params, **options)
        body = set_fields(
            type=type_,
            params=Raw(new.params.encode()),
            cron=exact_text(cron),
            zone=exact_text(zone),
            every=None if every is None else check_duration("every", every),
            jitter=check_duration("jitter", jitter),
            overlap=str(overlap),
            catch_up=str(catch_up),
            priority=new.priority,
            timeout=None if options.get("timeout") is None else new.timeout_seconds,
            max_attempts=options.get("max_attempts"),
            ttl=None if new.ttl_seconds is None else finite("ttl", new.ttl_seconds),
            budget=None if options.get("budget") is None or new.budget is None else cost(new.budget),
            limit_key=new.limit_key,
            labels=None if new.labels is None else Raw(new.labels.encode()),
        )
        query = self._one(tenant)
        return schedule_of(
            await self._ask("schedule", ScheduleData, path={"name": name}, query=query, body=body)
        )

    async def schedules(
        self, tenant: Tenant | OwnTenant = OWN, name: str | None = None
    ) -> Sequence[Schedule]:
        """Return the schedules of a tenant, or of all tenants (ANY), by name; or those of one name."""
        query, (name,) = self._whose(tenant), check_sought(schedule=name)
        if name is not None and dict(query).get("tenant") != "*":
            try:
                found = await self._ask("get_schedule", ScheduleData, path={"name": name}, query=query)
            except UnknownSchedule:
                return []
            return [schedule_of(found)]
        every: list[Schedule] = []
        after: list[tuple[str, str]] = []
        while True:
            whole = [*query, ("limit", str(PAGE_MAX)), *after]
            page = await self._ask("schedules", SchedulePage, query=whole)
            every += [schedule_of(one) for one in page.items]
            if page.next is None:
                return [one for one in every if name is None or one.name == name]
            after = [("cursor", page.next)]

    async def unschedule(self, name: str, tenant: str | OwnTenant = OWN) -> bool:
        """Remove a schedule. Return True when there was one. Its runs continue.

        False may also mean that a first try has removed it, whose answer was lost.
        """
        path = {"name": check_name("schedule", name)}
        return (await self._ask("unschedule", Removed, path=path, query=self._one(tenant))).removed

    async def pause_schedule(self, name: str, tenant: str | OwnTenant = OWN, by: str = "") -> Schedule:
        """Pause a schedule: it skips its times until it is resumed."""
        no_by(by)
        return await self._changed("pause_schedule", name, tenant)

    async def resume_schedule(self, name: str, tenant: str | OwnTenant = OWN) -> Schedule:
        """Resume a schedule with its next time from now on."""
        return await self._changed("resume_schedule", name, tenant)

    async def _changed(self, operation: str, name: str, tenant: str | OwnTenant) -> Schedule:
        path = {"name": check_name("schedule", name)}
        return schedule_of(await self._ask(operation, ScheduleData, path=path, query=self._one(tenant)))

    async def fire_schedule(self, name: str, tenant: str | OwnTenant = OWN) -> Handle[Any]:
        """Start a run of a schedule now, besides its regular times and whatever its overlap policy says."""
        path, query = {"name": check_name("schedule", name)}, self._one(tenant)
        made = await self._ask("fire_schedule", StartedData, path=path, query=query)
        client: Any = self.of(tenant) if isinstance(tenant, str) and tenant != self.tenant else self
        return ClientHandle(client, made.id, made.type, created=True)
