"""The trail, replayed: what a run and its steps must be, told by nothing but what happened."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.lifecycle import FINAL, Status, StepStatus
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
    "step_succeeded": StepStatus.SUCCEEDED,
    "step_failed": StepStatus.FAILED,
    "waiting": StepStatus.WAITING,
    "woken": StepStatus.SUCCEEDED,
    "timed_out": StepStatus.FAILED,
    "retried": StepStatus.READY,
}
OPEN_STEP = {StepStatus.READY, StepStatus.WAITING}


def replayed(trail: Iterable[TrailEntry]) -> tuple[Status | None, dict[str, StepStatus]]:
    """The status of the run and of each step, rebuilt from the trail alone."""
    status: Status | None = None
    steps: dict[str, StepStatus] = {}
    for entry in trail:
        data = entry.data
        if entry.type in STEP_BECOMES and "step" in data:
            steps[data["step"]] = STEP_BECOMES[entry.type]
        for key in data.get("forgotten", ()):
            del steps[key]
        if entry.type == "cancelled" and "step" in data:
            steps[data["step"]] = StepStatus.CANCELLED
            continue
        status = RUN_BECOMES.get(entry.type, status)
        status = Status(data["status"]) if "status" in data else status
        if status in FINAL:
            steps = {key: _ended(step) for key, step in steps.items()}
    return status, steps


def _ended(step: StepStatus) -> StepStatus:
    return StepStatus.CANCELLED if step in OPEN_STEP else step
