"""What a run has recorded, by the key each thing was asked under, in the order it became known."""

from __future__ import annotations

from typing import Any

from holdfast.arguments import check_key
from holdfast.errors import Drift, HistoryFull, UsageError
from holdfast.lifecycle import SETTLED, StepKind, StepStatus
from holdfast.records import Claim, Step, StepWrite

AT_ONCE = frozenset({StepKind.NOW, StepKind.EMIT})  # asked for without an await, answered in the same breath
OUTCOMES = SETTLED - {StepStatus.CANCELLED}  # what was given up has none

# What to do where several tasks use one name.
KEYED = "give each use a key of its own, as in key=f'%s:{n}'"
SENT = "give each use a name of its own, as in name=f'%s:{n}', or send it inside a step"
EMITTED = "give each use a name of its own, as in name=f'%s:{n}', or emit it inside a step"

Recorded = Step | StepWrite  # what was read from the store, or what was written to it since


class Record:
    """The memory of one held run: what replay answers from."""

    __slots__ = (
        "_asked",
        "_count",
        "_names",
        "_steps_max",
        "known",
        "logged",
        "logs",
        "open_waits",
        "rank",
        "steps",
    )

    def __init__(self, claim: Claim, steps_max: int) -> None:
        self.steps: dict[str, Recorded] = {}
        self.rank: dict[str, int] = {}  # position in the order of outcomes
        self._count = 0
        self.known = 0  # the highest seq of the store that was seen here
        self.open_waits = 0
        self.logged = claim.logs  # log rows of the body that are in the trail
        self._steps_max = steps_max
        for step in claim.steps:
            self.add(step)

    def begin(self) -> None:
        """An execution begins: forget what the last execution has asked; keep what is recorded."""
        self._names: dict[str, list[Any]] = {}  # who uses a name, and how often it was used
        self._asked: set[str] = set()
        self.logs = 0

    def key(self, name: Any, key: str | None, task: object, advice: str = KEYED) -> str:
        """The key of a step asked for by name: counted at the call, or given."""
        if key is None:
            key = self._counted(name, task, advice)
        else:
            check_key(key)
        if key in self._asked:
            raise UsageError(
                f"the key {key!r} is used twice in this run: the second would be given what the first has "
                f"recorded; give each use a key of its own"
            )
        self._asked.add(key)
        return key

    def _counted(self, name: Any, task: object, advice: str) -> str:
        used = self._names.get(name) if type(name) is str else None
        if used is None:
            used = self._names[check_key(name)] = [task, 0]
        elif used[0] is not task:
            raise UsageError(
                f"the name {name!r} is used from more than one task of this run: its number would depend on "
                f"timing; {advice % name}"
            )
        used[1] += 1
        return name if used[1] == 1 else f"{name}#{used[1]}"

    def find(self, key: str, kind: StepKind) -> Recorded | None:
        """The step under this key; Drift when the code now asks for another kind of thing."""
        step = self.steps.get(key)
        if step is not None and step.kind is not kind:
            raise Drift(
                f"step {key!r} was recorded as a {step.kind}, and the code now asks for a {kind}: "
                f"give the new one another name, or rewind the run"
            )
        return step

    def check_room(self, on_their_way: int) -> bool:
        """Whether half of the history is used up just now; HistoryFull when all of it is."""
        used = len(self.steps) + on_their_way
        if used >= self._steps_max:
            raise HistoryFull(
                f"the run has recorded {self._steps_max} steps, the limit: end it with ctx.continue_as(…)"
            )
        return used == self._steps_max // 2

    def add(self, step: Step) -> None:
        """A step is recorded now: it comes last in the order."""
        self.committed(step)
        self.known = max(self.known, step.seq)

    def committed(self, step: Recorded) -> None:
        """What the run itself wrote now stands in the store, last in the order."""
        key = step.key
        before = self.steps.get(key)
        if before is not None and before.status is StepStatus.WAITING:
            self.open_waits -= 1
        if step.status is StepStatus.WAITING:
            self.open_waits += 1
        self.steps[key] = step
        self._count += 1
        self.rank[key] = self._count

    def settled_keys(self) -> list[str]:
        """The keys whose outcome is known and will be awaited, in order."""
        settled = [step for step in self.steps.values() if step.status in OUTCOMES]
        return sorted([one.key for one in settled if one.kind not in AT_ONCE], key=self.rank.__getitem__)
