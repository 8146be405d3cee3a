"""Crashes at the n-th store call, and the cast that goes on: whoever falls is replaced by another.

Dying is standing still for ever: not a line of the process runs any more. A zombie stands still until
another holds what it held, and then sends what it was about to send.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar, assert_never
from uuid import UUID

from holdfast.errors import Unavailable
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import Item, RunFilter, StepWrite, Verdict

from .faulty import Fault, Faulty, Heard, die_after, die_before, fail_before, lose_reply, send_twice
from .virtual import EPOCH, VirtualWorld

T = TypeVar("T")

PATIENCE_SECONDS = 0.1

Role = Callable[[VirtualWorld, Any], Coroutine[Any, Any, None]]
Recorded = Callable[[Item, StepWrite], None]


class Mode(StrEnum):
    """What happens at the call."""

    DIE_BEFORE = "die before"
    DIE_AFTER = "die after"
    REPLY_LOST = "reply lost"
    NEVER_SENT = "never sent"
    SENT_TWICE = "sent twice"
    STAND_STILL = "stand still before"


# Reading changes nothing: whether the caller dies before or after it is the same.
READS = frozenset({"now", "get", "list", "steps", "trail", "waiting_on", "definitions", "due", "stats"})
LOOKS = frozenset({"claim", "tick", "deliver", "purge"})
# What is no call to a server cannot be lost on the way.
LOCAL = frozenset({"open", "close"})


@dataclass(slots=True)
class Made:
    """One store call: the n-th of all, the n-th of its verb, what it carried, whether it found nothing."""

    number: int
    verb: str
    nth: int
    carried: str = ""
    idle: bool = False

    def __str__(self) -> str:
        """In words."""
        return f"{self.verb} {self.nth}{': ' if self.carried else ''}{self.carried}"


def modes_of(made: Made, *, briefly: bool) -> tuple[Mode, ...]:
    """The ways to fail that differ for this call; briefly: one for a mere look that finds nothing."""
    if made.idle and briefly:
        return (Mode.DIE_BEFORE,)
    if made.verb in READS:
        return (Mode.DIE_BEFORE, Mode.NEVER_SENT, Mode.STAND_STILL)
    return tuple(Mode)


class Crash:
    """One fault at one call, counted over all who use the store; none when `at` is 0."""

    def __init__(self, at: int = 0, mode: Mode = Mode.DIE_BEFORE, calls_max: int = 20_000) -> None:
        self.at, self.mode, self._calls_max = at, mode, calls_max
        self.made: list[Made] = []
        self.fired: Made | None = None
        self._verbs: Counter[str] = Counter()

    def strikes(self, verb: str, world: VirtualWorld) -> tuple[Fault | None, Made | None]:
        """What is to happen at this call; and the call, to be described once it is answered."""
        if len(self.made) >= self._calls_max:
            raise RuntimeError(f"more than {self._calls_max} store calls: something goes round in circles")
        self._verbs[verb] += 1
        made = Made(len(self.made) + 1, verb, self._verbs[verb])
        self.made.append(made)
        if made.number != self.at:
            return None, made
        self.fired = made
        return _fault(self.mode, world), made


class Calm(Crash):
    """None at all, and nothing is counted: for plays of any length."""

    def strikes(self, verb: str, world: VirtualWorld) -> tuple[Fault | None, Made | None]:
        return None, None


def _fault(mode: Mode, world: VirtualWorld) -> Fault:
    match mode:
        case Mode.DIE_BEFORE | Mode.STAND_STILL:
            return die_before(world)
        case Mode.DIE_AFTER:
            return die_after(world)
        case Mode.REPLY_LOST:
            return lose_reply
        case Mode.NEVER_SENT:
            return fail_before
        case Mode.SENT_TWICE:
            return send_twice
        case _:
            assert_never(mode)


class Stricken(Faulty):
    """The store as one process sees it: it hears nothing once the process is dead."""

    def __init__(self, store: Any, crash: Crash, world: VirtualWorld, recorded: Recorded | None) -> None:
        super().__init__(store)
        self._crash, self._world, self._recorded = crash, world, recorded

    def struck(self, verb: str, args: tuple[Any, ...]) -> tuple[Fault | None, Heard | None]:
        """The crash, if it is this call's."""
        if verb in LOCAL:
            return None, None
        if self._world.frozen:
            return die_before(self._world), None  # it died between two calls, in the middle of its code
        fault, made = self._crash.strikes(verb, self._world)
        return fault, None if made is None else partial(self._heard, made, args)

    def _heard(self, made: Made, args: tuple[Any, ...], answer: Any) -> None:
        made.idle = _found_nothing(made.verb, args, answer)
        made.carried = _carried(made.verb, args, answer)
        if made.verb == "commit":
            self._note(args[0], answer)

    def _note(self, batch: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
        """From here on these steps must not be done again."""
        for item, verdict in zip(batch, verdicts, strict=True):
            for step in item.steps if verdict.answer in {"applied", "paused"} else ():
                final = step.status in {StepStatus.SUCCEEDED, StepStatus.FAILED}
                if self._recorded is not None and step.kind is StepKind.TASK and final:
                    self._recorded(item, step)


def _found_nothing(verb: str, args: tuple[Any, ...], answer: Any) -> bool:
    if verb == "renew":
        return not args[1]
    return verb in READS or (verb in LOOKS and not getattr(answer, "total", answer))


def _carried(verb: str, args: tuple[Any, ...], answer: Any) -> str:
    match verb:
        case "claim":
            return ", ".join(f"took {claim.type}" for claim in answer)
        case "commit":
            return "; ".join(map(_words, args[0]))
        case "tick":
            counts = {name: getattr(answer, name) for name in type(answer).__struct_fields__}
            return ", ".join(f"{n} {name}" for name, n in counts.items() if n and isinstance(n, int))
        case _:
            return ""


def _words(item: Item) -> str:
    steps = [f"{'step' if one.kind is StepKind.TASK else one.kind} {one.key!r}" for one in item.steps]
    return f"{item.move} of {', '.join(steps)}" if steps else f"{item.move} of the run"


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
    ) -> None:
        self._store, self._crash, self._lease_seconds = store, crash, lease_seconds
        self._seed, self._begins_at, self._recorded = seed, begins_at, recorded
        self._actors: list[_Actor] = []
        self._tasks: list[Any] = []

    def enter(self, role: Role) -> VirtualWorld:
        """Someone begins to play: `role(world, store)`, in a world of its own."""
        world = VirtualWorld(self._seed * 100 + len(self._actors), self._begins_at)
        self._actors.append(_Actor(world, role))
        store = Stricken(self._store, self._crash, world, self._recorded)
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

    async def _overtaken(self, actor: _Actor) -> bool:
        fences, now = actor.fences or {}, await self._held_under()
        taken = any(fence > fences.get(run, 0) for run, fence in now.items())
        return taken or actor.world.monotonic() - actor.fell_at > 3 * self._lease_seconds

    async def _held_under(self) -> dict[UUID, int]:
        runs = await self._store.list(RunFilter(statuses=(Status.LEASED,), tenant=None))
        return {run.id: run.fence for run in runs}


async def patient(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Ask again and again while the store does not answer."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(PATIENCE_SECONDS)
