"""`holdfast.Client`: the verbs of an app over the HTTP API."""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.arguments import Seconds, check_tenant
from holdfast.records import ANY, OWN, AnyTenant, OwnTenant, Tenant
from holdfast.world import RealWorld

from .bulk import BulkVerbs
from .counts import CountVerbs
from .keys import KeyVerbs
from .moves import MoveVerbs
from .operators import Caller, OperatorVerbs
from .outbox import OutboxVerbs
from .reads import ReadVerbs
from .schedules import ScheduleVerbs
from .starts import StartVerbs
from .transport import Transport, check_installed

if TYPE_CHECKING:
    from .sync import SyncClient

TIMEOUT_SECONDS = 30.0


class Client(
    StartVerbs, MoveVerbs, ReadVerbs, CountVerbs, OutboxVerbs, ScheduleVerbs, OperatorVerbs, KeyVerbs
):
    """The verbs of an app over HTTP: `async with hf.Client("https://flows.example.com", key=…) as client`.

    They have the arguments, answers and errors of `App`. url: of the server, with the path in front of the
    API if it has one. key: an API key; its tenant is that of all calls. tenant: for keys of operators,
    another tenant, or ANY for all. timeout: of one call, with its retries; waiting for a result has its own.
    insecure: do not warn that the key goes over http:// to another machine; for networks that encrypt.

    A proxy in the environment (HTTPS_PROXY, NO_PROXY) is used, but never for a server on this machine.
    A call is repeated when the server cannot be reached and a repeat is safe. NotAllowed: the key is refused.
    Unavailable: the server stays away. Close the client, or use it in `async with`.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: Seconds = TIMEOUT_SECONDS,
        tenant: Tenant | None = None,
        insecure: bool = False,
    ) -> None:
        check_installed()
        self.world = RealWorld()
        self._transport = Transport(url, key, timeout, self.world, insecure=bool(insecure))
        self.tenant: Tenant | OwnTenant = _checked_tenant(tenant)

    def __repr__(self) -> str:
        """Return a short text for logs, without the key."""
        return f"<client of {self.url}>"

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._transport.url

    @property
    def bulk(self) -> BulkVerbs:
        """Verbs on every run that a filter matches, as `App.bulk`."""
        return BulkVerbs(self)

    def of(self, tenant: Tenant) -> Client:
        """Return the same client for another tenant, or for all (ANY). Only keys of operators may do this.

        It shares the connections of this one: closing one of them closes both.
        """
        other = object.__new__(type(self))
        other.world, other._transport = self.world, self._transport
        other.tenant = _checked_tenant(tenant)
        return other

    @cached_property
    def sync(self) -> SyncClient:
        """The same verbs, blocking, for code without an event loop."""
        from .sync import SyncClient  # noqa: PLC0415 - only for those who use it

        return SyncClient(self)

    async def open(self) -> Caller:
        """Check once, without retries, that the server answers and accepts the key; return what the key may
        do. No other call needs this before.
        """
        return await self._ask("whoami", Caller, retry=False)

    async def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        """Do nothing: the first call connects."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, as `close` does."""
        await self.close()


def _checked_tenant(tenant: Tenant | None) -> Tenant | OwnTenant:
    if tenant is None:
        return OWN
    return ANY if isinstance(tenant, AnyTenant) else check_tenant(tenant)
