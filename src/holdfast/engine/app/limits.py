"""The verbs of limits and of the registry: where types run, how many at once, how often, for which tenant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.arguments import (
    Seconds,
    check_bare,
    check_datetime,
    check_duration,
    check_name,
    check_number,
    check_patterns,
    check_positive,
    check_sought,
    check_type,
    check_whole,
)
from holdfast.clipped import clipped
from holdfast.engine.definitions import Defined
from holdfast.errors import UsageError
from holdfast.records import Definition, Limit, Registration

if TYPE_CHECKING:
    from holdfast.contract import Store


class LimitVerbs:
    """The verbs of limits and of the registry; a part of `StoreClient`."""

    store: Store

    if TYPE_CHECKING:

        async def _opened(self) -> None: ...

    async def limit(
        self,
        *,
        type: Defined | str | None = None,
        tenant: str | None = None,
        key: str | None = None,
        concurrency: int | None = None,
        rate: tuple[int, Seconds] | None = None,
        weight: float | None = None,
    ) -> Limit:
        """Limit a type, a tenant or the runs under a limit_key; an earlier limit of that name is replaced.

        concurrency: at most so many running runs. rate=(n, period): at most n claims in any period.
        weight of a tenant: its share of the claims when several tenants have due runs. A name that ends in %
        sets a limit for each name with that prefix, counted separately.
        """
        scope, name = named_limit(type, tenant, key)
        places, claims, share = checked_limit(scope, name, concurrency, rate, weight)
        await self._opened()
        return await self.store.limit(scope, name, concurrency=places, rate=claims, weight=share)

    async def unlimit(
        self, *, type: Defined | str | None = None, tenant: str | None = None, key: str | None = None
    ) -> bool:
        """Remove the limit of that name, and its pause. Return True when there was one."""
        scope, name = named_limit(type, tenant, key)
        await self._opened()
        return await self.store.unlimit(scope, name)

    async def limits(self) -> Sequence[Limit]:
        """Return all limits and all paused keys."""
        await self._opened()
        return await self.store.limits()

    async def pause_key(self, key: str, until: datetime | Seconds) -> Limit:
        """Claim no runs under this limit_key until an instant or for a duration: for "429, come back later".

        Of two pauses the one that ends later counts. Running runs continue.
        """
        _, name = named_limit(None, None, key)
        if isinstance(until, datetime):
            at = check_datetime("until", until)
            await self._opened()
            return await self.store.pause_key(name, at)
        delay = check_duration("a pause", until, ", or a datetime")
        await self._opened()
        return await self.store.pause_key(name, delay_seconds=delay)

    async def resume_key(self, key: str) -> bool:
        """End the pause of this key. Return True when there was one."""
        _, name = named_limit(None, None, key)
        await self._opened()
        return await self.store.resume_key(name)

    async def register(
        self,
        type: Defined | str,
        *,
        runtime: str | None = None,
        enabled: bool | None = None,
        description: str | None = None,
        intent_type: str | None = None,
    ) -> Registration:
        """Set the runtime of a type, and whether it is enabled; arguments that are left out change nothing.

        A bare name, such as shop.order, counts for all versions that have no entry of their own.
        """
        name = registered(type)
        if enabled is not None and not isinstance(enabled, bool):
            raise UsageError(f"register({name!r}): enabled is {clipped(enabled)}: give True or False")
        runtime = None if runtime is None else check_name("runtime", runtime)
        intent_type = None if intent_type is None else check_name("intent_type", intent_type)
        (description,) = check_sought(description=description)
        await self._opened()
        return await self.store.register(
            name, runtime=runtime, enabled=enabled, description=description, intent_type=intent_type
        )

    async def unregister(self, type: Defined | str) -> bool:
        """Remove an entry: any worker with a handler may take the type again. Return True when there was
        one.
        """
        name = registered(type)
        await self._opened()
        return await self.store.unregister(name)

    async def definitions(self, *, schemas: bool = True) -> Sequence[Definition]:
        """Return the published workflows by type, with the JSON Schemas of their params and results unless
        told otherwise.
        """
        await self._opened()
        return await self.store.definitions(schemas=schemas)

    async def registry(self) -> Sequence[Registration]:
        """Return all entries, by name."""
        await self._opened()
        return await self.store.registry()


def checked_limit(
    scope: str, name: str, concurrency: Any, rate: Any, weight: Any
) -> tuple[int | None, tuple[int, float] | None, float | None]:
    """Check the parts of a limit: the runs at once, the claims in a period, and the share of a tenant."""
    if concurrency is None and rate is None and weight is None:
        raise UsageError(
            f"limit({scope}={name!r}): give concurrency, rate or weight; `unlimit` removes a limit"
        )
    if weight is not None and scope != "tenant":
        raise UsageError(
            f"limit({scope}={name!r}): a weight is a tenant's share: give tenant=, as in tenant='acme'"
        )
    return _places(concurrency), _rate(rate), _weight(weight)


def named_limit(type_: Defined | str | None, tenant: str | None, key: str | None) -> tuple[str, str]:
    """Return the scope and the name of a limit: exactly one of the three is given."""
    given = {"type": type_, "tenant": tenant, "key": key}
    named = {scope: name for scope, name in given.items() if name is not None}
    if len(named) != 1:
        raise UsageError("a limit needs exactly one of type=, tenant= and key=")
    ((scope, name),) = named.items()
    if isinstance(name, Defined):
        return scope, name.type
    (said,) = check_patterns((check_name(scope, name),))
    return scope, check_type(said) if scope == "type" and not said.endswith("%") else said


def registered(type_: Defined | str) -> str:
    """Return the name of an entry of the registry."""
    return type_.type if isinstance(type_, Defined) else check_bare(type_)


def _places(concurrency: Any) -> int | None:
    return None if concurrency is None else check_whole("concurrency", concurrency)


def _rate(rate: Any) -> tuple[int, float] | None:
    if rate is None:
        return None
    if not isinstance(rate, tuple | list) or len(rate) != 2:
        raise UsageError(f"rate is {clipped(rate)}: give a count and a time in seconds, as in rate=(100, 60)")
    how = ", as in rate=(100, 60)"
    return check_whole("rate", rate[0], 1, hint=how), check_positive("the period of a rate", rate[1], how)


def _weight(weight: Any) -> float | None:
    return None if weight is None else check_number("weight", weight, 0.001, 1000)
