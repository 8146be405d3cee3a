"""What a run has recorded, by the key each thing was asked under, in the order it became known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.arguments import check_key
from holdfast.bounds import RUN_BYTES, text_bytes
from holdfast.errors import Drift, HistoryFull, UsageError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import SETTLED, StepKind, StepStatus
from holdfast.records import Claim, Json, Step, StepWrite

log = safe_logger("holdfast.run")

AT_ONCE = frozenset({StepKind.NOW, StepKind.EMIT})  # asked for without an await, answered in the same breath
OUTCOMES = SETTLED - {StepStatus.CANCELLED}  # what was given up has none

# What to do where several tasks use one name.
KEYED = "give each use a key of its own, as in key=f'%s:{n}'"
SENT = "give each use a name of its own, as in name=f'%s:{n}', or send it inside a step"
EMITTED = "give each use a name of its own, as in name=f'%s:{n}', or emit it inside a step"

OBJECT_BYTES = 80  # of one element of a list or dict, in Python's memory
KEPT_BYTES = 64 * 1024  # a value that is kept in memory after its commit

Recorded = Step | StepWrite  # what was read from the store, or what was written to it since


class Record:
    """The memory of one held run: what replay answers from."""

    __slots__ = (
        "_asked",
        "_base",
        "_bytes_max",
        "_count",
        "_keeps",
        "_names",
        "_run",
        "_steps_max",
        "bytes",
        "held",
        "known",
        "logged",
        "logs",
        "open_waits",
        "partial",
        "rank",
        "steps",
    )

    def __init__(
        self, claim: Claim, steps_max: int, bytes_max: int = RUN_BYTES, *, keeps: bool = True
    ) -> None:
        self.logged = claim.logs  # log rows of the body that are in the trail
        self._base = memory_bytes(claim.params)
        self._run, self._steps_max, self._bytes_max = claim.id, steps_max, bytes_max
        self._keeps = keeps  # large values stay here after their commit
        self.fill(claim.steps)

    def refill(self, claim: Claim) -> None:
        """Begin with what was read of the run after its claim."""
        self._base = memory_bytes(claim.params)
        self.fill(claim.steps)

    def fill(self, steps: Sequence[Step]) -> None:
        """Begin with these steps, and forget all others."""
        self.steps: dict[str, Recorded] = {}
        self.rank: dict[str, int] = {}  # position in the order of outcomes
        self._count = self.open_waits = 0
        self.known = 0  # the highest seq of the store that was seen here
        self.bytes = 0  # of values: recorded, or about to be
        self.held = self._base  # memory of the values that are here
        self.partial = False  # large values were left out: an execution again has to read them anew
        for step in steps:
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

    def check_room(self, on_their_way: int) -> None:
        """Before a new step: HistoryFull when all of the history is used up; a warning at half of it."""
        used = len(self.steps) + on_their_way
        if used >= self._steps_max:
            raise HistoryFull(
                f"the run has recorded {self._steps_max} steps, the limit: end it with ctx.continue_as(…)"
            )
        self._check_bytes(1)
        if used == self._steps_max // 2:
            log.warning("run %s has used half of its %d steps", self._run, self._steps_max)

    def count(self, value: Json | None) -> None:
        """Before a value is recorded: HistoryFull when it is too much; a warning at half."""
        size, half = text_bytes(value), self._bytes_max // 2
        self._check_bytes(size)
        if self.bytes < half <= self.bytes + size:
            log.warning("run %s has recorded half of its %d bytes of values", self._run, self._bytes_max)
        self.bytes += size

    def uncount(self, value: Json | None) -> None:
        """A value that was to be recorded is not."""
        self.bytes -= text_bytes(value)

    def _check_bytes(self, more: int) -> None:
        if self.bytes + more > self._bytes_max:
            raise HistoryFull(
                f"the run has recorded {self.bytes:,} bytes of values, and {self._bytes_max:,} are the "
                f"limit: end it with ctx.continue_as(…), or record less"
            )

    def add(self, step: Step) -> None:
        """A step is recorded now: it comes last in the order."""
        before = self.steps.get(step.key)
        self.bytes += step_bytes(step) - (0 if before is None else text_bytes(before.ask))
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
        if not self._keeps and isinstance(step, StepWrite) and len(step.output or "") > KEPT_BYTES:
            # The code has it by now. Many runs that record much would fill the memory of their worker.
            step, self.partial = msgspec.structs.replace(step, output=None), True
        self.held += memory_bytes(step.output)
        self.steps[key] = step
        self._count += 1
        self.rank[key] = self._count

    def settled_keys(self) -> list[str]:
        """The keys whose outcome is known and will be awaited, in order."""
        settled = [step for step in self.steps.values() if step.status in OUTCOMES]
        return sorted([one.key for one in settled if one.kind not in AT_ONCE], key=self.rank.__getitem__)


def memory_bytes(value: Json | None) -> int:
    """About how much memory a value takes as text and as the objects that code reads from it."""
    if value is None or len(value) < KEPT_BYTES:
        return len(value or "")
    return len(value) + OBJECT_BYTES * (value.count(",") + value.count("[") + value.count("{"))


def step_bytes(step: Step) -> int:
    """How many bytes of values a step has recorded."""
    return sum(map(text_bytes, (step.output, step.error, step.ask, step.wake)))
