"""Starts: looks for runs that exist already, and inserts new runs, many with one statement.

Every statement lets the event loop have Python's lock, and has to get it back afterwards. So everything that
the runs of a call depend on is read with one statement, and its runs are written together, before anything
else looks at them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from uuid import UUID

from holdfast.machine.rows import UNREAD
from holdfast.machine.view import Beginning
from holdfast.records import Definition, Instant, NewRun
from holdfast.stores.sqlite.connection.database import Database, Row, text
from holdfast.stores.sqlite.rows import definition, stored_key
from holdfast.stores.sqlite.sql import statements

from .chains import Chained
from .machine_rows import RunRow, changeable

START = statements("view/start")
_DEFINITION = statements("publish")["published"]
TOGETHER = (16, 8, 4, 2, 1)  # rows of one statement: few sizes, so that each is prepared once

_NAMES = re.compile(r":\w+")
_INTO, _, _ROW = START["start"].partition(" on conflict ")[0].partition(" values ")


@cache
def insert_many(count: int) -> str:
    """Return the statement that inserts so many runs. The names of the values end with the number of the
    run."""
    rows = [_NAMES.sub(rf"\g<0>_{n}", _ROW) for n in range(count)]
    return f"{_INTO} values {', '.join(rows)}"


class Starting(Chained):
    """The part of the machine's view that is about new runs."""

    def __init__(self, db: Database, now: Instant) -> None:
        super().__init__(db, now)
        # After `prefetch_starts`: the runs by stored key with their digests, the ids that are taken, and the
        # rows that are not written yet.
        self._keys: dict[str, tuple[str, str] | None] | None = None  # None: the key is free
        self._ids: set[str] = set()
        self._starts: list[Row] = []
        self._definitions: dict[str, Definition | None] = {}
        self._newest_event: int | None = None
        self._newest_note: int | None = None  # the highest number of the trail

    def prefetch_starts(self, runs: Sequence[NewRun]) -> None:
        """Read at once what new runs depend on. From here on new runs are written together."""
        keys = [stored_key(new.tenant, new.key) for new in runs if new.key is not None]
        types = {new.type for new in runs}
        asked = text(keys), text([new.id for new in runs]), text(types)
        self._keys = dict.fromkeys(key for key in keys if key is not None)
        self._definitions = dict.fromkeys(types)
        for what, *row in self.db.all(START["before"], asked):
            match what:
                case "key":
                    self._keys[row[0]] = row[1], row[2]
                case "id":
                    self._ids.add(row[0])
                case "fence":
                    self._newest_note = row[0]
                case "event":
                    self._newest_event = row[0]
                case _:
                    self._definitions[row[0]] = definition(tuple(row))

    def newest_event(self) -> int:
        if self._newest_event is None:
            row = self.db.one(START["newest_event"])
            self._newest_event = 0 if row is None else int(row[0])
        return self._newest_event

    def newest_note(self) -> int:
        if self._newest_note is None:
            row = self.db.one(START["fence"])
            return (0 if row is None else int(row[0])) + len(self._trail)
        return self._newest_note + len(self._trail)

    def definition(self, type: str) -> Definition | None:
        if type not in self._definitions:
            row = self.db.one(_DEFINITION, (type,))
            self._definitions[type] = None if row is None else definition(row)
        return self._definitions[type]

    def save(self) -> None:
        """Write all changes."""
        self._write_starts()
        super().save()

    def by_key(self, tenant: str, key: str) -> tuple[UUID, str] | None:
        stored = stored_key(tenant, key) or ""
        if self._keys is not None and stored in self._keys:
            row = self._keys[stored]
        else:
            row = self.db.one(START["key"], (stored,))
        return None if row is None else (UUID(row[0]), row[1])

    def is_known(self, id: UUID) -> bool:
        return str(id) in self._ids or self.db.one(START["id"], (str(id),)) is not None

    def has_parent(self, id: UUID, tenant: str) -> bool:
        self._write_starts()
        return self.db.one(START["parent"], (str(id), tenant)) is not None

    def open_runs(self, api_key: str, most: int) -> int:
        self._write_starts()
        return super().open_runs(api_key, most)

    def insert(self, new: NewRun, begins: Beginning) -> RunRow | None:
        name, now = str(new.id), self.now
        kind, run_at, max_attempts, budget, timeout_seconds, timeout_at, ttl_seconds, watermark, fence = (
            begins[:9]
        )
        chained = () if begins.chain is None else (str(begins.chain), *begins[10:14])
        account = None if begins.account is None else str(begins.account)
        key = stored_key(new.tenant, new.key)
        values = (
            name, new.tenant, new.type, kind, new.params, new.priority, run_at, key, new.digest, max_attempts,
            None if new.parent is None else str(new.parent), new.parent_step, new.limit_key, new.labels,
            budget, timeout_seconds, timeout_at, ttl_seconds, watermark, fence, now, new.trace or None,
            account, *(chained or (new.api_key,)),
        )  # fmt: skip
        if self._keys is not None and not chained:
            if name in self._ids:
                return None
            self._ids.add(name)
            if key is not None:
                self._keys[key] = name, new.digest
            self._starts.append(values)
        else:
            self.db.run(START["go_on" if chained else "start"], values)
            if not self.db.changes():
                return None
        if new.origin is not None:
            self.db.run(START["origin"], (name, str(new.origin)))
        if kind == "code":  # nothing reads this row again in this view
            self._runs.pop(name, None)
            return RunRow(new.id, new.tenant, run_at, text=name)
        self._write_starts()
        run = RunRow(
            id=new.id, text=name, tenant=new.tenant, type=new.type, kind=kind, run_at=run_at,
            max_attempts=max_attempts, fence=fence, watermark=watermark, parent=new.parent,
            parent_step=new.parent_step, budget=budget, progress=UNREAD, result=UNREAD,
            timeout_seconds=timeout_seconds, timeout_at=timeout_at, ttl_seconds=ttl_seconds, updated_at=now,
            priority=new.priority, account=begins.account,
        )  # fmt: skip
        run.saved = changeable(run)
        self._runs[name] = run
        return run

    def _write_starts(self) -> None:
        """Insert the runs that were started and are not written yet."""
        while self._starts:
            count = next(size for size in TOGETHER if size <= len(self._starts))
            part, self._starts = self._starts[:count], self._starts[count:]
            self.db.run(insert_many(count), [value for row in part for value in row])
