"""Parts that all verbs of the client share: the tenant of a call, and requests."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from holdfast.arguments import ALL_TENANTS, check_datetime, check_tenant, check_text
from holdfast.clipped import clipped
from holdfast.errors import UsageError
from holdfast.records import ANY, OWN, OwnTenant, Tenant
from holdfast.world import World

from .transport import Query, Transport

T = TypeVar("T")

PAGE_MAX = 500  # rows that the server returns at once
Pairs = list[tuple[str, str]]


class Base:
    """A client of one server; `tenant` is the tenant that its calls are about, OWN for that of its key."""

    tenant: Tenant | OwnTenant
    world: World
    _transport: Transport

    async def _ask(
        self,
        operation: str,
        answer: type[T],
        *,
        path: Mapping[str, object] | None = None,
        query: Query = (),
        body: Any = None,
        key: str = "",
        wait: float = 0.0,
        retry: bool = True,
    ) -> T:
        """Send a request of the table of operations and return its answer."""
        request = self._transport.request(operation, path=path, query=query, body=body, key=key)
        return await self._transport.ask(request, answer, wait=wait, retry=retry)

    def _whose(self, named: Tenant | OwnTenant | None = OWN, *, unsaid: bool = False) -> Pairs:
        """Return the query that names the tenant of a call: none for the tenant of the key.

        unsaid: a client of all tenants means all of them where the call names none.
        """
        own = self.tenant
        if named is None:
            raise UsageError("tenant is None: name a tenant, or give ANY for all tenants")
        if isinstance(own, str):
            if named is not OWN and named != own:
                other = "ANY" if named is ANY else clipped(named)
                raise UsageError(f"this client is bound to tenant {clipped(own)}: it cannot name {other}")
            return [("tenant", own)]
        if named is OWN:
            return [("tenant", ALL_TENANTS)] if own is ANY and unsaid else []
        return [("tenant", ALL_TENANTS if named is ANY else check_text("tenant", named))]

    def _of_run(self) -> Pairs:
        """Return the query of a call about one run, which has its tenant."""
        return self._whose(unsaid=True)

    def _one(self, named: Tenant | OwnTenant | None) -> Pairs:
        """Return the query of a call that creates something for one tenant."""
        if named is ANY:
            raise UsageError("tenant is ANY, but this call creates something for one tenant: name it")
        return self._whose(check_tenant(named) if isinstance(named, str) else named)


def no_by(by: Any) -> None:
    """Refuse a name for the trail: the server writes the name of the API key there."""
    if by:
        raise UsageError(f"by is {clipped(by)}: over HTTP the trail names the API key, so leave `by` out")


def times(**given: datetime | None) -> Pairs:
    """Return the query for those times that are given."""
    pairs: Pairs = []
    for name, at in given.items():
        if at is not None:
            check_datetime(name, at)
            pairs.append((name, at.isoformat()))
    return pairs


def flag(value: object) -> str:
    """Return a boolean as a query has it."""
    return "true" if value else "false"


def set_fields(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
