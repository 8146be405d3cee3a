"""Simulated processes: each has a world of its own, and a process that crashed is replaced by another.

A crashed process is frozen for ever: not a line of it runs any more. A zombie is frozen until another process
holds its runs, and then sends what it was about to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from holdfast.errors import Unavailable
from holdfast.lifecycle import Status
from holdfast.records import ANY, Claim, RunFilter

from .crashes import Crash, CrashingStore, Mode, Recorded
from .virtual import EPOCH, VirtualWorld

T = TypeVar("T")

RETRY_SECONDS = 0.1

Program = Callable[[VirtualWorld, Any], Coroutine[Any, Any, None]]


@dataclass
class _Process:
    world: VirtualWorld
    program: Program
    # The fences of all leased runs when it crashed; None while it runs, or is not replaced yet.
    fences: dict[UUID, int] | None = None
    crashed_at: float = 0.0


class Processes:
    """All simulated processes of one store, with one crash."""

    def __init__(
        self,
        store: Any,
        crash: Crash,
        lease_seconds: float,
        *,
        seed: int = 0,
        begins_at: int = EPOCH,
        recorded: Recorded | None = None,
        thaw_on_claim: bool = False,
    ) -> None:
        # thaw_on_claim: a zombie goes on as soon as another process claims its run, not at the next look.
        self._thaw_on_claim = thaw_on_claim
        self._store, self._crash, self._lease_seconds = store, crash, lease_seconds
        self._seed, self._begins_at, self._recorded = seed, begins_at, recorded
        self._processes: list[_Process] = []
        self._tasks: list[Any] = []

    def start(self, program: Program) -> VirtualWorld:
        """Start a process: it runs `program(world, store)` in a world of its own."""
        world = VirtualWorld(self._seed * 100 + len(self._processes), self._begins_at)
        self._processes.append(_Process(world, program))
        store = CrashingStore(self._store, self._crash, world, self._recorded, self._claimed)
        # A reference to the task: the loop itself holds its tasks only weakly.
        self._tasks.append(world.spawn(program(world, store), getattr(program, "__name__", "program")))
        return world

    @property
    def any_crashed(self) -> bool:
        """Return True when a process has to be replaced, or is a frozen zombie."""
        return any(one.world.frozen and (one.fences is None or self._zombie) for one in self._processes)

    @property
    def zombie_frozen(self) -> bool:
        """Return True when a zombie has yet to come back."""
        return self._zombie and any(one.world.frozen for one in self._processes)

    @property
    def _zombie(self) -> bool:
        return self._crash.mode is Mode.STAND_STILL and self._crash.fired is not None

    async def replace_crashed(self) -> bool:
        """Replace crashed processes, and thaw a zombie once another process holds its runs."""
        changed = False
        for process in [one for one in self._processes if one.world.frozen]:
            if process.fences is None:
                process.fences, process.crashed_at = await self._leased(), process.world.monotonic()
                self.start(process.program)
                changed = True
            elif self._zombie and await self._overtaken(process):
                process.world.thaw()
                changed = True
        return changed

    def _claimed(self, claim: Claim) -> None:
        """Thaw the zombie at this claim: steps that take no time may end the run before the next look."""
        for process in self._processes if self._thaw_on_claim else ():
            fence = (process.fences or {}).get(claim.id, claim.fence)
            if self._zombie and process.world.frozen and fence < claim.fence:
                process.world.thaw()

    async def _overtaken(self, process: _Process) -> bool:
        fences, now = process.fences or {}, await self._leased()
        taken = any(fence > fences.get(run, 0) for run, fence in now.items())
        return taken or process.world.monotonic() - process.crashed_at > 3 * self._lease_seconds

    async def _leased(self) -> dict[UUID, int]:
        """Return the fence of each leased run."""
        fences: dict[UUID, int] = {}
        after: UUID | None = None
        while page := await self._store.list(RunFilter(statuses=(Status.LEASED,), tenant=ANY), after=after):
            fences |= {run.id: run.fence for run in page}
            after = page[-1].id
        return fences


async def retry_unavailable(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call until the store answers."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(RETRY_SECONDS)
