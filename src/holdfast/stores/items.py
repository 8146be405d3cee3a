"""Checks of the items of leaseholders that all stores share, made before any row is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast import bounds
from holdfast.arguments import WHOLE_MAX, check_datetime, check_name, check_text, check_topic, check_whole
from holdfast.clipped import clipped
from holdfast.contract import RUNNING_BYTES, RUNNING_MAX
from holdfast.errors import TooLarge, UsageError
from holdfast.exact import check_fields
from holdfast.lifecycle import HOLDER_MOVES, SETTLED, WAITS, StepKind, StepStatus
from holdfast.records import Item, NewRun, Running, RunningStep, StepWrite
from holdfast.records.moves import BeginPlan, Checkpoint, Complete, HolderMove, Park, Release, Retry
from holdfast.records.sizes import item_bytes
from holdfast.step_keys import KEY_MAX, is_long_key

from .arguments import (
    UNITS_MAX,
    check_at,
    check_big,
    check_event_content,
    check_number_known,
    check_optional,
    check_plan_step,
    check_run,
    check_span,
)
from .key_arguments import refuse_counted

EVENT_ID_MAX = 1_000  # an event that a step emits is named after its run and the step

_WRITABLE = SETTLED | {StepStatus.READY, StepStatus.WAITING}
_OF_WAITS = frozenset({StepStatus.WAITING, StepStatus.CANCELLED})
_KINDS = frozenset(StepKind)


def check_batch(_: str, batch: Sequence[Item]) -> None:
    """Check the items of one commit, before it is queued."""
    if len(batch) > 1 and len({item.run for item in batch}) != len(batch):
        raise UsageError("a batch holds at most one item of a run: send the next one after the answer")
    for item in batch:
        if not item.steps and type(item.move) is Checkpoint:
            raise UsageError(f"a checkpoint of run {item.run} records no step: it needs at least one")
        check_item("item", item)
        _refuse_large(item)


def check_item(_: str, item: Item) -> None:
    """Check one item."""
    check_fields(item)
    check_big("fence", item.fence)
    check_whole("number", item.number)
    check_number_known("known", item.known)
    check_at("started_at", item.started_at)
    check_span("lease", item.lease_seconds)
    if item.trace is not None:
        check_text("trace", item.trace)
    if type(item.move) is not Checkpoint:
        _check_move(item.move)
    if isinstance(item.move, Complete):
        _check_followers(item.move, item.run)
    for write in item.steps:
        _check_step(item.move, write)
    for event in item.events:
        check_event_content(event)
        check_text("event id", event.id, EVENT_ID_MAX)
    for message in item.outbox:
        check_fields(message)
        check_text("message id", message.id, EVENT_ID_MAX)
        check_name("sink", message.sink)
        check_optional("message key", message.key)
    for row in item.trail:
        check_fields(row)


def refuse_follower(new: NewRun, by: UUID | None = None) -> None:
    """Refuse a run that follows another run, except in the complete of that run, `by`."""
    if new.follows not in {None, by}:
        raise UsageError(f"follows={new.follows}: only a run's own complete starts what it goes on as")


def _check_followers(move: Complete, by: UUID) -> None:
    for new in move.starts:
        refuse_follower(new, by)
    if sum(new.follows is not None for new in move.starts) > 1:
        raise UsageError(f"several runs follow={by}: a run goes on as one other")


def _check_move(move: HolderMove) -> None:
    if not isinstance(move, HolderMove):
        raise UsageError(f"{clipped(move)} is no move of a holder: {', '.join(sorted(HOLDER_MOVES))}")
    check_fields(move)
    match move:
        case Complete():
            for new in move.starts:
                check_run(new)
                refuse_counted(new)
        case Retry():
            check_span("delay", move.delay_seconds)
        case Release():
            check_whole("cost_max", move.cost_max, 0, UNITS_MAX)
        case BeginPlan():
            if not move.plan:
                raise UsageError("a plan that begins has no steps: it needs at least one")
            for step in move.plan:
                check_plan_step(step)
        case _:
            pass


def check_running(_: str, rows: Sequence[Running]) -> None:
    """Check the running steps of runs."""
    if len({row.run for row in rows}) != len(rows):
        raise UsageError("a run's running steps are shown by one row")
    for row in rows:
        check_fields(row)
        check_big("fence", row.fence)
        check_at("started_at", row.started_at)
        if not 0 < len(row.steps) <= RUNNING_MAX:
            raise UsageError(f"run {row.run}: 1 to {RUNNING_MAX} running steps are shown")
        for one in row.steps:
            _check_running_step(one)
        if len(row.steps) > 1 and sum(len(one.step.encode()) for one in row.steps) > RUNNING_BYTES:
            raise UsageError(f"run {row.run}: its running steps have over {RUNNING_BYTES:,} bytes of names")


def _check_running_step(one: RunningStep) -> None:
    check_fields(one)
    check_row_key(one.step)
    check_whole("attempt of a step", one.attempt, 1)
    check_datetime("started_at of a step", one.started_at)


def check_row_key(key: Any) -> None:
    """Check the key of a step's row."""
    if not isinstance(key, str) or not key or is_long_key(key):
        raise UsageError(f"a step's key is text of at most {KEY_MAX} characters, not {clipped(key)}")


