"""The signing keys of the store: they sign the cursors of lists, the tokens of leases, and links to gates."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from holdfast import api_keys
from holdfast.contract import Store
from holdfast.wire.items import Origin
from holdfast.world import World

from .cursors import Cursors
from .problems import Refusal
from .work.tokens import Tokens

AGAIN_SECONDS = 1.0  # between two reads of the keys that wrong tokens cause


class Signing:
    """Cursors and tokens, signed with the keys as they were last read. One for each server process."""

    def __init__(self, store: Store, world: World) -> None:
        self._store, self._world = store, world
        self._cursors: Cursors | None = None
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self.tokens = Tokens([])

    @property
    def is_read(self) -> bool:
        """True when the keys have been read."""
        return self._cursors is not None

    @property
    def cursors(self) -> Cursors:
        """The signer of cursors."""
        assert self._cursors is not None, "the API is not open"
        return self._cursors

    async def read(self) -> None:
        """Read the keys of the store; make the first one if there is none."""
        found = [one.secret for one in await self._store.signing_keys(api_keys.make_signing_key())]
        self._cursors, self.tokens = Cursors(found), Tokens(found)
        self._read_at = self._world.monotonic()

    async def _read_again(self) -> None:
        """Read the keys once for all requests that need them now."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self.read())
        await asyncio.shield(self._reading)

    async def lease(self, token: str, run: UUID, fence: int) -> Origin | None:
        """Return the facts of a lease; None for a wrong token. Another server may have signed it with a key
        that this one does not know yet: then the keys are read again, at most once a second.
        """
        found = self.tokens.read(token, run, fence)
        if found is None and self._may_read_again:
            await self._read_again()
            found = self.tokens.read(token, run, fence)
        return found

    async def place(self, text: str, list_: str) -> tuple[Any, ...]:
        """Return what a signed text holds that belongs to no tenant and filter; a Refusal for a wrong one.
        The keys may be read again, as for leases.
        """
        try:
            return self.cursors.read(text, list_, "", None)
        except Refusal:
            if not self._may_read_again:
                raise
        await self._read_again()
        return self.cursors.read(text, list_, "", None)

    @property
    def _may_read_again(self) -> bool:
        return self._world.monotonic() >= self._read_at + AGAIN_SECONDS
