"""Schedules: set, list, pause, fire by hand, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta

from holdfast.bounds import VALUE_BYTES
from holdfast.engine.app.client import StoreClient
from holdfast.engine.schedules.versions import published_types
from holdfast.errors import UnknownSchedule
from holdfast.http.call import Call, Page
from holdfast.http.operation import Body, operation
from holdfast.records import CatchUp, Overlap, Schedule, Scope
from holdfast.shown.data import schedule_data
from holdfast.shown.schedules import next_times
from holdfast.shown.shapes import ScheduleData, Shape, StartedData

from .fields import (
    Attempts,
    Cost,
    Labels,
    Name,
    NamePath,
    OneTenant,
    Paged,
    Priority,
    Seconds,
    Value,
    value_of,
)

TAG = "Schedules"


class SetSchedule(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run that a schedule starts, and when: `cron` in a time zone, or `every` so many seconds."""

    type: Name
    params: Value = UNSET
    cron: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    zone: Name | None = None
    every: Seconds | None = None
    jitter: Seconds = 0
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.ONE
    priority: Priority = 100
    timeout: Seconds | None = None
    max_attempts: Attempts | None = None
    ttl: Seconds | None = None
    budget: Cost | None = None
    limit_key: Name | None = None
    labels: Labels | None = None


class Removed(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Whether there was something to remove."""

    removed: bool


@operation("GET", "/schedules", tag=TAG, scope=Scope.RUNS_READ)
async def schedules(call: Call, query: Paged) -> Page[ScheduleData]:
    """List the schedules of the tenant, by name, each with its next times."""
    client = call.client(query.tenant)
    last = call.after(query.cursor)
    after = None if last is None else (last[0], last[1])
    found = await client.store.schedules(call.scope, None, query.limit, after)
    last_place = (found[-1].tenant, found[-1].name) if found else None
    return call.page(await _shown(call, client, found), last_place)


@operation("GET", "/schedules/{name}", tag=TAG, scope=Scope.RUNS_READ)
async def get_schedule(call: Call, path: NamePath, query: OneTenant) -> ScheduleData:
    """Read one schedule."""
    client = call.client(query.tenant)
    found = await client.schedules(call.scope, path.name)
    if not found:
        raise UnknownSchedule(path.name)
    return (await _shown(call, client, found[:1]))[0]


@operation("PUT", "/schedules/{name}", tag=TAG, scope=Scope.RUNS_WRITE, body_bytes=VALUE_BYTES + 64 * 1024)
async def schedule(call: Call, path: NamePath, query: OneTenant, body: SetSchedule) -> ScheduleData:
    """Create a schedule, or change it. The same request again changes nothing."""
    client = call.client(query.tenant, one=True)
    call.target = path.name
    others = ("type", "params")
    options = {name: getattr(body, name) for name in SetSchedule.__struct_fields__ if name not in others}
    made = await client.schedule(path.name, body.type, await value_of(call, body.params, "params"), **options)
    return (await _shown(call, client, [made]))[0]


@operation("DELETE", "/schedules/{name}", tag=TAG, scope=Scope.RUNS_WRITE)
async def unschedule(call: Call, path: NamePath, query: OneTenant) -> Removed:
    """Remove a schedule. Its runs continue."""
    call.target = path.name
    return Removed(removed=await call.client(query.tenant, one=True).unschedule(path.name))


@operation("POST", "/schedules/{name}/pause", tag=TAG, scope=Scope.RUNS_WRITE)
async def pause_schedule(call: Call, path: NamePath, query: OneTenant) -> ScheduleData:
    """Pause a schedule: it skips its times until it is resumed."""
    client = call.client(query.tenant, one=True)
    call.target = path.name
    return (await _shown(call, client, [await client.pause_schedule(path.name, by=call.by)]))[0]


@operation("POST", "/schedules/{name}/resume", tag=TAG, scope=Scope.RUNS_WRITE)
async def resume_schedule(call: Call, path: NamePath, query: OneTenant) -> ScheduleData:
    """Resume a schedule with its next time from now on."""
    client = call.client(query.tenant, one=True)
    call.target = path.name
    return (await _shown(call, client, [await client.resume_schedule(path.name)]))[0]


@operation("POST", "/schedules/{name}/fire", tag=TAG, scope=Scope.RUNS_WRITE, statuses=(201,))
async def fire_schedule(call: Call, path: NamePath, query: OneTenant) -> StartedData:
    """Start a run of a schedule now, besides its regular times."""
    call.target = path.name
    handle = await call.client(query.tenant, one=True).fire_schedule(path.name)
    return StartedData(id=handle.id, type=handle.type, created=handle.created)


async def _shown(call: Call, client: StoreClient, found: Sequence[Schedule]) -> tuple[ScheduleData, ...]:
    now, published = await client.store.now(), await published_types(client.store, found)

    def made() -> tuple[ScheduleData, ...]:
        return tuple(schedule_data(one, *next_times(one, now, published)) for one in found)

    # In a thread: zones are read from files, and a cron expression may need thousands of steps.
    shown: tuple[ScheduleData, ...] = await client.world.thread(made, separate=True)
    return tuple(call.shown(one) for one in shown)
