"""Wake-ups of the loops of a worker, and the look that they share.

There are three: the claim loop, the keeper and the relay. A hint wakes each of them, and each then does its
own work at once. A poll, or a change of the store that may be no news, needs one look for all three: they
sleep on if it shows nothing that is due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypedDict

from holdfast.engine.wake_up import Looks, WakeUp, poll_of, seconds_until
from holdfast.records import Due

if TYPE_CHECKING:
    from .worker import Worker

BULK_LOOK_SECONDS = 1.0  # longest time from a hint to a look for bulk operations, without other workflows


class Shared(TypedDict):
    """The arguments of the loops that share their looks."""

    looks: Looks
    poll: Callable[[], float]


class Looking:
    """The wake-ups of one worker. `poll_seconds`: its longest sleep; None: what the store asks for. Without
    hints the keeper and the relay look every second all the same: timers must not wait for a slow poll.

    `executes`: says whether it has workflows of its own, or executes runs.
    """

    def __init__(
        self,
        worker: Worker,
        poll_seconds: float | None,
        *,
        executes: Callable[[], bool],
        wait_timeouts: bool,
    ) -> None:
        self._worker, self._looks = worker, Looks(self._ask)
        self._executes, self._wait_timeouts = executes, wait_timeouts
        self._poll = poll_of(worker.store, chosen=poll_seconds)
        self.claims = WakeUp(self._poll if poll_seconds is None else poll_seconds)
        self._hinted = False

    @property
    def shared(self) -> Shared:
        """The arguments with which the keeper and the relay share the looks."""
        return {"looks": self._looks, "poll": self._poll}

    async def _ask(self) -> Due:
        worker = self._worker
        return await worker.store.due(
            worker.versions.claimed,
            worker.tenants,
            wait_timeouts=self._wait_timeouts,
            runtime=worker.runtime,
            besides=worker.keeper.unfirable(),
            sinks=worker.relay.names,
            webhooks=worker.relay.webhooks,
        )

    async def at_claims(self, since: float) -> tuple[float | None, float]:
        """Return the seconds until there may be something to claim, from a look that may be shared, and when
        that look began. None: nothing is in sight.
        """
        look = await self._looks.since(since)
        return look.seconds_until(look.due.claim_at), look.asked_at

    async def after_claim(self, types: Sequence[str]) -> float | None:
        """Return the same after a claim that has found less than it asked for."""
        worker = self._worker
        due = await worker.store.due(types, worker.tenants, runtime=worker.runtime)
        return seconds_until(due.claim_at, due.now)

    def hint(self) -> None:
        """Take a hint of the store: each loop looks for its own work."""
        self._looks.expire()
        self._wake_claims(self.news)
        self._worker.keeper.wake_up.ring()
        self._worker.relay.wake_up.ring()

    def changed(self) -> None:
        """Take the news that something has changed, perhaps only a presence: one look tells all loops."""
        self._looks.expire()
        self._wake_claims(self._news_perhaps)
        self._worker.keeper.wake_up.ring_for_change()
        self._worker.relay.wake_up.ring_for_change()

    def _wake_claims(self, wake: Callable[[], None]) -> None:
        if self._executes():
            wake()
        elif not self._hinted:
            # Without workflows of its own it looks only for bulk operations: not after every start of others.
            self._hinted = True
            self._worker.world.linger(BULK_LOOK_SECONDS, wake)

    def news(self) -> None:
        """There may be work, and news for runs that are executed here."""
        self._hinted = False
        self.claims.ring()
        self._worker.refresh.soon()

    def _news_perhaps(self) -> None:
        self._hinted = False
        self.claims.ring_for_change()
        self._worker.refresh.soon()
