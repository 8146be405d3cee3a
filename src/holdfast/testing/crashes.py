"""Crashes: one fault at the n-th store call, whoever makes it, and the calls in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, assert_never
from uuid import UUID

from holdfast.errors import Unavailable
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Answer, Claim, Item, StepWrite, Verdict

from .faulty import Fault, Faulty, Heard, die_after, die_before, fail_before, lose_reply, send_twice
from .virtual import VirtualWorld

Recorded = Callable[[Item, StepWrite], None]
Took = Callable[[Claim], None]


class Mode(StrEnum):
    """What happens at the call."""

    DIE_BEFORE = "die before"
    DIE_AFTER = "die after"
    REPLY_LOST = "reply lost"
    NEVER_SENT = "never sent"
    SENT_TWICE = "sent twice"
    STAND_STILL = "stand still before"
    ROLLED_BACK = "rolled back"  # of a transaction: its function has run, and nothing of it stands


# Reading changes nothing: whether the caller dies before or after it is the same.
READS = frozenset(
    {
        "now",
        "get",
        "list",
        "steps",
        "load",
        "trail",
        "waiting_on",
        "definitions",
        "due",
        "stats",
        "schedules",
        "due_schedules",
        "outbox",
        "relay_at",
        "backlog",
        "webhooks",
    }
)
LOOKS = frozenset({"claim", "tick", "deliver", "purge", "relay"})
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
    return tuple(mode for mode in Mode if mode is not Mode.ROLLED_BACK or made.verb == "transact")


class Crash:
    """One fault at one call, counted over all who use the store; none when `at` is 0."""

    def __init__(self, at: int = 0, mode: Mode = Mode.DIE_BEFORE, calls_max: int = 20_000) -> None:
        self.at, self.mode, self._calls_max = at, mode, calls_max
        self.made: list[Made] = []
        self.fired: Made | None = None
        self.late: list[str] = []  # what was written by one who had lost the run: there must be none
        self._verbs: Counter[str] = Counter()
        self._fences: dict[UUID, int] = {}
        self._applied: set[tuple[UUID, int, int]] = set()

    def claimed(self, claim: Claim) -> None:
        """From here on older fences are of no use."""
        self._fences[claim.id] = claim.fence

    def applied(self, item: Item) -> None:
        """A store took it. The same one again is an answer to whoever sends it twice."""
        sent = (item.run, item.fence, item.number)
        if item.fence < self._fences.get(item.run, 0) and sent not in self._applied:
            self.late.append(f"{_words(item)}, under fence {item.fence}")
        self._applied.add(sent)

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


def _fault(mode: Mode, world: VirtualWorld) -> Fault | None:
    match mode:
        case Mode.ROLLED_BACK:
            return None  # it happens inside of the call
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
    """The store as one process sees it."""

    def __init__(
        self, store: Any, crash: Crash, world: VirtualWorld, recorded: Recorded | None, took: Took
    ) -> None:
        super().__init__(store)
        self._crash, self._world, self._recorded, self._took = crash, world, recorded, took

    def struck(self, verb: str, args: tuple[Any, ...]) -> tuple[Fault | None, Heard | None]:
        """The crash, if it is this call's."""
        if verb in LOCAL:
            return None, None
        fault, made = self._crash.strikes(verb, self._world)
        if made is not None and made is self._crash.fired and self._crash.mode is Mode.ROLLED_BACK:
            args[1].undone = True
        return fault, None if made is None else partial(self._heard, made, args)

    async def transact(self, item: Item, work: Callable[[Any], Item], *limit: float) -> Verdict:
        """Its last step is known only to whoever hears what the function answers."""
        verdict: Verdict = await self._call(
            "transact", self.inner.transact, item, _Performed(item, work), *limit
        )
        return verdict

    def _heard(self, made: Made, args: tuple[Any, ...], answer: Any) -> None:
        made.idle = _found_nothing(made.verb, args, answer)
        nothing = made.idle and made.verb in LOOKS
        made.carried = "found nothing" if nothing else _carried(made.verb, args, answer)
        for claim in answer if made.verb == "claim" else ():
            self._crash.claimed(claim)
            self._took(claim)
        if made.verb == "commit":
            self._note(args[0], answer)
        if made.verb == "transact":
            self._note((args[1].item,), (answer,))

    def _note(self, batch: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
        """From here on these steps must not be done again."""
        for item, verdict in zip(batch, verdicts, strict=True):
            if verdict.answer not in {Answer.APPLIED, Answer.PAUSED}:
                continue
            self._crash.applied(item)
            for step in item.steps:
                final = step.status in {StepStatus.SUCCEEDED, StepStatus.FAILED}
                if self._recorded is not None and step.kind is StepKind.TASK and final:
                    self._recorded(item, step)


class _Performed:
    """The function of a transaction, and the item as it completed it; undone, that is rolled back."""

    def __init__(self, item: Item, work: Callable[[Any], Item]) -> None:
        self.item, self._work, self.undone = item, work, False

    def __call__(self, connection: Any) -> Item:
        item = self._work(connection)
        if self.undone:
            raise Unavailable("what the transaction did could not be committed")
        self.item = item
        return item


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
        case "transact":
            return "the commit of a transaction"
        case "tick":
            counts = {name: getattr(answer, name) for name in type(answer).__struct_fields__}
            return ", ".join(f"{n} {name}" for name, n in counts.items() if n and type(n) is int)
        case _:
            return ""


def _words(item: Item) -> str:
    steps = [f"{'step' if one.kind is StepKind.TASK else one.kind} {one.key!r}" for one in item.steps]
    return f"{item.move.verb} of {', '.join(steps)}" if steps else f"{item.move.verb} of the run"
