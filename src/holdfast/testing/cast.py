"""The cast of a play: each in a process of its own, and whoever falls is replaced by another.

Dying is standing still for ever: not a line of the process runs any more. A zombie stands still until
another holds what it held, and then sends what it was about to send.
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

from .crashes import Crash, Mode, Recorded, Stricken
from .virtual import EPOCH, VirtualWorld

T = TypeVar("T")

PATIENCE_SECONDS = 0.1

Role = Callable[[VirtualWorld, Any], Coroutine[Any, Any, None]]


@dataclass
class _Actor:
    world: VirtualWorld
    role: Role
    fences: dict[UUID, int] | None = None  # what was held when it fell; None while it stands
    fell_at: float = 0.0


class Cast:
    """All who play, each in a process of its own, before one store and one crash."""

    def __init__(
        self,
        store: Any,
        crash: Crash,
        lease_seconds: float,
        *,
        seed: int = 0,
        begins_at: int = EPOCH,
        recorded: Recorded | None = None,
        at_once: bool = False,
    ) -> None:
        # At once: a zombie goes on as soon as another has claimed its run, not when somebody looks.
        self._at_once = at_once
        self._store, self._crash, self._lease_seconds = store, crash, lease_seconds
        self._seed, self._begins_at, self._recorded = seed, begins_at, recorded
        self._actors: list[_Actor] = []
        self._tasks: list[Any] = []

    def enter(self, role: Role) -> VirtualWorld:
        """Someone begins to play: `role(world, store)`, in a world of its own."""
        world = VirtualWorld(self._seed * 100 + len(self._actors), self._begins_at)
        self._actors.append(_Actor(world, role))
        store = Stricken(self._store, self._crash, world, self._recorded, self._took)
        # Kept: the loop holds its tasks only weakly.
        self._tasks.append(world.spawn(role(world, store), getattr(role, "__name__", "role")))
        return world

    @property
    def fallen(self) -> bool:
        """Someone is to be replaced, or stands still and may have to go on."""
        return any(one.world.frozen and (one.fences is None or self._zombie) for one in self._actors)

    @property
    def standing_still(self) -> bool:
        """A zombie has yet to come back."""
        return self._zombie and any(one.world.frozen for one in self._actors)

    @property
    def _zombie(self) -> bool:
        return self._crash.mode is Mode.STAND_STILL and self._crash.fired is not None

    async def go_on(self) -> bool:
        """Replace whoever fell; whoever only stands still goes on once another holds his runs."""
        moved = False
        for actor in [one for one in self._actors if one.world.frozen]:
            if actor.fences is None:
                actor.fences, actor.fell_at = await self._held_under(), actor.world.monotonic()
                self.enter(actor.role)
                moved = True
            elif self._zombie and await self._overtaken(actor):
                actor.world.thaw()
                moved = True
        return moved

    def _took(self, claim: Claim) -> None:
        """If the steps take no time, whoever took over will have ended the run before anybody looks."""
        for actor in self._actors if self._at_once else ():
            held = (actor.fences or {}).get(claim.id, claim.fence)
            if self._zombie and actor.world.frozen and held < claim.fence:
                actor.world.thaw()

    async def _overtaken(self, actor: _Actor) -> bool:
        fences, now = actor.fences or {}, await self._held_under()
        taken = any(fence > fences.get(run, 0) for run, fence in now.items())
        return taken or actor.world.monotonic() - actor.fell_at > 3 * self._lease_seconds

    async def _held_under(self) -> dict[UUID, int]:
        held: dict[UUID, int] = {}
        after: UUID | None = None
        while page := await self._store.list(RunFilter(statuses=(Status.LEASED,), tenant=ANY), after=after):
            held |= {run.id: run.fence for run in page}
            after = page[-1].id
        return held


async def patient(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Ask again and again while the store does not answer."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(PATIENCE_SECONDS)
