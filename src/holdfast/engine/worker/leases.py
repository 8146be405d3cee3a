"""The renewal of leases: all of a worker's leases in one write, from a thread of its own.

A blocked event loop cannot delay it.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.contract import Store
from holdfast.engine.outcome import StopReason
from holdfast.errors import StoreError
from holdfast.escaping import safe_logger
from holdfast.records import Item, Lease, Renewal, Verdict
from holdfast.records.moves import RELEASE
from holdfast.world import Pulse, World

if TYPE_CHECKING:
    from holdfast.engine.commit.committer import Committer

    from .held_run import HeldRun

log = safe_logger("holdfast.lease")

STRAY_LEASES = 2  # lease times after a claim in which a worker without runs looks for strays: several beats
BLOCKED_SECONDS = 1.0  # an event loop that was blocked longer than this is logged
_RUN_TASK = "run "  # the names of tasks that execute runs begin with this


class Leases:
    """The runs that a worker holds, and the beat (a thread) that renews their leases."""

    def __init__(
        self, worker: str, store: Store, world: World, committer: Committer, lease_seconds: float
    ) -> None:
        self._worker, self._store, self._world, self._committer = worker, store, world, committer
        self._lease_seconds = lease_seconds
        self._loop = asyncio.get_running_loop()
        self.held: dict[UUID, HeldRun] = {}
        # Filled by the event loop, emptied by the beat's thread.
        self._askers: deque[asyncio.Future[None]] = deque()
        self._strays: set[tuple[UUID, int]] = set()
        self._given_up: dict[tuple[UUID, int], float] = {}
        self._pulse: Pulse | None = None
        self._warned_at = -math.inf  # when a blocked event loop was logged
        self._claiming = False
        self._strays_until = -math.inf  # until then there may be strays of the last claim

    def begin(self) -> None:
        """Start the beat, which renews three times in each lease time."""
        self._pulse = self._world.pulse(self._beat, self._lease_seconds / 3, "holdfast-renew")

    @property
    def claiming(self) -> bool:
        """True when a claim is on its way: a run that it brings is no stray."""
        return self._claiming

    @claiming.setter
    def claiming(self, under_way: bool) -> None:
        self._claiming = under_way
        self._strays_until = (
            math.inf if under_way else self._world.monotonic() + STRAY_LEASES * self._lease_seconds
        )

    async def end(self, limit_seconds: float) -> bool:
        """Stop the beat. Return True when a running beat has ended."""
        pulse, self._pulse = self._pulse, None
        try:
            async with asyncio.timeout(limit_seconds):
                if pulse is not None:
                    await pulse.stop()
        except TimeoutError:
            return False
        finally:
            _answer(self._askers)  # no further beat renews them
        return True

    def hold(self, execution: HeldRun) -> None:
        """Renew this run from now on. An older execution of the same run is stopped as lost.

        Renewals no longer name the older execution, so nothing else would stop it.
        """
        older = self.held.get(execution.claim.id)
        self.held[execution.claim.id] = execution
        if older is not None:
            older.stop(StopReason.LOST)

    async def refresh(self) -> None:
        """Renew now and take the news; concurrent callers share one write."""
        if self._pulse is None:
            return
        asker: asyncio.Future[None] = self._loop.create_future()
        self._askers.append(asker)
        self._pulse.ask()
        await asker

    def ask(self) -> None:
        """Renew now, without waiting."""
        if self._pulse is not None and self.held:
            self._pulse.ask()

    def give_up(self, run: UUID, fence: int) -> None:
        """Stop renewing a run that could not be executed here: its lease expires and counts as a crash.

        It is not released as a stray: with its attempt refunded it would fail here for ever.
        """
        self._given_up[run, fence] = self._world.monotonic() + 2 * self._lease_seconds

    def _beat(self) -> None:
        """Renew once, in the renewal's own thread: no await, nothing that needs the event loop."""
        claiming = self.claiming
        askers = [self._askers.popleft() for _ in range(len(self._askers))]
        executions, leases = list(self.held.values()), list[Lease]()
        asked_at = self._world.monotonic()
        if not executions and not askers and asked_at > self._strays_until:
            return  # nothing to renew, and no claim of late whose runs might be strays
        try:
            leases = [one.lease() for one in executions]
            renewal = self._store.renew(self._worker, leases, self._lease_seconds)
        except Exception as error:
            # The beat goes on after any error: without it every lease of this worker would be lost.
            mystery = not isinstance(error, StoreError)
            log.warning("cannot renew %d leases, will retry: %s", len(executions), error, exc_info=mystery)
            renewal = None
        # Noted here and not on the event loop, which may be blocked: steps learn at once that the lease
        # holds.
        renewed = [False] * len(leases) if renewal is None else [held.renewed for held in renewal.held]
        for execution, lease, written in zip(executions, leases, renewed, strict=False):
            if written:
                execution.lease_clock.renewed(asked_at)
                execution.lease_clock.forgiven |= lease.survived
            else:
                execution.journal.keep_progress(lease.progress)
        try:
            learn = partial(self._learn, executions, renewal, askers, claiming=claiming)
            # The task that the loop is in now. If the loop is blocked, this task blocks it.
            task = asyncio.current_task(self._loop)
            self._loop.call_soon_threadsafe(self._heard, learn, self._world.monotonic(), task)
        except RuntimeError:
            # The event loop was closed during this call: there is nobody to notify.
            return

    def _heard(
        self, learn: Callable[[], None], told_at: float, task: asyncio.Task[Any] | None = None
    ) -> None:
        """Take the news of one beat. Beats that came while the loop was blocked arrive together afterwards:
        only the first of them logs a warning.
        """
        now = self._world.monotonic()
        late = now - told_at
        if late > BLOCKED_SECONDS and told_at > self._warned_at:
            name = "" if task is None else task.get_name()
            log.warning(
                "the event loop was blocked for %.1f s or more%s: put blocking code (time.sleep, requests, "
                "…) into a sync `def`, which runs in a thread",
                late,
                f" by {name}" if name.startswith(_RUN_TASK) else "",
            )
            self._warned_at = now
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
        """Release strays: runs that a claim leased to this worker and whose reply was lost.

        A run is released when two beats in a row name it with no claim on its way: otherwise a run whose
        claim reply is still in the event loop's queue would be given back while it begins.
        """
        now = self._world.monotonic()
        self._given_up = {one: until for one, until in self._given_up.items() if until > now}
        named = {one for one in renewal.strays if one[0] not in self.held and one not in self._given_up}
        certain = set() if claiming else named & self._strays
        self._strays = set() if claiming else named - certain
        for run, fence in certain:
            log.warning("run %s is leased to this worker, which does not know it: released", run)
            self._committer.put(Item(run=run, fence=fence, number=1, move=RELEASE), _ignore)


def task_name(run: UUID, type_: str) -> str:
    """Return the name of the task that executes a run. A warning about a blocked event loop shows it."""
    return f"{_RUN_TASK}{run} ({type_})"


def _answer(askers: Iterable[asyncio.Future[None]]) -> None:
    for asker in askers:
        if not asker.done():
            asker.set_result(None)


def _ignore(_verdict: Verdict) -> None:
    return