def _check_step(move: HolderMove, write: StepWrite) -> None:
    check_fields(write)
    check_row_key(write.key)
    if not (type(write.attempts) is int and 0 <= write.attempts <= WHOLE_MAX):
        check_whole("attempts of a step", write.attempts)
    if not (type(write.cost) is int and 0 <= write.cost <= UNITS_MAX):
        check_whole("cost of a step", write.cost, 0, UNITS_MAX)
    check_at("due_at of a step", write.due_at)
    check_at("started_at of a step", write.started_at)
    check_span("delay of a step", write.delay_seconds)
    if write.topic is not None:
        check_topic(write.topic)
    if write.child is not None:
        check_run(write.child)
        refuse_counted(write.child)
    if write.status is not StepStatus.SUCCEEDED or write.kind is not StepKind.TASK:
        _check_outcome(move, write)


def _check_outcome(move: HolderMove, write: StepWrite) -> None:
    """Refuse a kind or status that no step has, or that this step cannot have in this move."""
    if write.status is StepStatus.READY and not isinstance(move, Retry):
        raise UsageError(f"step {write.key!r} is to be tried again: only a retry may say so, no {move.verb}")
    if write.kind not in _KINDS:
        raise UsageError(f"step {write.key!r} is of no known kind: {write.kind!r}")
    if write.status not in _WRITABLE:
        raise UsageError(f"step {write.key!r} cannot be written as {write.status!r}")
    if write.status in _OF_WAITS and write.kind not in WAITS and not _waits_in_a_plan(move, write):
        raise UsageError(f"step {write.key!r} of kind {write.kind!r} cannot wait")


def _waits_in_a_plan(move: HolderMove, write: StepWrite) -> bool:
    return isinstance(move, Park) and (write.kind, write.status) == (StepKind.TASK, StepStatus.WAITING)


def _refuse_large(item: Item) -> None:
    """Refuse an item that is too large for one commit. Its fields have been checked."""
    if (size := item_bytes(item)) > bounds.ITEM_BYTES:
        message = f"what run {item.run} writes at once is {size:,} bytes as JSON"
        raise TooLarge(f"{message}, the limit is {bounds.ITEM_BYTES:,}: write it in several commits")


def brings_news(batch: Sequence[Item]) -> bool:
    """Return True when listeners should be woken. A simple checkpoint changes nothing for others.

    A checkpoint that opens a wait does: the look at the wait may leave work for a keeper.
    """
    return any(
        not isinstance(item.move, Checkpoint)
        or item.events
        or item.outbox
        or any(write.status is StepStatus.WAITING for write in item.steps)
        for item in batch
    )
