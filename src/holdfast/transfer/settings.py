"""Settings of a store that go along with its runs: definitions, registry, limits and schedules.

API keys, signing keys and webhooks, which hold secrets, stay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.contract import Store
from holdfast.errors import Conflict, UsageError
from holdfast.records import ANY, Definition, NewSchedule, Schedule, instant
from holdfast.records.transfer import IMPORT

from .lines import LimitLine, RegistryLine, ScheduleLine

PAGE = 100

Setting = Definition | RegistryLine | LimitLine | ScheduleLine


async def settings_of(store: Store) -> AsyncIterator[Setting]:
    """Yield the settings of a store."""
    for definition in await store.definitions(schemas=True):
        yield definition
    for entry in await store.registry():
        yield RegistryLine(
            name=entry.workflow_name, runtime=entry.runtime, is_enabled=entry.is_enabled,
            description=entry.description, intent_type=entry.intent_type,
        )  # fmt: skip
    for limit in await store.limits():
        if limit.concurrency is not None or limit.rate is not None or limit.weight is not None:
            yield LimitLine(
                scope=limit.scope, name=limit.name, concurrency=limit.concurrency, rate=limit.rate,
                period_seconds=limit.period_seconds, weight=limit.weight,
            )  # fmt: skip
    async for schedule in _schedules(store):
        yield _line(schedule)


def _line(schedule: Schedule) -> ScheduleLine:
    return ScheduleLine(
        id=schedule.id, name=schedule.name, type=schedule.type, tenant=schedule.tenant,
        params=schedule.params_json, cron=schedule.cron, zone=schedule.zone, every_us=schedule.every_us,
        anchor_at=instant(schedule.anchor_at), jitter_us=schedule.jitter_us, overlap=schedule.overlap,
        catch_up=schedule.catch_up, priority=schedule.priority, max_attempts=schedule.max_attempts,
        timeout_seconds=schedule.timeout_seconds, ttl_seconds=schedule.ttl_seconds,
        budget=schedule.budget_units, limit_key=schedule.limit_key, labels=schedule.labels_json,
        paused_by=schedule.paused_by if schedule.paused else None,
    )  # fmt: skip


async def keep(store: Store, setting: Setting) -> str | None:
    """Write a setting into a store that does not have it. Return why it was left as it is; None: it is
    written, or is there and the same."""
    match setting:
        case Definition():
            return await _publish(store, setting)
        case RegistryLine():
            if any(one.workflow_name == setting.name for one in await store.registry()):
                return None
            await store.register(
                setting.name, runtime=setting.runtime, enabled=setting.is_enabled,
                description=setting.description, intent_type=setting.intent_type,
            )  # fmt: skip
        case LimitLine():
            if any((one.scope, one.name) == (setting.scope, setting.name) for one in await store.limits()):
                return None
            rate = None if setting.rate is None else (setting.rate, setting.period_seconds or 0.0)
            await store.limit(
                setting.scope, setting.name, concurrency=setting.concurrency, rate=rate, weight=setting.weight
            )
        case ScheduleLine():
            await keep_schedule(store, setting)
    return None


async def _publish(store: Store, definition: Definition) -> str | None:
    try:
        await store.publish([definition])
    except (Conflict, UsageError) as error:
        return str(error)
    return None


async def keep_schedule(store: Store, line: ScheduleLine) -> bool:
    """Make a schedule that is paused, unless it is there: then False. It has no next time until somebody
    resumes it, so it cannot fire before it is paused."""
    there = await store.schedules(line.tenant, line.name)
    if any(one.id != line.id or one.paused or one.next_at is not None for one in there):
        return False
    # One that is there without a next time comes from an import that was killed before it was paused.
    fields = {name: getattr(line, name) for name in ScheduleLine.__struct_fields__ if name != "paused_by"}
    await store.schedule(NewSchedule(**fields, next_at=None))
    await store.pause_schedule(line.name, line.tenant, line.paused_by or IMPORT)
    return True


def paused_for(to: str) -> str:
    """Return who pauses the schedules of a store whose runs move to this target. The name has the target, so
    that an undo resumes no schedule that an earlier move has handed over to another one."""
    return f"move to {to}"


async def pause_schedules(store: Store, by: str) -> None:
    """Pause all schedules of a store whose runs move away, so that none fires at both stores."""
    async for schedule in _schedules(store):
        if not schedule.paused:
            await store.pause_schedule(schedule.name, schedule.tenant, by)


async def hand_over_schedules(source: Store, target: Store, by: str) -> int:
    """Let schedules go on at the target that were paused for the move, with their next times. Return how
    many."""
    resumed = 0
    async for schedule in _schedules(source):
        if not schedule.paused or schedule.paused_by != by:
            continue
        for there in await target.schedules(schedule.tenant, schedule.name):
            if there.paused and there.paused_by == by and there.id == schedule.id:
                next_at = None if schedule.next_at is None else instant(schedule.next_at)
                await target.resume_schedule(there.name, there.rev, next_at, there.tenant)
                resumed += 1
    return resumed


async def _schedules(store: Store) -> AsyncIterator[Schedule]:
    after: tuple[str, str] | None = None
    while page := await store.schedules(ANY, None, PAGE, after):
        for schedule in page:
            yield schedule
        after = page[-1].tenant, page[-1].name


async def resume_schedules(store: Store, by: str, unless_at: Store | None = None) -> None:
    """Let schedules go on that were paused under this name, with the next times that they had. unless_at: not
    those that go on at this store."""
    async for schedule in _schedules(store):
        if not schedule.paused or schedule.paused_by != by:
            continue
        there = () if unless_at is None else await unless_at.schedules(schedule.tenant, schedule.name)
        if not any(one.id == schedule.id and not one.paused for one in there):
            next_at = None if schedule.next_at is None else instant(schedule.next_at)
            await store.resume_schedule(schedule.name, schedule.rev, next_at, schedule.tenant)
