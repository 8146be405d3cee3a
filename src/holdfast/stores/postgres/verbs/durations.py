"""Durations that JSON cannot express. An infinite wait becomes a very long one; NaN is refused."""

from __future__ import annotations

from math import isfinite
from typing import TypeVar

import msgspec

from holdfast.machine.durations import bounded
from holdfast.records import Item, NewEvent, NewRun, PlanStep, StepWrite
from holdfast.records.moves import BeginPlan, Complete, HolderMove, Retry

T = TypeVar("T", NewRun, NewEvent, StepWrite, PlanStep, Retry)


def finite_run(run: NewRun) -> NewRun:
    return _finite(
        run, delay_seconds=run.delay_seconds, timeout_seconds=run.timeout_seconds, ttl_seconds=run.ttl_seconds
    )


def finite_event(event: NewEvent) -> NewEvent:
    return _finite(event, keep_seconds=event.keep_seconds)


def finite_step(step: PlanStep) -> PlanStep:
    return _finite(step, timeout_seconds=step.timeout_seconds)


def finite_item(item: Item) -> Item:
    """Return the item, nearly always unchanged: only waits, events, starts and retries have durations."""
    if any(write.delay_seconds is not None or write.child is not None for write in item.steps):
        item = msgspec.structs.replace(item, steps=tuple(map(_finite_write, item.steps)))
    if item.events:
        item = msgspec.structs.replace(item, events=tuple(map(finite_event, item.events)))
    move = _finite_move(item.move)
    return item if move is item.move else msgspec.structs.replace(item, move=move)


def _finite_move(move: HolderMove) -> HolderMove:
    match move:
        case Retry():
            return _finite(move, delay_seconds=move.delay_seconds)
        case Complete() if move.starts:
            return msgspec.structs.replace(move, starts=tuple(map(finite_run, move.starts)))
        case BeginPlan():
            return BeginPlan(plan=tuple(map(finite_step, move.plan)))
        case _:
            return move


def _finite_write(write: StepWrite) -> StepWrite:
    if write.child is not None:
        write = msgspec.structs.replace(write, child=finite_run(write.child))
    return _finite(write, delay_seconds=write.delay_seconds)


def _finite(record: T, **seconds: float | None) -> T:
    wrong = {
        name: bounded(value) for name, value in seconds.items() if value is not None and not isfinite(value)
    }
    return msgspec.structs.replace(record, **wrong) if wrong else record
