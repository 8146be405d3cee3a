"""The state machine of runs and waits, as tables: statuses, moves, and the actors that may make a move.

All rules about the life of a run or of a wait are here. Guards in the stores, the test matrix, the page in
the docs and `legal()` are derived from these tables or compared with them by a test. A move that is not in
the tables is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Status(StrEnum):
    """The status of a run. Only an explicit rewind or retry_run leaves a final status."""

    PENDING = "pending"  # claimable when run_at comes
    LEASED = "leased"  # a worker executes it
    WAITING = "waiting"  # on a timer, an event, an approval or a child
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepStatus(StrEnum):
    """The status of a recorded step. A code step that will be retried is `ready`.

    All steps of a plan exist from the start, as `pending`. The current step shows a status that depends on
    the run: `ready` while the run is in the queue, `running` while it is leased. The status of an open wait
    is stored.
    """

    PENDING = "pending"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepKind(StrEnum):
    """The kind of a recorded step. The same key with another kind is drift."""

    TASK = "task"
    SLEEP = "sleep"
    EVENT = "event"
    APPROVAL = "approval"
    CHILD = "child"
    NOW = "now"
    EMIT = "emit"


class Actor(StrEnum):
    """The party that may make a move."""

    ANYONE = "anyone"
    WORKER = "worker"
    HOLDER = "holder"
    KEEPER = "keeper"
    OPERATOR = "operator"


class Move(StrEnum):
    """The moves of a run. Each has one name in every layer."""

    START = "start"
    CLAIM = "claim"
    EXPIRE = "expire"
    CHECKPOINT = "checkpoint"
    ADVANCE = "advance"
    PARK = "park"
    COMPLETE = "complete"
    RETRY = "retry"
    FAIL = "fail"
    RELEASE = "release"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    REWIND = "rewind"
    RETRY_RUN = "retry_run"
    TIME_OUT = "time_out"
    DELETE = "delete"
    RESTORE = "restore"


class WaitMove(StrEnum):
    """The moves that settle a wait."""

    DELIVER = "deliver"
    DECIDE = "decide"
    LAPSE = "lapse"


class Rule(msgspec.Struct, frozen=True):
    """One row of the table of moves."""

    move: Move
    sources: frozenset[Status]
    targets: frozenset[Status]
    who: Actor
    also: str
    keeps: bool = False  # the status stays: only the target that equals the source is reached


class WaitRule(msgspec.Struct, frozen=True):
    """One row of the table of moves that settle waits."""

    move: WaitMove
    settles: frozenset[StepKind]
    also: str


FINAL = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})
OPEN = frozenset(Status) - FINAL
# For code runs. In plans a task may wait too: its handler asks for it, and is called again when the wait is
# settled.
WAITS = frozenset({StepKind.SLEEP, StepKind.EVENT, StepKind.APPROVAL, StepKind.CHILD})
SETTLED = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.CANCELLED})

_P, _L, _W, _Z = Status.PENDING, Status.LEASED, Status.WAITING, Status.PAUSED
_S, _F, _C = Status.SUCCEEDED, Status.FAILED, Status.CANCELLED


def _rule(
    move: Move,
    sources: Iterable[Status],
    targets: Iterable[Status],
    who: Actor,
    also: str,
    *,
    keeps: bool = False,
) -> Rule:
    return Rule(move, frozenset(sources), frozenset(targets), who, also, keeps)


MOVES: tuple[Rule, ...] = (
    _rule(
        Move.START, (), (_P, _W, _S, _F), Actor.ANYONE, "durable; no user code has run; a plan: by its rows"
    ),
    _rule(Move.CLAIM, (_P,), (_L,), Actor.WORKER, "due and not deleted; attempt + 1, fence + 1, lease set"),
    _rule(
        Move.EXPIRE,
        (_L,),
        (_P, _Z, _F),
        Actor.KEEPER,
        "lease past; crashes + 1, fence + 1; failed at the crash cap",
    ),
    _rule(
        Move.CHECKPOINT,
        (_L,),
        (_L, _Z),
        Actor.HOLDER,
        "a code step's outcome; paused when a pause is asked for",
    ),
    _rule(
        Move.ADVANCE,
        (_L,),
        (_L, _P, _W, _Z, _S, _F),
        Actor.HOLDER,
        "a plan's step succeeded: the next is current, a gate opens, or the run succeeds; failed on drift",
    ),
    _rule(
        Move.PARK,
        (_L,),
        (_W, _L, _Z),
        Actor.HOLDER,
        "leased still when a wait is already settled; attempt - 1",
    ),
    _rule(Move.COMPLETE, (_L,), (_S,), Actor.HOLDER, "the result; open waits are cancelled"),
    _rule(
        Move.RETRY,
        (_L,),
        (_P, _L, _Z),
        Actor.HOLDER,
        "error, run_at by backoff; leased still up to one second",
    ),
    _rule(Move.FAIL, (_L,), (_F,), Actor.HOLDER, "error and its kind; open waits are cancelled"),
    _rule(Move.RELEASE, (_L,), (_P, _Z), Actor.HOLDER, "given back now; attempt - 1"),
    _rule(
        Move.PAUSE, (_P, _L, _W, _Z), (_Z, _L), Actor.ANYONE, "leased: asked for, taken at the next boundary"
    ),
    _rule(
        Move.RESUME,
        (_Z, _L),
        (_P, _W, _L, _S, _F),
        Actor.ANYONE,
        "waiting while nothing has come; leased: withdraws the pause; a plan: by what was decided meanwhile",
    ),
    _rule(
        Move.CANCEL,
        (_P, _L, _W, _Z, _C),
        (_C,),
        Actor.ANYONE,
        "open steps, and a plan's later ones, are cancelled, fence + 1; again: unchanged",
    ),
    _rule(
        Move.REWIND,
        Status,
        (_P, _Z, _W, _S, _F),
        Actor.OPERATOR,
        "that step and later ones forgotten, attempt 0, fence + 1; a plan: by its rows, a gate opens again",
    ),
    _rule(
        Move.RETRY_RUN, (_F,), (_P, _W, _S, _F), Actor.OPERATOR, "attempts anew, fence + 1; plans: as rewind"
    ),
    _rule(Move.TIME_OUT, (_P, _L, _W, _Z), (_F,), Actor.KEEPER, "the run's own timeout is past; fence + 1"),
    _rule(
        Move.DELETE,
        Status,
        frozenset(Status) - {_L},
        Actor.OPERATOR,
        "hidden, as it was; a leased one is fenced off first and pending: fence + 1, attempt - 1",
    ),
    _rule(
        Move.RESTORE,
        frozenset(Status) - {_L},
        frozenset(Status) - {_L},
        Actor.OPERATOR,
        "shown again, as it was",
        keeps=True,
    ),
)

WAIT_MOVES: tuple[WaitRule, ...] = (
    WaitRule(
        WaitMove.DELIVER,
        frozenset({StepKind.EVENT, StepKind.CHILD, StepKind.TASK}),
        "an event came, or the child ended",
    ),
    WaitRule(WaitMove.DECIDE, frozenset({StepKind.APPROVAL}), "a person approved or rejected"),
    WaitRule(
        WaitMove.LAPSE,
        frozenset({StepKind.SLEEP, StepKind.EVENT, StepKind.APPROVAL, StepKind.TASK}),
        "its time or its deadline came",
    ),
)

RULES: dict[Move, Rule] = {rule.move: rule for rule in MOVES}
HOLDER_MOVES = frozenset(rule.move for rule in MOVES if rule.who is Actor.HOLDER)

# Statuses in the words of other engines, accepted wherever a person types a status.
ALIASES: dict[str, Status] = {
    "running": _L,
    "processing": _L,
    "suspended": _W,
    "waiting_approval": _W,
    "completed": _S,
    "complete": _S,
    "done": _S,
    "dead": _F,
    "errored": _F,
    "canceled": _C,
    "terminated": _C,
}


def legal(status: Status) -> frozenset[Move]:
    """Return the moves that a run in this status may make."""
    return frozenset(rule.move for rule in MOVES if status in rule.sources)


def allows(move: Move, status: Status) -> bool:
    """Return True when a run in this status may make this move."""
    return status in RULES[move].sources


def spoken_status(status: str) -> str:
    """The word for a status in text for people: `leased` is shown as `running`."""
    return "running" if status == Status.LEASED else str(status)
