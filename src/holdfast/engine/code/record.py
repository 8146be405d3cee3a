"""The record of a run in memory: its steps by key, in the order of their outcomes. Replay reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.bounds import RUN_BYTES, text_bytes
from holdfast.errors import Drift, HistoryFull, UsageError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import SETTLED, StepKind, StepStatus
from holdfast.records import Claim, Json, Step, StepWrite
from holdfast.step_keys import check_call_name, check_key

log = safe_logger("holdfast.run")

# kinds of steps that are called without an await, and answered at once
AT_ONCE = frozenset({StepKind.NOW, StepKind.EMIT})
OUTCOMES = SETTLED - {StepStatus.CANCELLED}  # a step that was given up has no outcome

# The advice for a name that several tasks use.
KEYED = "give each use a key of its own, as in key=f'%s:{n}'"
SENT = "give each use a name of its own, as in name=f'%s:{n}', or send it inside a step"
EMITTED = "give each use a name of its own, as in name=f'%s:{n}', or emit it inside a step"

OBJECT_BYTES = 80  # the size of one element of a list or dict in Python's memory
KEPT_BYTES = 64 * 1024  # the largest value that is kept in memory after its commit

Recorded = Step | StepWrite  # a step that was read from the store, or one that was written since


class Record:
    """The record of one leased run, from which replay answers."""

    __slots__ = (
        "_asked",
        "_base",
        "_bytes_max",
        "_keeps",
        "_last_rank",
        "_names",
        "_run",
        "_steps_max",
        "bytes",
        "known",
        "latest_now",
        "logged",
        "logs",
        "memory",
        "open_waits",
        "partial",
        "rank",
        "steps",
    )

    def __init__(
        self, claim: Claim, steps_max: int, bytes_max: int = RUN_BYTES, *, keeps: bool = True
    ) -> None:
        self.logged = claim.logs  # number of the body's log rows that are in the trail
        self._base = memory_bytes(claim.params)
        self._run, self._steps_max, self._bytes_max = claim.id, steps_max, bytes_max
        self._keeps = keeps  # large values stay here after their commit
        self.fill(claim.steps)

    def refill(self, claim: Claim) -> None:
        """Begin again with the steps that were read after the claim."""
        self._base = memory_bytes(claim.params)
        self.fill(claim.steps)

    def fill(self, steps: Sequence[Step]) -> None:
        """Begin with these steps, and forget all others."""
        self.steps: dict[str, Recorded] = {}
        self.rank: dict[str, int] = {}  # position in the order of outcomes
        self._last_rank = self.open_waits = 0
        self.known = 0  # the highest seq of the store that was read here
        self.bytes = 0  # bytes of values, recorded or about to be
        self.memory = self._base  # bytes of memory that the values take
        self.partial = False  # large values were left out: the next execution has to read them again
        self.latest_now = 0  # the latest time that `ctx.now()` has recorded
        for step in steps:
            self.add(step)

    def begin(self) -> None:
        """Begin an execution: forget the calls of the last one, keep what is recorded."""
        self._names: dict[str, list[Any]] = {}  # the task that uses a name, and how often it was used
        self._asked: set[str] = set()
        self.logs = 0

    def key(self, name: Any, key: str | None, task: object, advice: str = KEYED) -> str:
        """Return the key of a step: the given key, or the name with its number, counted at the call."""
        if key is None:
            key = self._counted(name, task, advice)
        else:
            check_key(key)
        if key in self._asked:
            raise UsageError(
                f"the key {key!r} is used twice in this run, so the second use would get the result of the "
                f"first: give each use its own key"
            )
        self._asked.add(key)
        return key

    def _counted(self, name: Any, task: object, advice: str) -> str:
        used = self._names.get(name) if type(name) is str else None
        if used is None:
            used = self._names[check_call_name(name)] = [task, 0]
        elif used[0] is not task:
            raise UsageError(
                f"the name {name!r} is used in several tasks of this run, so its number would depend on "
                f"timing: {advice % name}"
            )
        used[1] += 1
        return name if used[1] == 1 else f"{name}#{used[1]}"

    def find(self, key: str, kind: StepKind) -> Recorded | None:
        """Return the step under this key; raise Drift when the code now asks for another kind of step."""
        step = self.steps.get(key)
        if step is not None and step.kind is not kind:
            raise Drift(
                f"step {key!r} was recorded as a {step.kind}, but the code now asks for a {kind}: "
                f"give the new step another name, or rewind the run"
            )
        return step

    def check_room(self, on_their_way: int) -> None:
        """Raise HistoryFull when the run may record no further step; log a warning at half of the limit."""
        used = len(self.steps) + on_their_way
        if used >= self._steps_max:
            raise HistoryFull(
                f"the run has recorded {self._steps_max} steps, its limit: continue with ctx.continue_as(…)"
            )
        self._check_bytes(1)
        if used == self._steps_max // 2:
            log.warning(
                "run %s has recorded half of the %d steps that it may record", self._run, self._steps_max
            )

    def count_bytes(self, value: Json | None) -> None:
        """Count a value before it is recorded; raise HistoryFull when it is too much; warn at half of the
        limit.
        """
        size, half = text_bytes(value), self._bytes_max // 2
        self._check_bytes(size)
        if self.bytes < half <= self.bytes + size:
            log.warning(
                "run %s has recorded half of the %d bytes that it may record", self._run, self._bytes_max
            )
        self.bytes += size

    def uncount_bytes(self, value: Json | None) -> None:
        """Take back the count of a value that was not recorded."""
        self.bytes -= text_bytes(value)

    def _check_bytes(self, more: int) -> None:
        if self.bytes + more > self._bytes_max:
            raise HistoryFull(
                f"the run has recorded {self.bytes:,} bytes of values, and the limit is {self._bytes_max:,}: "
                f"continue it with ctx.continue_as(…), or record less"
            )

    def add(self, step: Step) -> None:
        """Add a recorded step, last in the order."""
        before = self.steps.get(step.key)
        self.bytes += step_bytes(step) - (0 if before is None else text_bytes(before.ask))
        self.committed(step)
        self.known = max(self.known, step.seq)

    def committed(self, step: Recorded) -> None:
        """Put a step last in the order: one that was read, or a write that is committed now."""
        key = step.key
        before = self.steps.get(key)
        if before is not None and before.status is StepStatus.WAITING:
            self.open_waits -= 1
        if step.status is StepStatus.WAITING:
            self.open_waits += 1
        if not self._keeps and isinstance(step, StepWrite) and len(step.output or "") > KEPT_BYTES:
            # User code has the value by now. Kept values of many runs would fill the memory of the worker.
            step, self.partial = msgspec.structs.replace(step, output=None), True
        elif step.kind is StepKind.NOW:
            self.latest_now = max(self.latest_now, _whole(step.output))
        self.memory += memory_bytes(step.output)
        self.steps[key] = step
        self._last_rank += 1
        self.rank[key] = self._last_rank

    def settled_keys(self) -> list[str]:
        """Return the keys with a known outcome that user code will await, in order."""
        settled = [step for step in self.steps.values() if step.status in OUTCOMES]
        return sorted([one.key for one in settled if one.kind not in AT_ONCE], key=self.rank.__getitem__)


def _whole(output: Json | None) -> int:
    """Return a recorded time; 0 for what is none, which `ctx.now()` refuses when it is asked for."""
    return int(output) if output is not None and output.isdigit() else 0


def error_text(step: Recorded) -> Json | None:
    """Return the recorded error of a step."""
    return step.error if isinstance(step, StepWrite) else step.error_json


def memory_bytes(value: Json | None) -> int:
    """Estimate the memory of a value, as text and as the objects that user code gets."""
    if value is None or len(value) < KEPT_BYTES:
        return len(value or "")
    return len(value) + OBJECT_BYTES * (value.count(",") + value.count("[") + value.count("{"))


def step_bytes(step: Step) -> int:
    """Return the number of bytes of a step's values."""
    return sum(map(text_bytes, (step.output, step.error_json, step.ask, step.wake)))
