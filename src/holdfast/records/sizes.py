"""Sizes of records as JSON text: values in bytes, keys and ids in characters, the rest of a row as `ROW`."""

from __future__ import annotations

from holdfast.bounds import sent_bytes

from .moves import Advance, BeginPlan, Checkpoint, Complete, Fail, HolderMove, Item, Retry
from .outgoing import OutboxMessage
from .schedules import Schedule
from .shown import ApprovalRequest, Run, Step, TrailEntry
from .written import NewEvent, NewRun, Outbound, StepWrite, TrailWrite

ROW = 300  # bytes of a row beside its values, in an answer and in a commit


def start_bytes(run: NewRun) -> int:
    """Return the size of an intent."""
    size = sent_bytes(run.params)
    if run.key is not None:
        size += sent_bytes(run.key)
    return size if run.labels is None else size + sent_bytes(run.labels)


def step_bytes(step: StepWrite) -> int:
    """Return the size of a step, and of the run that is started with it."""
    size = sent_bytes(step.output) + sent_bytes(step.error) + sent_bytes(step.ask) + len(step.key)
    return size if step.child is None else size + start_bytes(step.child)


def payload_bytes(message: NewEvent | Outbound) -> int:
    """Return the size of an event, or of a message for the outbox."""
    return ROW + sent_bytes(message.payload) + len(message.id)


def row_bytes(row: TrailWrite) -> int:
    """Return the size of a trail row that a run writes."""
    return ROW + sent_bytes(row.data)


def item_bytes(item: Item) -> int:
    """Return the size of everything in one commit of a run."""
    size = sent_bytes(item.progress)
    for step in item.steps:
        size += step_bytes(step)
    for row in item.trail:
        size += row_bytes(row)
    for event in item.events:
        size += payload_bytes(event)
    for message in item.outbox:
        size += payload_bytes(message)
    return size if type(item.move) is Checkpoint else size + _move_bytes(item.move)


def _move_bytes(move: HolderMove) -> int:
    match move:
        case Complete():
            return sent_bytes(move.result) + sum(map(start_bytes, move.starts))
        case Advance():
            return sent_bytes(move.result)
        case Retry() | Fail():
            return sent_bytes(move.error)
        case BeginPlan():
            return sum(sent_bytes(step.ask) for step in move.plan)
        case _:
            return 0


def run_bytes(run: Run) -> int:
    """Return the size of a run as lists show it, with its open waits."""
    values = (run.params_json, run.result_json, run.error_json, run.labels_json, run.progress_json)
    return ROW + sum(map(sent_bytes, values)) + sum(map(shown_step_bytes, run.waiting_on))


def shown_step_bytes(step: Step) -> int:
    """Return the size of a step as it is shown."""
    return ROW + sum(map(sent_bytes, (step.key, step.output, step.error_json, step.ask, step.wake)))


def entry_bytes(entry: TrailEntry) -> int:
    """Return the size of a trail row."""
    return ROW + sent_bytes(entry.data_json)


def message_bytes(message: OutboxMessage) -> int:
    """Return the size of a message as lists show it."""
    return ROW + sent_bytes(message.payload_json) + sent_bytes(message.error_json)


def request_bytes(request: ApprovalRequest) -> int:
    """Return the size of an open gate."""
    return ROW + sent_bytes(request.ask_json)


def schedule_bytes(schedule: Schedule) -> int:
    """Return the size of a schedule."""
    return ROW + sent_bytes(schedule.params_json) + sent_bytes(schedule.labels_json)
