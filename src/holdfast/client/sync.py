"""`client.sync`: the verbs of a client as blocking calls, for code without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.app.sync import SyncBase, SyncOperatorVerbs, blocking
from holdfast.records import Tenant

from .client import Client

if TYPE_CHECKING:
    from holdfast.threads import BackgroundLoop


class SyncClient(SyncOperatorVerbs, SyncBase):
    """The blocking verbs of a client. `with client.sync:` closes it at the end of the block."""

    def __init__(self, client: Client, background: BackgroundLoop | None = None) -> None:
        super().__init__("client.sync", background)
        self._sync_app, self._client = self, client

    def __repr__(self) -> str:
        """Return a short text for logs, without the key."""
        return f"<sync {self._client!r}>"

    whoami = blocking(Client.whoami)

    def of(self, tenant: Tenant) -> SyncClient:
        """Return the same verbs for another tenant, as `client.of`."""
        return SyncClient(self._client.of(tenant), self._background)

    def close(self) -> None:
        """Close the connections and end the loop. The next call opens both again."""
        self.call(self._client.close)
        self._background.close()
