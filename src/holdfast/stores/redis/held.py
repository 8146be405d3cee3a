"""Held rows: the runs and steps that one verb has read, as they were and as they are now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from uuid import UUID

import msgspec

from holdfast.lifecycle import StepStatus
from holdfast.machine.rows import StepRow
from holdfast.machine.settling import COME, has_waited

from . import counting, indexes, rows
from .rows import RunRow
from .snapshot import Command, Group, Snapshot

OPEN_STEP = frozenset({StepStatus.READY, StepStatus.WAITING})


class HeldRun:
    """One run with the steps that were read of it. `before`: as it is stored; None: it is new."""

    def __init__(self, snapshot: Snapshot, row: RunRow, before: RunRow | None) -> None:
        self._snapshot = snapshot
        self.row, self.before, self.is_new = row, before, before is None
        self.steps: dict[str, StepRow] = {}
        self._stored: dict[str, StepRow | None] = {}  # by key; None: there is none
        self._has_all = self.is_new
        self._guarded_in: Group | None = None  # the changes that depend on the steps as they were read
        self._key = snapshot.names.steps(row.id)

    @property
    def is_moved(self) -> bool:
        """True when workers or callers may want to know: its status, its time or its priority has changed, or
        a wait was settled, which its holder does not know."""
        old, new = self.before, self.row
        return old is None or (old.status, old.run_at, old.priority, old.deleted_at, old.waits_seq) != (
            new.status, new.run_at, new.priority, new.deleted_at, new.waits_seq,
        )  # fmt: skip

    # Steps.

    def _depend_on_steps(self) -> None:
        if self.before is not None and self._guarded_in is not self._snapshot.group:
            self._guarded_in = self._snapshot.group
            name = self._snapshot.names.run(self.row.id)
            self._snapshot.guard(("HGET", name, "writes"), self.before.writes)

    def commands(self, keys: Iterable[str]) -> list[Command]:
        """Return the commands that read these steps, for a read of many runs at once."""
        if self._has_all:
            return []
        return [("HGET", self._key, key) for key in keys if key not in self._stored]

    def step(self, key: str) -> StepRow | None:
        if not self._has_all and key not in self._stored:
            self._keep(key, self._snapshot.read("HGET", self._key, key))
        self._depend_on_steps()
        return self.steps.get(key)

    def some(self, keys: Sequence[str]) -> list[StepRow]:
        """Return the steps of these keys that there are."""
        self._snapshot.all(self.commands(keys))
        found = (self.step(key) for key in keys)
        return [step for step in found if step is not None]

    def all(self) -> list[StepRow]:
        """Return all steps by number."""
        if not self._has_all:
            for key, text in self._snapshot.read("HGETALL", self._key).items():
                if key not in self._stored:
                    self._keep(key, text)
            self._has_all = True
        self._depend_on_steps()
        return sorted(self.steps.values(), key=lambda step: step.seq)

    def _keep(self, key: str, text: str | None) -> None:
        if text is None:
            self._stored[key] = None
        else:
            step = self._snapshot.decoded(text, partial(rows.step_row, text))
            self.steps[key], self._stored[key] = msgspec.structs.replace(step), step

    def keep(self, step: StepRow) -> None:
        """Know a step that is stored, though the run is not."""
        self.steps[step.key], self._stored[step.key] = step, msgspec.structs.replace(step)

    def follow_cursor(self) -> None:
        """Let the row name the step with the latest outcome, or the current one of a plan."""
        if self.steps:
            self._follow_cursor(())

    def open_steps(self) -> list[StepRow]:
        """Return the steps that are ready or waiting."""
        if not self._has_all:
            self.some(rows.open_keys(self.row))
        self._depend_on_steps()
        return [step for step in self.steps.values() if step.status in OPEN_STEP]

    def put(self, step: StepRow) -> None:
        if not self._has_all and step.key not in self._stored:
            self._stored[step.key] = None
        self.steps[step.key] = step
        self.row.seq = max(self.row.seq, step.seq)

    def drop(self, key: str) -> None:
        del self.steps[key]
        if key not in self._stored:
            self._stored[key] = None

    # Saving.

    def save(self) -> None:
        """Write what has changed. `rev` grows if anything has."""
        snapshot, names, row = self._snapshot, self._snapshot.names, self.row
        steps = self._changed_steps()
        self._follow(steps)
        put, gone = rows.changed(self.before, row)
        writes = rows.new_writes(self.before, row, is_changed=bool(put or gone))
        if not (put or gone or steps or writes):
            return
        row.rev += 1
        key = names.run(row.id)
        snapshot.do("HSET", key, *put, "rev", row.rev)
        if writes is not None:
            self._save_writes(key, writes)
        if gone:
            snapshot.do("HDEL", key, *gone)
        if self.is_new:
            # Numbers may have been given since they were read: no fence is below one that was given before.
            snapshot.fence(key, row.fence - snapshot.counter("trail"))
        for old, new in steps:
            if new is not None:
                snapshot.do("HSET", self._key, new.key, rows.step_text(new))
            elif old is not None:
                snapshot.do("HDEL", self._key, old.key)
            indexes.move(snapshot, indexes.of_step(names, row, old), indexes.of_step(names, row, new))
        before, after = indexes.of_run(names, self.before), indexes.of_run(names, row)
        indexes.move(snapshot, before, after)
        indexes.count_lanes(snapshot, self.before, row)
        counting.move(snapshot, self.before, row)
        if self.is_new:
            snapshot.do_once("ZADD", names("types"), 0, row.type)
            snapshot.do_once("ZADD", names("tenants"), 0, row.tenant)
            for name in indexes.fixed(names, row, row.labels):
                snapshot.enter(name, 0, str(row.id))

    def _save_writes(self, key: str, writes: str) -> None:
        """Write the field `writes`. A plain checkpoint may come before this: if no step is changed here, the
        numbers of that checkpoint stay, so that a busy holder delays nobody."""
        if self.before is None:
            self._snapshot.do("HSET", key, "writes", writes)
            return
        if rows.numbers_of(self.before) != rows.numbers_of(self.row):
            self._depend_on_steps()
        self._snapshot.writes(key, self.before.writes, writes)

    def _changed_steps(self) -> list[tuple[StepRow | None, StepRow | None]]:
        changed: list[tuple[StepRow | None, StepRow | None]] = []
        for key, step in self.steps.items():
            old = self._stored.get(key)
            if step != old:
                changed.append((old, step))
        changed += [
            (old, None) for key, old in self._stored.items() if old is not None and key not in self.steps
        ]
        return changed

    def _follow(self, steps: Sequence[tuple[StepRow | None, StepRow | None]]) -> None:
        """Bring the fields up to date that say something about the steps."""
        row = self.row
        if not steps:
            return
        keys = dict.fromkeys(rows.open_keys(row))
        for old, new in steps:
            row.bytes += (rows.step_bytes(new) if new else 0) - (rows.step_bytes(old) if old else 0)
            if new is not None and new.status in OPEN_STEP:
                keys[new.key] = None
            else:
                keys.pop((new or old).key, None)  # type: ignore[union-attr]  # one of the two is there
            if new is None:
                continue
            if new.number:
                row.item_fence, row.item_no = max((row.item_fence, row.item_no), (new.fence, new.number))
            if new.status in COME and has_waited(new):
                row.waits_seq = max(row.waits_seq, new.seq)
        row.open = msgspec.json.encode(list(keys)).decode() if keys else ""
        self._follow_cursor(steps)

    def _follow_cursor(self, steps: Sequence[tuple[StepRow | None, StepRow | None]]) -> None:
        row = self.row
        if row.is_plan:
            found = self.all()
            current = next((step for step in found if step.status is not StepStatus.SUCCEEDED), None)
            row.current, row.current_seq = (None, 0) if current is None else (current.key, current.seq)
            row.cursor = (current or found[-1]).key
            return
        if any(old and old.key == row.cursor and (not new or new.status not in COME) for old, new in steps):
            row.cursor, row.cursor_seq = None, 0
            self.all()
        for step in self.steps.values():
            if step.status in COME and (row.cursor is None or step.seq >= row.cursor_seq):
                row.cursor, row.cursor_seq = step.key, step.seq


def ids(members: Iterable[str]) -> list[UUID]:
    return [UUID(member[:36]) for member in members]


def first_due(steps: Iterable[StepRow]) -> list[StepRow]:
    """Return the open waits among these steps, first due first."""
    waits = [step for step in steps if step.status is StepStatus.WAITING]
    return sorted(waits, key=lambda wait: (inf if wait.due_at is None else wait.due_at, wait.seq))
