"""A store that fails at the n-th call: its caller dies, stands still, or is left without an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Any

from holdfast.errors import Unavailable
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Item, Verdict
from holdfast.testing.virtual import VirtualWorld

from .journey import Pages
from .ledger import Entry


class Mode(StrEnum):
    """What happens at the call."""

    DIE_BEFORE = "die before"
    DIE_AFTER = "die after"
    REPLY_LOST = "reply lost"
    NEVER_SENT = "never sent"
    STAND_STILL = "stand still before"


# Reading changes nothing: whether the caller dies before or after it is the same.
READS = frozenset({"now", "get", "list", "steps", "trail", "waiting_on", "definitions", "due", "stats"})
LOOKS = frozenset({"claim", "tick", "deliver"})


def modes_of(verb: str, *, briefly: bool) -> tuple[Mode, ...]:
    """The ways to fail that differ for this verb; briefly: when it is only a look that finds nothing."""
    if briefly:
        return (Mode.DIE_BEFORE,)
    return (Mode.DIE_BEFORE, Mode.NEVER_SENT, Mode.STAND_STILL) if verb in READS else tuple(Mode)


CALLS_MAX = 20_000


class Fault:
    """One fault at one call, counted over all who use the store."""

    def __init__(self, at: int = 0, mode: Mode = Mode.DIE_BEFORE) -> None:
        self.at, self.mode, self.calls = at, mode, 0
        self.fired: str | None = None  # the verb
        self.verbs: list[str] = []
        self.idle: set[int] = set()  # calls that found nothing to do
        self.graves: list[asyncio.Future[None]] = []

    def thaw(self, world: VirtualWorld) -> None:
        """Whoever stood still goes on with what he was about to send."""
        world.thaw()
        for grave in self.graves:
            grave.set_result(None)

    def strikes(self, verb: str) -> Mode | None:
        self.calls += 1
        if self.calls > CALLS_MAX:
            raise RuntimeError(f"more than {CALLS_MAX} store calls: something goes round in circles")
        self.verbs.append(verb)
        if self.calls != self.at:
            return None
        self.fired = verb
        return self.mode


class Faulty:
    """The store as one process sees it."""

    def __init__(self, store: Any, fault: Fault, world: VirtualWorld, pages: Pages) -> None:
        self._store, self._fault, self._world, self._pages = store, fault, world, pages
        # What is no call to a server cannot be lost on the way.
        self.open, self.close, self.listen = store.open, store.close, store.listen

    def __getattr__(self, verb: str) -> Any:
        """Every other verb."""
        return partial(self._call, verb, getattr(self._store, verb))

    async def _call(self, verb: str, real: Any, *args: Any, **options: Any) -> Any:
        mode = self._fault.strikes(verb)
        if mode in {Mode.DIE_BEFORE, Mode.STAND_STILL}:
            await self._freeze()
        if mode is Mode.NEVER_SENT:
            raise Unavailable(f"{verb} was not sent")
        number = self._fault.calls
        answer = await real(*args, **options)
        if verb in READS or (verb in LOOKS and not getattr(answer, "total", answer)):
            self._fault.idle.add(number)
        if verb == "commit":
            self._note(args[0], answer)
        if mode is Mode.DIE_AFTER:
            await self._freeze()
        if mode is Mode.REPLY_LOST:
            raise Unavailable(f"the reply to {verb} was lost")
        return answer

    def renew(self, *args: Any) -> Any:
        mode = self._fault.strikes("renew")
        if mode in {Mode.DIE_BEFORE, Mode.STAND_STILL}:
            self._world.freeze()
        if mode in {Mode.DIE_BEFORE, Mode.STAND_STILL, Mode.NEVER_SENT}:
            raise Unavailable("renew was not sent")
        if not args[1]:
            self._fault.idle.add(self._fault.calls)
        renewal = self._store.renew(*args)
        if mode is Mode.DIE_AFTER:
            self._world.freeze()
        if mode in {Mode.DIE_AFTER, Mode.REPLY_LOST}:
            raise Unavailable("the reply to renew was lost")
        return renewal

    async def _freeze(self) -> None:
        """Nothing of this process runs any more; for ever, unless somebody thaws it."""
        self._world.freeze()
        grave: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Kept, or nobody would hold on to the task that waits here, and it would be collected as garbage.
        self._fault.graves.append(grave)
        await grave

    def _note(self, batch: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
        """From here on these steps must not be done again."""
        for item, verdict in zip(batch, verdicts, strict=True):
            for step in item.steps if verdict.answer in {"applied", "paused"} else ():
                if step.kind is StepKind.TASK and step.status in {StepStatus.SUCCEEDED, StepStatus.FAILED}:
                    self._pages.note(
                        Entry(kind="recorded", run=str(item.run), step=step.key, fence=item.fence)
                    )
