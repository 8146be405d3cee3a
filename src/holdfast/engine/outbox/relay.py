"""The relay: takes committed messages out of the outbox and delivers each to its sink, at least once.

Any number of relays may run at once, in workers or alone. A relay holds its messages by a lease that is
longer than any try, so that two relays never send messages of one key at the same time. A message without a
recorded answer is sent again by another relay when the lease has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.arguments import check_duration
from holdfast.backoff import Backoff
from holdfast.bounds import BATCH_BYTES, MIB, text_bytes
from holdfast.contract import Store
from holdfast.engine.measured import measures_of
from holdfast.engine.tracing.send_spans import SendSpan
from holdfast.engine.wake_up import LOOK_SECONDS, Looks, WakeUp, between_looks, poll_of, seconds_until
from holdfast.engine.worker.chores import TROUBLE_SECONDS, will_retry
from holdfast.errors import Fatal, RetryAfter, StoreError, UsageError
from holdfast.escaping import safe_logger
from holdfast.records import SECOND, Json, Parcel, RelayAsk, Relayed
from holdfast.world import World

from . import sinks
from .http_post import POST_SECONDS, Poster
from .relay_slots import SinkSlots
from .sinks import DELAY_MAX_SECONDS, Refused, Sinks, Unopenable

log = safe_logger("holdfast.relay")

# Added to the longest try for the lease: the time in which the answer may reach the store.
MARGIN_SECONDS = 30.0
CARRIED_BYTES = 256 * MIB  # bytes of messages in flight: 64 of the largest size
UNOPENABLE_SECONDS = 60.0  # time for which a relay without the key leaves a message, or a webhook, to others
TAKE_SECONDS = 5.0  # time for which an ending relay waits for the answer to its last take
GIVE_BACK_SECONDS = 5.0
ANSWER_SECONDS = 0.1  # delay between two attempts to record an answer, doubling
BACKOFF = Backoff.exponential(0.5, cap=DELAY_MAX_SECONDS, jitter=0.1)  # 1 s, 2 s, 4 s, … 1 h


Tried = tuple[str, Json | None, float]  # the result of a try: answer, error, delay of the retry


class Relay:
    """A relay: one loop that takes due messages, and the tries in flight."""

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
        looks: Looks | None = None,
        poll: Callable[[], float] | None = None,
    ) -> None:
        self._store, self._world, self._name = store, world, name
        self._sinks, self._tenants, self._webhooks = functions or {}, tenants, webhooks
        self._poster = poster or Poster(world)
        self._limits = {name: one.timeout_seconds for name, one in self._sinks.items()}
        self._lease = max(POST_SECONDS, *self._limits.values(), 0.0) + MARGIN_SECONDS
        self._tries: dict[asyncio.Task[None], Parcel] = {}
        self._slots = SinkSlots()
        self._carried = 0  # bytes of the messages in flight
        self._loop: asyncio.Task[None] | None = None
        self._hurried = self._over = False
        self._looks = looks
        self.wake_up = WakeUp(poll or poll_of(store))
        self.sent = self.failed = 0
        self._measures = measures_of(store)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its function sinks."""
        return tuple(self._sinks)

    @property
    def webhooks(self) -> bool:
        """True when it posts to webhooks."""
        return self._webhooks

    def begin(self) -> None:
        """Start a task that sends messages as they come due."""
        if self._serves:
            self._loop = self._world.spawn(self.run(), "holdfast-relay")

    async def run(self) -> None:
        """Send due messages, round after round, until `end` is called."""
        clock = asyncio.get_running_loop().time
        since: float | None = None
        while not self._over:
            looked_at = asked_at = clock()
            apart, self._hurried = LOOK_SECONDS, False
            try:
                if self._looks is None or since is None:
                    due = await self._due_seconds()
                else:
                    look = await self._looks.since(since)
                    due, asked_at = look.seconds_until(look.due.relay_at), look.asked_at
                apart = between_looks(clock() - looked_at)
                if due == 0.0:
                    await self.take()
            except Exception as error:  # noqa: BLE001 - it is logged
                will_retry(log, "send messages", error, self._measures)
                due = TROUBLE_SECONDS
            since = await self.wake_up.wait(due, asked_at)
            # A wake-up comes with every commit. Only events in this relay are followed without delay.
            early = looked_at + min(apart, due or apart) - clock()
            if early > 0 and not self._hurried and not self._over:
                await asyncio.sleep(early)

    async def take(self, *, hurried: bool = False) -> int:
        """Begin to send due messages, as far as there are free slots; return their number. `hurried`: not to
        slow sinks.
        """
        taken_at = self._world.monotonic()
        quota = self._slots.quota(taken_at, hurried=hurried)
        free = min(BATCH_BYTES, CARRIED_BYTES - self._carried)
        if quota.limit <= 0 or free <= 0 or not self._serves:
            return 0
        ask = RelayAsk(
            relay=self._name,
            sinks=self.names,
            tenants=self._tenants,
            webhooks=self._webhooks,
            lease_seconds=self._lease,
            bytes=free,
            **msgspec.structs.asdict(quota),
        )
        parcels = await self._store.relay(ask)
        for parcel in parcels:
            self._slots.enter(parcel.sink)
            self._carried += text_bytes(parcel.payload)
            task = self._world.spawn(self._carry(parcel, taken_at), f"holdfast-relay-{parcel.sink}")
            self._tries[task] = parcel
            task.add_done_callback(self._ended)
        if parcels:
            self.wake_up.found()
        return len(parcels)

    async def drain(self) -> None:
        """Send all due messages, and those that come due because of them, but not to sinks that hang."""
        while await self.take(hurried=True) or self._tries:
            if self._tries:
                await asyncio.wait(self._tries, return_when=asyncio.FIRST_COMPLETED)

    async def end(self, grace_seconds: float) -> None:
        """Take no more messages, wait at most `grace_seconds` for those in flight, and give the rest back."""
        self._over = True
        self.wake_up.ring()
        if self._loop is not None:
            # Wait for a take in progress: if cancelled, it might succeed in the store without our knowledge.
            await asyncio.wait([self._loop], timeout=TAKE_SECONDS)
            self._loop.cancel()
        if self._tries:
            await asyncio.wait(self._tries, timeout=grace_seconds)
        self.leave()
        if self._tries:
            await asyncio.wait(self._tries, timeout=GIVE_BACK_SECONDS)

    def leave(self) -> None:
        """Cancel all tries in flight."""
        for task in self._tries:
            task.cancel()

    @property
    def _serves(self) -> bool:
        return self._webhooks or bool(self._sinks)

    async def _due_seconds(self) -> float | None:
        if not self._serves:
            return None
        at = await self._store.relay_at(self.names, tenants=self._tenants, webhooks=self._webhooks)
        return None if at is None else seconds_until(at, await self._store.now())

    def _ended(self, task: asyncio.Task[None]) -> None:
        parcel = self._tries.pop(task)
        self._slots.leave(parcel.sink)
        self._carried -= text_bytes(parcel.payload)
        self._hurry()

    def _hurry(self) -> None:
        """Look again without delay: a slot is free, and the next message of a key may be due."""
        self._hurried = True
        self.wake_up.ring()

    # -- one parcel ----------------------------------------------------------------------------

    async def _carry(self, parcel: Parcel, taken_at: float) -> None:
        begun_at = self._world.monotonic()
        limit = POST_SECONDS if parcel.webhook is not None else self._limits[parcel.sink]
        if why := sinks.unopenable(parcel):
            await self._record(self._unopenable(parcel, why))
        elif begun_at - taken_at + limit > self._lease:
            # The process was suspended: a try that begins now could outlive the lease.
            await self._record(self._said(parcel, "released"))
        else:
            await self._tried(parcel, limit, begun_at)

    def _unopenable(self, parcel: Parcel, why: Unopenable) -> Relayed:
        log.warning(
            "message %s to %s cannot be decrypted here; another worker may be able to", parcel.id, parcel.sink
        )
        if why.whole_sink:
            self._slots.close(parcel.sink, self._world.monotonic() + UNOPENABLE_SECONDS)
            return self._said(parcel, "released", why.error)
        # Retry a young message soon, for another relay may have the key; an old one at longer intervals.
        age = (self._world.now() - parcel.created_at) / SECOND
        return self._said(parcel, "released", why.error, min(UNOPENABLE_SECONDS, max(1.0, age)))

    async def _tried(self, parcel: Parcel, limit: float, begun_at: float) -> None:
        trying = self._world.spawn(self._try(parcel), f"holdfast-sink-{parcel.sink}")
        said: Relayed | None = None
        is_recorded = False
        try:
            _, late = await asyncio.wait([trying], timeout=limit)
            said = self._outcome(parcel, trying, limit, begun_at)
            await self._record(said)
            is_recorded = True
            if late:
                self._cancel_try(parcel, trying)
                # The try keeps its slot until it has really ended: a sync function that hangs holds a thread.
                await asyncio.wait([trying])
        except asyncio.CancelledError:
            # Record a finished try once more: if recorded as released, it would be sent twice.
            if said is None and trying.done():
                said = self._outcome(parcel, trying, limit, begun_at)
            # A sync function goes on in its thread: the lease must end before another try.
            elif said is None and self._cancel_try(parcel, trying):
                said = self._said(parcel, "released")
            if said is not None and not is_recorded:
                await self._record(said)
            raise

    def _outcome(self, parcel: Parcel, trying: asyncio.Task[Tried], limit: float, begun_at: float) -> Relayed:
        if not trying.done():
            said = self._failed(parcel, "timeout", f"not taken within {limit:g} s")
        elif trying.cancelled():
            said = self._failed(parcel, "cancelled", "the sink has cancelled itself")
        else:
            said = self._said(parcel, *trying.result())
        seconds = self._world.monotonic() - begun_at
        self._slots.answered(parcel.sink, sent=said.answer == "sent", seconds=seconds)
        return said

    def _cancel_try(self, parcel: Parcel, trying: asyncio.Task[Any]) -> bool:
        """Cancel a try and return True; False for a sync function, which cannot be cancelled."""
        possible = parcel.webhook is not None or self._sinks[parcel.sink].is_async
        if possible:
            trying.cancel()
        return possible

    def _failed(self, parcel: Parcel, kind: str, why: str) -> Relayed:
        delay = BACKOFF.delay(parcel.attempt, self._world.chance())
        return self._said(parcel, "failed", sinks.failure(kind, "", why), delay)

    async def _try(self, parcel: Parcel) -> Tried:
        span = SendSpan(parcel)
        tried: Tried = "cancelled", None, 0.0
        try:
            tried = await self._delivered(parcel, span.traceparent)
        finally:
            span.end(tried[0], sinks.read(tried[1]))
        return tried

    async def _delivered(self, parcel: Parcel, traceparent: str) -> Tried:
        delay = BACKOFF.delay(parcel.attempt, self._world.chance())
        try:
            if parcel.webhook is not None:
                await sinks.post(parcel.webhook, parcel, self._poster, self._world, traceparent)
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
        """Return the answer to record. It is counted here, because recording it may take several attempts."""
        said = Relayed(
            id=parcel.id, fence=parcel.fence, answer=answer, error=error, delay_seconds=delay_seconds
        )
        self._count(parcel, said)
        return said

    async def _record(self, said: Relayed) -> None:
        """Record the answer in the store; retry while the lease may still be valid."""
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
                log.exception(
                    "cannot record that message %s was %s: it will be sent again", said.id, said.answer
                )
                return
            else:
                return

    def _count(self, parcel: Parcel, said: Relayed) -> None:
        if self._measures is not None and said.answer != "released":
            self._measures.relayed(parcel.sink, sent=said.answer == "sent")
        if said.answer == "sent":
            self.sent += 1
            log.info("message %s sent to %s at attempt %d", parcel.id, parcel.sink, parcel.attempt)
        elif said.answer != "released":
            self.failed += 1
            again = f"retry in {said.delay_seconds:.0f} s" if said.answer == "failed" else "no more retries"
            where, why = (parcel.id, parcel.sink, parcel.attempt), sinks.in_short(said.error)
            log.warning("message %s to %s failed at attempt %d (%s), %s", *where, why, again)


def _asked(error: RetryAfter, usual: float) -> float:
    """Return the delay that a sink has asked for; the usual delay when that is no duration."""
    try:
        return check_duration("delay", error.delay)
    except UsageError:
        return usual
