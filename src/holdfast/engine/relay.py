"""The relay: takes committed messages out of the outbox and hands each to its sink, at least once.

Any number of relays at once, in workers or alone. Each holds what it has taken by a lease that is longer than
any try may take, so that nobody sends a message of a key while another is at one. What it cannot answer for
is sent again: by whoever comes next, when the lease has ended.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.arguments import check_duration
from holdfast.backoff import Backoff
from holdfast.bounds import BATCH_BYTES, MIB, text_bytes
from holdfast.contract import Store
from holdfast.errors import Fatal, RetryAfter, StoreError, UsageError
from holdfast.escaping import safe_logger
from holdfast.records import SECOND, Json, Parcel, RelayAsk, Relayed
from holdfast.world import World

from . import sinks
from .keeper import LOOK_SECONDS, Bell, between_looks
from .places import Places
from .posting import POST_SECONDS, Poster
from .sinks import DELAY_MAX_SECONDS, Refused, Shut, Sinks
from .turns import TROUBLE_SECONDS, unforeseen

log = safe_logger("holdfast.relay")

MARGIN_SECONDS = 30.0  # of a lease, above the longest try: what the answer may take to reach the store
CARRIED_BYTES = 256 * MIB  # of messages under way; 64 that hang at the limit of a value
SHUT_SECONDS = 60.0  # how long a relay without the key leaves a message, or a webhook, to others
TAKE_SECONDS = 5.0  # how long one that ends waits for the answer to its last taking
GIVE_BACK_SECONDS = 5.0
ANSWER_SECONDS = 0.1  # between two attempts to tell the store, doubling
BACKOFF = Backoff.exponential(0.5, cap=DELAY_MAX_SECONDS, jitter=0.1)  # 1 s, 2 s, 4 s, … 1 h


Tried = tuple[str, Json | None, float]  # what became of it: the answer, the error, and when to try again


class Relay:
    """One loop that sends what is due, and the tries that are under way."""

    def __init__(
        self,
        store: Store,
        world: World,
        name: str,
        functions: Sinks | None = None,
        *,
        tenants: tuple[str, ...] | None = None,
        webhooks: bool = True,
        poster: Poster | None = None,
    ) -> None:
        self._store, self._world, self._name = store, world, name
        self._sinks, self._tenants, self._webhooks = functions or {}, tenants, webhooks
        self._poster = poster or Poster(world)
        self._limits = {name: one.timeout_seconds for name, one in self._sinks.items()}
        self._lease = max(POST_SECONDS, *self._limits.values(), 0.0) + MARGIN_SECONDS
        self._tries: dict[asyncio.Task[None], Parcel] = {}
        self._places = Places()
        self._carried = 0  # bytes of what is under way
        self._loop: asyncio.Task[None] | None = None
        self._hurried = self._over = False
        self.bell = Bell(store.traits.poll_seconds)
        self.sent = self.failed = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Its own functions."""
        return tuple(self._sinks)

    def begin(self) -> None:
        """Send from now on what comes due, beside everything else."""
        if self._serves:
            self._loop = self._world.spawn(self.run(), "holdfast-relay")

    async def run(self) -> None:
        """Round after round, until it is ended."""
        clock = asyncio.get_running_loop().time
        while not self._over:
            looked_at, apart, self._hurried = clock(), LOOK_SECONDS, False
            try:
                due = await self._due_seconds()
                apart = between_looks(clock() - looked_at)
                if due == 0.0:
                    await self.take()
            except Exception as error:
                log.warning("cannot relay now, will try again: %s", error, exc_info=unforeseen(error))
                due = TROUBLE_SECONDS
            await self.bell.wait(due)
            # A hint comes with every commit; only what has happened here is looked at without delay.
            early = looked_at + min(apart, due or apart) - clock()
            if early > 0 and not self._hurried and not self._over:
                await asyncio.sleep(early)

    async def take(self, *, hurried: bool = False) -> int:
        """Begin to send what is due, as far as there is room; how many. `hurried`: not where it is slow."""
        taken_at = self._world.monotonic()
        room = self._places.room(taken_at, hurried=hurried)
        free = min(BATCH_BYTES, CARRIED_BYTES - self._carried)
        if room.limit <= 0 or free <= 0 or not self._serves:
            return 0
        ask = RelayAsk(
            relay=self._name,
            sinks=self.names,
            tenants=self._tenants,
            webhooks=self._webhooks,
            lease_seconds=self._lease,
            bytes=free,
            **msgspec.structs.asdict(room),
        )
        parcels = await self._store.relay(ask)
        for parcel in parcels:
            self._places.enter(parcel.sink)
            self._carried += text_bytes(parcel.payload)
            task = self._world.spawn(self._carry(parcel, taken_at), f"holdfast-relay-{parcel.sink}")
            self._tries[task] = parcel
            task.add_done_callback(self._ended)
        if parcels:
            self.bell.found()
        return len(parcels)

    async def drain(self) -> None:
        """Send all that is due, and what comes due because of it; but not to sinks that turn out to hang."""
        while await self.take(hurried=True) or self._tries:
            if self._tries:
                await asyncio.wait(self._tries, return_when=asyncio.FIRST_COMPLETED)

    async def end(self, grace_seconds: float) -> None:
        """Take no more, and wait for what is on its way, but no longer than this; the rest is given back."""
        self._over = True
        self.bell.ring()
        if self._loop is not None:
            # A taking that is under way is waited for: cancelled, it might be done and nobody know of it.
            await asyncio.wait([self._loop], timeout=TAKE_SECONDS)
            self._loop.cancel()
        if self._tries:
            await asyncio.wait(self._tries, timeout=grace_seconds)
        self.leave()
        if self._tries:
            await asyncio.wait(self._tries, timeout=GIVE_BACK_SECONDS)

    def leave(self) -> None:
        """Wait for nothing that is on its way."""
        for task in self._tries:
            task.cancel()

    @property
    def _serves(self) -> bool:
        return self._webhooks or bool(self._sinks)

    async def _due_seconds(self) -> float | None:
        if not self._serves:
            return None
        at = await self._store.relay_at(self.names, tenants=self._tenants, webhooks=self._webhooks)
        return None if at is None else max(0.0, (at - await self._store.now()) / SECOND)

    def _ended(self, task: asyncio.Task[None]) -> None:
        parcel = self._tries.pop(task)
        self._places.leave(parcel.sink)
        self._carried -= text_bytes(parcel.payload)
        self._hurry()

    def _hurry(self) -> None:
        """There is room again, and the next message of a line may be due."""
        self._hurried = True
        self.bell.ring()

    # -- one parcel ----------------------------------------------------------------------------

    async def _carry(self, parcel: Parcel, taken_at: float) -> None:
        begun_at = self._world.monotonic()
        limit = POST_SECONDS if parcel.webhook is not None else self._limits[parcel.sink]
        if why := sinks.shut(parcel):
            await self._tell(self._shut(parcel, why))
        elif begun_at - taken_at + limit > self._lease:
            # This process has stood still: begun now, the try could outlive the lease.
            await self._tell(self._said(parcel, "released"))
        else:
            await self._tried(parcel, limit, begun_at)

    def _shut(self, parcel: Parcel, why: Shut) -> Relayed:
        log.warning("message %s to %s cannot be opened here, others may", parcel.id, parcel.sink)
        if why.whole_sink:
            self._places.close(parcel.sink, self._world.monotonic() + SHUT_SECONDS)
            return self._said(parcel, "released", why.error)
        # A young one soon, for someone may have the key; an old one now and then.
        age = (self._world.now() - parcel.created_at) / SECOND
        return self._said(parcel, "released", why.error, min(SHUT_SECONDS, max(1.0, age)))

    async def _tried(self, parcel: Parcel, limit: float, begun_at: float) -> None:
        trying = self._world.spawn(self._try(parcel), f"holdfast-sink-{parcel.sink}")
        said: Relayed | None = None
        is_told = False
        try:
            _, late = await asyncio.wait([trying], timeout=limit)
            said = self._outcome(parcel, trying, limit, begun_at)
            await self._tell(said)
            is_told = True
            if late:
                self._call_off(parcel, trying)
                # It keeps its place until it has really ended: a plain function that hangs holds a thread.
                await asyncio.wait([trying])
        except asyncio.CancelledError:
            # What is done is told once more: called released, it would be done twice.
            if said is None and trying.done():
                said = self._outcome(parcel, trying, limit, begun_at)
            # A plain function goes on, whatever we say: then the lease has to end first.
            elif said is None and self._call_off(parcel, trying):
                said = self._said(parcel, "released")
            if said is not None and not is_told:
                await self._tell(said)
            raise

    def _outcome(self, parcel: Parcel, trying: asyncio.Task[Tried], limit: float, begun_at: float) -> Relayed:
        if not trying.done():
            said = self._failed(parcel, "timeout", f"not taken within {limit:g} s")
        elif trying.cancelled():
            said = self._failed(parcel, "cancelled", "the sink has cancelled itself")
        else:
            said = self._said(parcel, *trying.result())
        seconds = self._world.monotonic() - begun_at
        self._places.answered(parcel.sink, sent=said.answer == "sent", seconds=seconds)
        return said

    def _call_off(self, parcel: Parcel, trying: asyncio.Task[Any]) -> bool:
        """Whether it can be: of a plain function nobody knows when it ends."""
        possible = parcel.webhook is not None or self._sinks[parcel.sink].is_async
        if possible:
            trying.cancel()
        return possible

    def _failed(self, parcel: Parcel, kind: str, why: str) -> Relayed:
        delay = BACKOFF.delay(parcel.attempt, self._world.chance())
        return self._said(parcel, "failed", sinks.failure(kind, "", why), delay)

    async def _try(self, parcel: Parcel) -> Tried:
        delay = BACKOFF.delay(parcel.attempt, self._world.chance())
        try:
            if parcel.webhook is not None:
                await sinks.post(parcel.webhook, parcel, self._poster, self._world)
            else:
                await sinks.call(self._sinks[parcel.sink], parcel, self._world)
        except Refused as why:
            return ("dead" if why.final else "failed"), why.error, max(delay, why.delay_seconds)
        except Fatal as error:
            return "dead", sinks.raised(error), 0.0
        except RetryAfter as error:
            return "failed", sinks.raised(error), _asked(error, delay)
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit too: it would end the event loop
            return "failed", sinks.raised(error), delay
        return "sent", None, 0.0

    def _said(
        self, parcel: Parcel, answer: str, error: Json | None = None, delay_seconds: float = 0.0
    ) -> Relayed:
        """What is to be told; counted here, for it may take more than one attempt to tell it."""
        said = Relayed(
            id=parcel.id, fence=parcel.fence, answer=answer, error=error, delay_seconds=delay_seconds
        )
        self._count(parcel, said)
        return said

    async def _tell(self, said: Relayed) -> None:
        """Tell the store, for as long as it may still listen."""
        give_up_at, pause = self._world.monotonic() + self._lease, ANSWER_SECONDS
        while True:
            try:
                await self._store.relayed([said])
            except StoreError as why:
                if self._world.monotonic() >= give_up_at:
                    log.warning("cannot record that message %s was %s: %s", said.id, said.answer, why)
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, 2.0)
            except Exception:
                log.exception("cannot record that message %s was %s: it is sent again", said.id, said.answer)
                return
            else:
                return

    def _count(self, parcel: Parcel, said: Relayed) -> None:
        if said.answer == "sent":
            self.sent += 1
            log.info("message %s sent to %s at attempt %d", parcel.id, parcel.sink, parcel.attempt)
        elif said.answer != "released":
            self.failed += 1
            again = f"again in {said.delay_seconds:.0f} s" if said.answer == "failed" else "not tried again"
            where, why = (parcel.id, parcel.sink, parcel.attempt), sinks.in_short(said.error)
            log.warning("message %s to %s failed at attempt %d (%s), %s", *where, why, again)


def _asked(error: RetryAfter, usual: float) -> float:
    """The delay that a sink has asked for; the usual one when that is no duration."""
    try:
        return check_duration("delay", error.delay)
    except UsageError:
        return usual
