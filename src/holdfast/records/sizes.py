"""How many bytes of JSON text the records that are written take: names count too, numbers do not."""

from __future__ import annotations

from holdfast.bounds import sent_bytes

from .written import Item, NewEvent, NewRun, Outbound, StepWrite


def start_bytes(run: NewRun) -> int:
    """The size of an intent."""
    return sent_bytes(run.params) + sent_bytes(run.labels) + sent_bytes(run.key)


def step_bytes(step: StepWrite) -> int:
    """The size of a step, and of the run that is started with it."""
    size = sent_bytes(step.output) + sent_bytes(step.error) + sent_bytes(step.ask) + len(step.key)
    return size if step.child is None else size + start_bytes(step.child)


def payload_bytes(message: NewEvent | Outbound) -> int:
    """The size of an event, or of a message for the outbox."""
    return sent_bytes(message.payload) + len(message.id)


def item_bytes(item: Item) -> int:
    """The size of everything that belongs into one commit of a run."""
    size = sent_bytes(item.result) + sent_bytes(item.error) + sent_bytes(item.progress)
    for step in item.steps:
        size += step_bytes(step)
    for row in item.trail:
        size += sent_bytes(row.data)
    for event in item.events:
        size += payload_bytes(event)
    for message in item.outbox:
        size += payload_bytes(message)
    for start in item.starts:
        size += start_bytes(start)
    for step_ in item.plan:
        size += sent_bytes(step_.ask)
    return size
