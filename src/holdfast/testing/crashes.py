"""Crashes: one fault at the n-th store call of all processes, and a description of each call."""

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

from .faulty import Fault, Faulty, OnAnswer, die_after, die_before, fail_before, lose_reply, send_twice
from .virtual import VirtualWorld

Recorded = Callable[[Item, StepWrite], None]
Claimed = Callable[[Claim], None]


class Mode(StrEnum):
    """The kind of fault at the call."""

    DIE_BEFORE = "die before"
    DIE_AFTER = "die after"
    REPLY_LOST = "reply lost"
    NEVER_SENT = "never sent"
    SENT_TWICE = "sent twice"
    STAND_STILL = "stand still before"
    ROLLED_BACK = "rolled back"  # a transaction: its function has run, and its writes are not committed


# Reads change nothing: a death before the read and a death after it have the same effect.
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
# Calls that are not sent to a server: their replies cannot be lost.
LOCAL = frozenset({"open", "close"})


@dataclass(slots=True)
class StoreCall:
    """One store call: its number among all calls and among those of its verb, its content, and whether it
    found nothing (`idle`)."""

    number: int
    verb: str
    nth: int
    carried: str = ""
    idle: bool = False

    def __str__(self) -> str:
        """Return the call in words."""
        return f"{self.verb} {self.nth}{': ' if self.carried else ''}{self.carried}"


def modes_of(call: StoreCall, *, briefly: bool) -> tuple[Mode, ...]:
    """Return the faults that differ for this call; briefly: only one for a call that found nothing."""
    if call.idle and briefly:
        return (Mode.DIE_BEFORE,)
    if call.verb in READS:
        return (Mode.DIE_BEFORE, Mode.NEVER_SENT, Mode.STAND_STILL)
    return tuple(mode for mode in Mode if mode is not Mode.ROLLED_BACK or call.verb == "transact")


class Crash:
    """One fault at one store call, counted over all processes; no fault when `at` is 0."""

    def __init__(self, at: int = 0, mode: Mode = Mode.DIE_BEFORE, calls_max: int = 20_000) -> None:
        self.at, self.mode, self._calls_max = at, mode, calls_max
        self.calls: list[StoreCall] = []
        self.fired: StoreCall | None = None
        self.late: list[str] = []  # writes of a process that had lost the run: there must be none
        self._verbs: Counter[str] = Counter()
        self._fences: dict[UUID, int] = {}
        self._applied: set[tuple[UUID, int, int]] = set()

    def claimed(self, claim: Claim) -> None:
        """Note a claim: from now on older fences of the run are void."""
        self._fences[claim.id] = claim.fence

    def applied(self, item: Item) -> None:
        """Note an item that the store applied. The same item again is only the repeated answer to a
        resend.
        """
        sent = (item.run, item.fence, item.number)
        if item.fence < self._fences.get(item.run, 0) and sent not in self._applied:
            self.late.append(f"{_words(item)}, under fence {item.fence}")
        self._applied.add(sent)

    def fault_at(self, verb: str, world: VirtualWorld) -> tuple[Fault | None, StoreCall | None]:
        """Return the fault of this call, if any, and the call, which is described once it is answered."""
        if len(self.calls) >= self._calls_max:
            raise RuntimeError(
                f"more than {self._calls_max} store calls: the runs seem to loop without an end"
            )
        self._verbs[verb] += 1
        call = StoreCall(len(self.calls) + 1, verb, self._verbs[verb])
        self.calls.append(call)
        if call.number != self.at:
            return None, call
        self.fired = call
        return _fault(self.mode, world), call


class NoCrash(Crash):
    """No crash, and no call is counted: for simulations of any length."""

    def fault_at(self, verb: str, world: VirtualWorld) -> tuple[Fault | None, StoreCall | None]:
        return None, None


def _fault(mode: Mode, world: VirtualWorld) -> Fault | None:
    match mode:
        case Mode.ROLLED_BACK:
            return None  # the fault happens inside the call, in _TransactionFunction
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


class CrashingStore(Faulty):
    """The store as one simulated process sees it."""

    def __init__(
        self, store: Any, crash: Crash, world: VirtualWorld, recorded: Recorded | None, claimed: Claimed
    ) -> None:
        super().__init__(store)
        self._crash, self._world, self._recorded, self._claimed = crash, world, recorded, claimed

    def fault_for(self, verb: str, args: tuple[Any, ...]) -> tuple[Fault | None, OnAnswer | None]:
        """Return the crash if it is planned at this call."""
        if verb in LOCAL:
            return None, None
        fault, call = self._crash.fault_at(verb, self._world)
        if call is not None and call is self._crash.fired and self._crash.mode is Mode.ROLLED_BACK:
            args[1].undone = True
        return fault, None if call is None else partial(self._answered, call, args)

    async def transact(self, item: Item, work: Callable[[Any], Item], *limit: float) -> Verdict:
        """Call the store with a function that notes the item: its last step is known only when it returns."""
        verdict: Verdict = await self._call(
            "transact", self.inner.transact, item, _TransactionFunction(item, work), *limit
        )
        return verdict

    def _answered(self, call: StoreCall, args: tuple[Any, ...], answer: Any) -> None:
        call.idle = _found_nothing(call.verb, args, answer)
        nothing = call.idle and call.verb in LOOKS
        call.carried = "found nothing" if nothing else _carried(call.verb, args, answer)
        for claim in answer if call.verb == "claim" else ():
            self._crash.claimed(claim)
            self._claimed(claim)
        if call.verb == "commit":
            self._note(args[0], answer)
        if call.verb == "transact":
            self._note((args[1].item,), (answer,))

    def _note(self, batch: Sequence[Item], verdicts: Sequence[Verdict]) -> None:
        """Note recorded steps: from now on they must not run again."""
        for item, verdict in zip(batch, verdicts, strict=True):
            if verdict.answer not in {Answer.APPLIED, Answer.PAUSED}:
                continue
            self._crash.applied(item)
            for step in item.steps:
                final = step.status in {StepStatus.SUCCEEDED, StepStatus.FAILED}
                if self._recorded is not None and step.kind is StepKind.TASK and final:
                    self._recorded(item, step)


class _TransactionFunction:
    """The function of a transaction. It keeps the completed item; when `undone` is set it rolls back."""

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
