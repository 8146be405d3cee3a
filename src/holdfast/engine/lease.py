"""Renewal: all of a worker's leases in one write, from where a blocked event loop cannot starve it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.contract import Store
from holdfast.errors import StoreError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import Status
from holdfast.records import Item, Lease, Renewal, Verdict
from holdfast.records.moves import RELEASE
from holdfast.world import Pulse, World

from .outcome import Why

if TYPE_CHECKING:
    from .committer import Committer
    from .held import HeldRun

log = safe_logger("holdfast.lease")

BLOCKED_SECONDS = 1.0  # what no event loop should ever stand still


class Leases:
    """The runs a worker holds, and the beat that keeps them."""

    def __init__(
        self, worker: str, store: Store, world: World, committer: Committer, lease_seconds: float
    ) -> None:
        self._worker, self._store, self._world, self._committer = worker, store, world, committer
        self._lease_seconds = lease_seconds
        self._loop = asyncio.get_running_loop()
        self.held: dict[UUID, HeldRun] = {}
        self._askers: deque[asyncio.Future[None]] = (
            deque()
        )  # filled by the loop, emptied by the beat's thread
        self._strays: set[tuple[UUID, int]] = set()
        self._given_up: dict[tuple[UUID, int], float] = {}
        self._pulse: Pulse | None = None
        self.claiming = False  # a claim is on its way: what it brings is no stray

    def begin(self) -> None:
        """Beat from now on, three times a lease."""
        self._pulse = self._world.pulse(self._beat, self._lease_seconds / 3, "holdfast-renew")

    async def end(self, limit_seconds: float) -> bool:
        """Stop beating; whether a beat that was under way has come to its end."""
        pulse, self._pulse = self._pulse, None
        try:
            async with asyncio.timeout(limit_seconds):
                if pulse is not None:
                    await pulse.stop()
        except TimeoutError:
            return False
        finally:
            _answer(self._askers)  # no further beat takes them
        return True

    def hold(self, execution: HeldRun) -> None:
        """Renew this run from now on. An older execution of it is told that it has lost the run.

        No renewal names the older one any more: nobody else would tell it.
        """
        older = self.held.get(execution.claim.id)
        self.held[execution.claim.id] = execution
        if older is not None:
            older.stop(Why.LOST)

    async def refresh(self) -> None:
        """Renew now and learn what is new; callers at the same time share one write."""
        if self._pulse is None:
            return
        asker: asyncio.Future[None] = self._loop.create_future()
        self._askers.append(asker)
        self._pulse.ask()
        await asker

    def ask(self) -> None:
        """Renew now; nobody waits for it."""
        if self._pulse is not None and self.held:
            self._pulse.ask()

    def give_up(self, run: UUID, fence: int) -> None:
        """Let the lease of a run run out: what could not be executed here counts as a crash.

        It is no stray: given back as one, refunded, it would fail here again and again, for ever.
        """
        self._given_up[run, fence] = self._world.monotonic() + 2 * self._lease_seconds

    def _beat(self) -> None:
        """In the renewal's own thread: no await, nothing that needs the loop to move."""
        claiming = self.claiming
        askers = [self._askers.popleft() for _ in range(len(self._askers))]
        executions, leases = list(self.held.values()), list[Lease]()
        asked_at = self._world.monotonic()
        try:
            leases = [one.lease() for one in executions]
            renewal = self._store.renew(self._worker, leases, self._lease_seconds)
        except Exception as error:
            # Whatever it was, the beat goes on: without it every lease of this worker would be lost.
            mystery = not isinstance(error, StoreError)
            log.warning(
                "cannot renew %d leases, will try again: %s", len(executions), error, exc_info=mystery
            )
            renewal = None
        # Here and not on the loop, which may stand still: its runs find at once that they are held.
        renewed = [False] * len(leases) if renewal is None else [held.renewed for held in renewal.held]
        for execution, lease, written in zip(executions, leases, renewed, strict=False):
            if written:
                execution.lease_clock.renewed(asked_at)
                execution.lease_clock.forgiven |= lease.survived
            else:
                execution.journal.keep_progress(lease.progress)
        try:
            learn = partial(self._learn, executions, renewal, askers, claiming=claiming)
            self._loop.call_soon_threadsafe(self._heard, learn, self._world.monotonic())
        except RuntimeError:
            # The loop has closed while this thread was at the store: nobody is left to tell.
            return

    def _heard(self, learn: Callable[[], None], told_at: float) -> None:
        late = self._world.monotonic() - told_at
        if late > BLOCKED_SECONDS:
            log.warning(
                "the event loop stood still for %.1f s or more: code that blocks (time.sleep, requests, …) "
                "belongs into a plain `def`, which has a thread of its own",
                late,
            )
        learn()

    def _learn(
        self,
        executions: list[HeldRun],
        renewal: Renewal | None,
        askers: list[asyncio.Future[None]],
        *,
        claiming: bool,
    ) -> None:
        if renewal is not None:
            for execution, held in zip(executions, renewal.held, strict=True):
                execution.news(held)
            self._give_back(renewal, claiming=claiming or self.claiming)
        _answer(askers)

    def _give_back(self, renewal: Renewal, *, claiming: bool) -> None:
        """Release strays: runs that a claim took for us and whose reply never came.

        Only when two beats in a row name it with no claim under way: or a claim whose reply is
        still in the loop's queue would be given back while it begins.
        """
        now = self._world.monotonic()
        self._given_up = {one: until for one, until in self._given_up.items() if until > now}
        named = {one for one in renewal.strays if one[0] not in self.held and one not in self._given_up}
        certain = set() if claiming else named & self._strays
        self._strays = set() if claiming else named - certain
        for run, fence in certain:
            log.warning("run %s was claimed here without our knowing: given back", run)
            self._committer.put(Item(run=run, fence=fence, number=1, move=RELEASE), _nothing)


def _answer(askers: Iterable[asyncio.Future[None]]) -> None:
    for asker in askers:
        if not asker.done():
            asker.set_result(None)


def _nothing(verdict: Verdict) -> None:
    assert verdict.status in Status
