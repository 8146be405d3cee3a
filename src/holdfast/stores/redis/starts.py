"""Plain starts: runs that need no decision, by one script for many of them.

Code, or a plan that begins with a task; without a parent, a chain or a shared budget. The published
definitions are remembered with their revision, which the script compares. Everything else goes through the
machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.bounds import text_bytes
from holdfast.lifecycle import StepKind
from holdfast.machine.durations import bounded, micros
from holdfast.machine.plans import planned_rows
from holdfast.machine.rows import PLAN
from holdfast.records import MAX_ATTEMPTS, PRIORITY, Definition, NewRun, PlanStep

from . import indexes, rows
from .batches import EXACT, Batch, starting_sets
from .names import Names
from .rows import RARE

STEPS = 500  # steps of a plan, in one command
NO_LIMIT = 2**53


class Published:
    """The definitions that this process has read. `revision`: of all definitions, when they were read."""

    MOST = 10_000

    def __init__(self) -> None:
        self.revision = ""
        self._known: dict[str, Definition | None] = {}

    def lacks(self, types: Sequence[str]) -> list[str]:
        return [type_ for type_ in dict.fromkeys(types) if type_ not in self._known]

    def learn(self, revision: str, found: dict[str, Definition | None]) -> None:
        if revision != self.revision or len(self._known) > self.MOST:
            self.revision, self._known = revision, {}
        self._known |= found

    def forget(self) -> None:
        self.revision, self._known = "", {}

    def of(self, type_: str) -> Definition | None:
        return self._known.get(type_)


def is_plain(new: NewRun) -> bool:
    """Return True when the script may start the run, as far as that does not depend on its definition."""
    return (
        new.parent is None
        and new.follows is None
        and not new.covers_children
        and micros(new.delay_seconds or 0.0) < EXACT
        and micros(new.timeout_seconds or 0.0) < EXACT
        and (new.run_at is None or new.run_at < EXACT * 8)
    )


def is_plain_by(known: Definition | None) -> bool:
    """Return True when the script may start runs of this definition."""
    if known is None:
        return True
    if known.covers_children or micros(known.timeout_seconds or 0.0) >= EXACT or len(known.steps) > STEPS:
        return False
    return known.kind != PLAN or (bool(known.steps) and known.steps[0].kind is StepKind.TASK)


def keys(names: Names, runs: Sequence[NewRun]) -> Iterator[str]:
    """Yield hash and trail of each run."""
    for new in runs:
        id_ = str(new.id)
        yield names.run(id_)
        yield names.trail_of(id_)


def call(batch: Batch, runs: Sequence[NewRun], published: Published) -> None:
    """Add the words of start.lua."""
    said = [_said(batch, new, published.of(new.type)) for new in runs]
    batch.say(published.revision, batch.kinds, said)


def _said(batch: Batch, new: NewRun, known: Definition | None) -> tuple[Any, ...]:
    """Return a run as the script wants it."""
    attempts, timeout, budget = new.max_attempts, new.timeout_seconds, new.budget
    steps: tuple[PlanStep, ...] = ()
    if known is not None:
        attempts = known.max_attempts or None if attempts is None else attempts
        timeout = known.timeout_seconds if timeout is None else timeout
        budget = known.budget if budget is None else budget
        steps = known.steps if known.kind == PLAN else ()
    attempts = MAX_ATTEMPTS if attempts is None else attempts
    rows, size = step_words(steps, attempts) if steps else ((), 0)
    size += text_bytes(new.params) + text_bytes(new.labels)
    given = _fields(new, attempts, timeout, budget)
    if steps:
        given += ("kind", PLAN, "current", steps[0].name, "cursor", steps[0].name)
    rare = int(timeout is not None or any(name in RARE for name in given[::2]))
    fields = [
        "writes", f"- {max(0, len(steps) - 1)} {size} 0 0 0 {rare}", "rev", "1", "type", new.type,
        "tenant", new.tenant, "params", new.params, *given,
    ]  # fmt: skip
    is_usual = new.key is None and new.api_key is None and new.run_at is None and new.delay_seconds is None
    is_usual = is_usual and timeout is None and new.limit_key is None and not new.labels and not steps
    return (
        batch.kind(new.type, new.tenant, starting_sets), f"{new.priority:03d}",
        _plainly(new.type) if not steps and new.origin is None and not new.by else _created(new, steps),
        fields, False if is_usual else _options(batch, new, timeout, rows),
    )  # fmt: skip


def _options(batch: Batch, new: NewRun, timeout: float | None, rows: tuple[str, ...]) -> tuple[Any, ...]:
    """Return what few runs have."""
    names, place, id_ = batch.names, batch.place, str(new.id)
    key: tuple[Any, ...] = (0, "")
    if new.key is not None:
        key = (place(names.of("key", new.tenant, new.key)), f"{id_} {new.digest}")
    api_key = (0, 0)
    if new.api_key is not None:
        most = NO_LIMIT if new.open_runs_max is None else new.open_runs_max
        api_key = (place(names.of("open:key", new.api_key)), most)
    at: tuple[Any, ...] = ("", 0, "")
    if new.run_at is not None:
        at = ("a", str(new.run_at), indexes.instant_place(new.run_at))
    elif new.delay_seconds is not None:
        at = ("d", micros(new.delay_seconds), "")
    lane: tuple[Any, ...] = (0, "")
    if new.limit_key is not None:
        lane = (
            place(indexes.lane(names, new.type, new.tenant, new.limit_key)), indexes.lane_of(new.limit_key)
        )  # fmt: skip
    sets = [place(key) for key in indexes.labelled(names, new.labels)]
    steps = (place(names.steps(id_)), rows) if rows else (0, ())
    return (*key, *api_key, *at, "" if timeout is None else micros(timeout), *lane, sets, *steps)


@lru_cache(maxsize=4096)
def _plainly(type_: str) -> str:
    """Return the data of the trail row of a run that has nothing but its type."""
    return msgspec.json.encode({"type": type_}).decode()


def _created(new: NewRun, steps: Sequence[PlanStep]) -> str:
    data: dict[str, object] = {"type": new.type}
    if steps:
        data["steps"] = [step.name for step in steps]
    if new.origin is not None:
        data["origin"] = str(new.origin)
    if new.by:
        data["by"] = new.by
    return msgspec.json.encode(data).decode()


def _fields(new: NewRun, attempts: int, timeout: float | None, budget: int | None) -> list[str]:
    """Return fields of the hash and their values. Fields with their default value are left out."""
    fields: list[str] = []
    if attempts != MAX_ATTEMPTS:
        fields += ("max_attempts", str(attempts))
    if new.priority != PRIORITY:
        fields += ("priority", str(new.priority))
    if timeout is not None:
        fields += ("timeout_seconds", repr(bounded(timeout)))
    if new.ttl_seconds is not None:
        fields += ("ttl_seconds", repr(bounded(new.ttl_seconds)))
    if budget is not None:
        fields += ("budget", str(budget))
    for name in ("digest", "trace"):
        if value := getattr(new, name):
            fields += (name, value)
    for name in ("key", "limit_key", "labels", "api_key", "origin"):
        if (value := getattr(new, name)) is not None:
            fields += (name, str(value))
    return fields


@lru_cache(maxsize=256)
def step_words(steps: tuple[PlanStep, ...], max_attempts: int) -> tuple[tuple[str, ...], int]:
    """Return keys and rows of a plan's steps, and their bytes."""
    planned = planned_rows(steps, max_attempts)
    words = tuple(word for step in planned for word in (step.key, rows.step_text(step)))
    return words, sum(map(rows.step_bytes, planned))
