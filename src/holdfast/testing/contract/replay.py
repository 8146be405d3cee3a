"""The trail, replayed: the status of a run and of its steps, rebuilt from the trail alone.

A run is a plan when its row `created` has step names, or when a step was added later. The status of a plan's
current task follows from the run's own status, and is not in the trail. Rows that a worker wrote with user
SQL do not count, whatever their type is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.records import TrailEntry

RUN_BECOMES = {
    "created": Status.PENDING,
    "leased": Status.LEASED,
    "released": Status.PENDING,
    "lease_expired": Status.PENDING,
    "paused": Status.PAUSED,
    "succeeded": Status.SUCCEEDED,
    "failed": Status.FAILED,
    "cancelled": Status.CANCELLED,
}
STEP_BECOMES = {
    "step_added": StepStatus.PENDING,
    "step_succeeded": StepStatus.SUCCEEDED,
    "step_failed": StepStatus.FAILED,
    "waiting": StepStatus.WAITING,
    "approval_opened": StepStatus.WAITING,
    "approved": StepStatus.SUCCEEDED,
    "rejected": StepStatus.SUCCEEDED,  # in a code run: the decision is the outcome
    "woken": StepStatus.SUCCEEDED,
    "timed_out": StepStatus.FAILED,
    "retried": StepStatus.READY,
    "cancelled": StepStatus.CANCELLED,
}
LIVE = {Status.PENDING: StepStatus.READY, Status.LEASED: StepStatus.RUNNING}
OPEN_STEP = {StepStatus.READY, StepStatus.WAITING}


def replayed(trail: Iterable[TrailEntry]) -> tuple[Status | None, dict[str, StepStatus]]:
    """Return the status of the run and of each step, rebuilt from the trail alone."""
    replay = _Replay()
    for entry in trail:
        if not entry.told:
            replay.read(entry.type, entry.data)
    return replay.status, replay.shown()


class _Replay:
    def __init__(self) -> None:
        self.status: Status | None = None
        self.steps: dict[str, StepStatus] = {}  # in the order of a plan
        self.kinds: dict[str, str] = {}  # kinds of steps that have waited
        self.plan = False
        self.was: dict[str, str] = {}  # steps that end when the run leaves for another store

    def read(self, type: str, data: dict[str, Any]) -> None:
        self.steps |= dict.fromkeys(data.get("steps", ()), StepStatus.PENDING)
        self.plan |= bool(self.steps) if type == "created" else type == "step_added"
        if type in STEP_BECOMES and "step" in data:
            self.kinds[data["step"]] = data.get("kind", self.kinds.get(data["step"], StepKind.TASK))
            self.steps[data["step"]] = self._outcome(type, data)
        if type == "leaving":
            self.was = data["was"].get("steps", {})
        if type in {"returned", "arrived"}:
            self.steps |= {key: StepStatus(status) for key, status in self.was.items()}
        for key in data.get("forgotten", ()):
            self._forget(key)
        if type == "cancelled" and "step" in data:
            return
        self.status = RUN_BECOMES.get(type, self.status)
        self.status = Status(data["status"]) if "status" in data else self.status
        if self.status in FINAL:
            self._end()

    def _outcome(self, type: str, data: dict[str, Any]) -> StepStatus:
        kind = self.kinds[data["step"]]
        if type == "woken" and "error" in data:
            return StepStatus.FAILED
        if type == "timed_out" and kind == StepKind.APPROVAL:
            return StepStatus.SUCCEEDED if data["approved"] or not self.plan else StepStatus.FAILED
        if not self.plan:
            return STEP_BECOMES[type]
        if type == "rejected":
            return StepStatus.FAILED
        again = type == "retried" or (type in {"woken", "timed_out"} and kind == StepKind.TASK)
        return StepStatus.PENDING if again else STEP_BECOMES[type]

    def _forget(self, key: str) -> None:
        if self.plan:
            self.steps[key] = StepStatus.PENDING
        else:
            del self.steps[key]

    def _end(self) -> None:
        self.steps = {
            key: StepStatus.CANCELLED if step in OPEN_STEP else step for key, step in self.steps.items()
        }
        # A step that failed in a pause keeps its outcome.
        if self.status is Status.CANCELLED:
            self.steps = {
                key: StepStatus.CANCELLED if step is StepStatus.PENDING else step
                for key, step in self.steps.items()
            }

    def _current(self) -> str | None:
        if not self.plan:
            return None
        return next((key for key, step in self.steps.items() if step is not StepStatus.SUCCEEDED), None)

    def shown(self) -> dict[str, StepStatus]:
        current = self._current()
        if current is None or self.status not in LIVE or self.steps[current] is not StepStatus.PENDING:
            return self.steps
        return {**self.steps, current: LIVE[self.status]}
