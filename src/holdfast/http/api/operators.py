"""Operations on the whole store: definitions, registry, limits, workers, statistics."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta

from holdfast.http.call import Call
from holdfast.http.operation import Body, Path, operation
from holdfast.http.problems import Code, Refusal
from holdfast.records import Finding, Limit, Registration, Scope
from holdfast.shown.data import definition_data, presence_data, stats_data
from holdfast.shown.shapes import DefinitionData, PresenceData, Shape, StatsData

from .fields import Name, OneTenant, Seconds
from .schedules import Removed

TAG = "Operators"
ScopeName = Annotated[Literal["type", "tenant", "key"], Meta(description="The subject of the limit.")]


class Definitions(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """All published workflows, by type."""

    items: tuple[DefinitionData, ...]


class TypePath(Path, frozen=True, kw_only=True):
    """A workflow type."""

    type: Name


class Registry(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """All entries, by name."""

    items: tuple[Registration, ...]


class Register(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runtime of a type, and whether it is enabled. Fields that are left out stay as they are."""

    runtime: Name | None = None
    enabled: bool | None = None
    description: Annotated[str, Meta(max_length=10_000)] | None = None
    intent_type: Name | None = None


class LimitPath(Path, frozen=True, kw_only=True):
    """A limit: of a type, a tenant or a limit key, by name. A name may end in %."""

    scope: ScopeName
    name: Name


class SetLimit(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """concurrency: runs at once. rate: claims in `period` seconds. weight: of a tenant, its share."""

    concurrency: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    rate: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    period: Seconds | None = None
    weight: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None


class Limits(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """All limits and all paused keys."""

    items: tuple[Limit, ...]


class KeyPath(Path, frozen=True, kw_only=True):
    """A limit key."""

    key: Name


class PauseKey(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """seconds: how long no run under this key is claimed; or until: up to this instant."""

    seconds: Seconds | None = None
    until: Annotated[datetime, Meta(tz=True)] | None = None


class DefinitionQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """schemas: with the JSON Schemas of params and result."""

    schemas: bool = True


class WasPaused(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the key was paused."""

    was_paused: bool


class Workers(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The live workers."""

    items: tuple[PresenceData, ...]


class Report(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The findings of a check-up."""

    level: str
    at: datetime
    findings: tuple[Finding, ...]


@operation("GET", "/definitions", tag=TAG, scope=(Scope.RUNS_READ, Scope.RUNS_WRITE, Scope.OPERATOR))
async def definitions(call: Call, query: DefinitionQuery) -> Definitions:
    """List the published workflows, with the JSON Schemas of params and result."""
    found = await call.client(query.tenant).definitions(schemas=query.schemas)
    return Definitions(items=tuple(definition_data(one) for one in found))


@operation("GET", "/registry", tag=TAG, scope=Scope.OPERATOR)
async def registry(call: Call) -> Registry:
    """List the registered types: where they run, and whether they are enabled."""
    return Registry(items=tuple(await call.api.client.registry()))


@operation("PUT", "/registry/{type}", tag=TAG, scope=Scope.OPERATOR)
async def register(call: Call, path: TypePath, body: Register) -> Registration:
    """Register a type, or change its entry."""
    call.target = path.type
    return await call.api.client.register(
        path.type,
        runtime=body.runtime,
        enabled=body.enabled,
        description=body.description,
        intent_type=body.intent_type,
    )


@operation("DELETE", "/registry/{type}", tag=TAG, scope=Scope.OPERATOR)
async def unregister(call: Call, path: TypePath) -> Removed:
    """Remove an entry: any worker with a handler may take the type again."""
    call.target = path.type
    return Removed(removed=await call.api.client.unregister(path.type))


@operation("GET", "/limits", tag=TAG, scope=Scope.OPERATOR)
async def limits(call: Call) -> Limits:
    """List all limits and all paused keys."""
    return Limits(items=tuple(await call.api.client.limits()))


@operation("PUT", "/limits/{scope}/{name}", tag=TAG, scope=Scope.OPERATOR)
async def limit(call: Call, path: LimitPath, body: SetLimit) -> Limit:
    """Limit a type, a tenant, or the runs under a limit key. An earlier limit of that name is replaced."""
    call.target = f"{path.scope} {path.name}"
    rate = None if body.rate is None and body.period is None else (body.rate, body.period)
    options: Any = {path.scope: path.name, "rate": rate}
    return await call.api.client.limit(concurrency=body.concurrency, weight=body.weight, **options)


@operation("DELETE", "/limits/{scope}/{name}", tag=TAG, scope=Scope.OPERATOR)
async def unlimit(call: Call, path: LimitPath) -> Removed:
    """Remove a limit, and its pause."""
    call.target = f"{path.scope} {path.name}"
    options: Any = {path.scope: path.name}
    return Removed(removed=await call.api.client.unlimit(**options))


@operation("POST", "/limits/key/{key}/pause", tag=TAG, scope=Scope.OPERATOR)
async def pause_key(call: Call, path: KeyPath, body: PauseKey) -> Limit:
    """Claim no runs under a limit key for some time: for "429, come back later"."""
    call.target = path.key
    until = body.seconds if body.until is None else body.until
    if until is None or (body.seconds is not None and body.until is not None):
        raise Refusal(Code.BAD_VALUE, "body: give seconds or until")
    return await call.api.client.pause_key(path.key, until)


@operation("POST", "/limits/key/{key}/resume", tag=TAG, scope=Scope.OPERATOR)
async def resume_key(call: Call, path: KeyPath) -> WasPaused:
    """End the pause of a limit key."""
    call.target = path.key
    return WasPaused(was_paused=await call.api.client.resume_key(path.key))


@operation("GET", "/workers", tag=TAG, scope=Scope.OPERATOR)
async def workers(call: Call) -> Workers:
    """List the live workers: what they run, and how much."""
    return Workers(items=tuple(presence_data(one) for one in (await call.api.store.stats()).workers))


@operation("GET", "/stats", tag=TAG, scope=Scope.OPERATOR)
async def stats(call: Call) -> StatsData:
    """Read an overview of the store: runs by status, the oldest due run, runs that no worker can take."""
    return stats_data(await call.api.store.stats())


@operation("GET", "/doctor", tag=TAG, scope=Scope.OPERATOR)
async def doctor(call: Call) -> Report:
    """Check the store for problems, and say how to fix them."""
    report = await call.api.client.doctor()
    return Report(level=report.level, at=report.at, findings=tuple(report.findings))
