"""The Redis store, for Redis 6.2 and newer and for Valkey: hashes are the truth, sorted sets lead to them.

A verb reads, decides by the machine (`machine/`), and saves by one script that first compares what was read.
Any number of processes share a store.

| module | content |
|---|---|
| `core`, `snapshot`, `scripts/` | how a verb reads, decides and saves |
| `address`, `settings` | the store URL; which servers are refused |
| `connections`, `pool`, `link`, `nodes`, `errors` | calls to the server, and to the right node of a cluster |
| `names`, `rows`, `indexes`, `counting` | keys, rows, the sets that lead to rows, kept counts |
| `view`, `held`, `families`, `importing` | the machine's view of rows; that of an import |
| `inbox`, `messages` | events and receipts; messages of the outbox |
| `plain`, `starts`, `plain_claims`, `batches` | plain writes, starts and claims: many runs by one script |
| `producing` | starts from other languages, by a script that anyone can call |
| `verbs/` | the verbs of the contract, a module for each part |
| `listener` | wake-ups |
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import msgspec

from holdfast.machine.plans import refuse_changed
from holdfast.records import Definition, Instant, Traits
from holdfast.records.traits import HINTED_POLL_SECONDS
from holdfast.stores.checked import checked
from holdfast.stores.opening import Opening

from . import producing
from .address import parsed
from .connections import Connections
from .listener import Listeners
from .names import Names
from .plain import Holdings
from .rows import PUBLISHED
from .snapshot import Snapshot
from .starts import Published
from .verbs.catalog import CatalogVerbs
from .verbs.checkup import CheckupVerb
from .verbs.claims import ClaimVerb, KnownRules
from .verbs.keyring import KeyVerbs
from .verbs.limiting import LimitVerbs
from .verbs.listing import ListVerbs
from .verbs.outbox import OutboxVerbs
from .verbs.page_sessions import PageSessionVerbs
from .verbs.people import PeopleVerbs
from .verbs.presence import PresenceVerbs
from .verbs.purge import PurgeVerb
from .verbs.queue import QueueVerbs
from .verbs.renewal import RenewalVerb
from .verbs.schedules import ScheduleVerbs
from .verbs.sets import SetsVerb
from .verbs.trail import TrailVerbs
from .verbs.transfer import TransferVerbs
from .view import RedisView


@checked
class RedisStore(
    QueueVerbs,
    ClaimVerb,
    RenewalVerb,
    PeopleVerbs,
    LimitVerbs,
    OutboxVerbs,
    ScheduleVerbs,
    KeyVerbs,
    PageSessionVerbs,
    PresenceVerbs,
    PurgeVerb,
    CheckupVerb,
    SetsVerb,
    TrailVerbs,
    TransferVerbs,
    ListVerbs,
    CatalogVerbs,
):
    """Every verb of the contract over one namespace of a server.

    `clock`: for tests, which turn it by hand. Without it the clock of the server counts.
    """

    traits = Traits(writers=4, poll_seconds=HINTED_POLL_SECONDS)

    def __init__(self, url: str, clock: Callable[[], Instant] | None = None) -> None:
        self.address, self._clock = parsed(url), clock
        self._names = Names(self.address.prefix)
        self._connections = Connections(self.address)
        self._opening, self._is_open = Opening(), False
        self._listeners = Listeners(self.address, self._connections.nodes)
        self._holdings, self._published = Holdings(), Published()
        self._turns, self._passed = WeakKeyDictionary(), {}
        self._rules: KnownRules | None = None
        self._renewing, self._renewal_pid = threading.Lock(), os.getpid()
        self._renewal_loop: asyncio.AbstractEventLoop | None = None

    async def open(self) -> None:
        if not self._is_open:
            await self._opening.share(self._open)

    async def _open(self) -> None:
        self._connections.is_open = True
        try:
            await self._connections.ask([("PING",)])  # a new connection looks at the server: nodes.py
        except BaseException:
            await self._connections.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        """Release everything, also when the caller gives up meanwhile."""
        try:
            await self._opening.end()
        finally:
            self._is_open = self._connections.is_open = False  # before the renewals end: none may begin again
            try:
                await self._listeners.close()
            finally:
                self._end_renewals()
                await self._connections.close()

    def listen(
        self,
        hint: Callable[[], None],
        holders: Callable[[], None] | None = None,
        changed: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        if not self._is_open:  # nobody would close the connection
            return lambda: None
        return self._listeners.listen(hint, holders)

    def hears(self) -> bool:
        return self._listeners.hears

    async def publish(self, definitions: Sequence[Definition]) -> None:
        def publish(snapshot: Snapshot) -> None:
            view, key = RedisView(snapshot), snapshot.names("definitions")
            for definition in definitions:
                refuse_changed(view.definition(definition.type), definition)
            new = [one for one in definitions if view.definition(one.type) != one]
            for definition in new:
                snapshot.guarded("HGET", key, definition.type)
                snapshot.do("HSET", key, definition.type, msgspec.json.encode(definition).decode())
                producing.keep(snapshot, definition)
            if new:
                snapshot.do("HINCRBY", snapshot.names.numbers, PUBLISHED, 1)

        await self._change(publish)


__all__ = ["RedisStore"]
