"""The client of a command: the store itself, or the HTTP API. Both have the same verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from holdfast.records import ANY, DEFAULT_TENANT, OWN, AnyTenant, OwnTenant

if TYPE_CHECKING:
    from holdfast.client.client import Client as ApiClient
    from holdfast.engine.app.client import StoreClient

Client: TypeAlias = "StoreClient | ApiClient"


def is_api(client: Client) -> TypeGuard[ApiClient]:
    """Return True for a client of the HTTP API."""
    return not hasattr(client, "store")


async def tenant_name(client: Client, named: str | None) -> str:
    """Return the tenant of a command: the one that was typed, else that of the API key, else `default`."""
    if named is not None:
        return named
    return (await client.whoami()).tenant if is_api(client) else DEFAULT_TENANT


def everyone(client: Client) -> AnyTenant | OwnTenant:
    """Return the most tenants that the client can see: all, or with the API key of a tenant only that one."""
    return ANY if client.tenant is ANY else OWN
