"""Saving: writes each changed row once, with only the columns that differ.

The trail is written last, because entries may be added until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.machine.view import Data
from holdfast.records import Counted, Instant, Json, RunningStep
from holdfast.stores.sqlite.connection.database import Database, Row, text
from holdfast.stores.sqlite.sql import statements

from .machine_rows import (
    INSERT_STEP,
    SQL,
    RunRow,
    changeable,
    changes,
    new_step,
    step_change,
    step_values,
    update_run,
    without_payloads,
)

HALF_GONE = -1  # a value of deleted_at: a purge has begun to remove the run
MANY_ROWS = 4  # from this number on, rows of the trail are written as one JSON text
LONG = 65_536  # the most characters of such a text

# Happenings that are counted here. Those that change the status of a run are counted by triggers.
_COUNTED = {"retried": Counted.RETRIED.value, "lease_expired": Counted.EXPIRED.value}
_HAPPENED = statements("counts")["happened"]


class Saving:
    """The rows that a verb has read, and the rows that it adds."""

    def __init__(self, db: Database, now: Instant) -> None:
        self.db, self.now = db, now
        self._runs: dict[str, RunRow | None] = {}
        self._trail: list[tuple[str, str, Data | Json]] = []
        self._receipts: list[tuple[str, int, str, str | None]] = []
        self._woken: dict[int, int] = {}  # for an event, how many more runs it has reached

    def _keep(self, run: RunRow) -> RunRow | None:
        """Keep a run that was read. Return the kept row, which may have been read before."""
        known = self._runs.get(run.text)
        if known is not None:
            return known
        kept = None if run.deleted_at == HALF_GONE else run
        self._runs[run.text] = kept
        return kept

    def note(self, run: RunRow, what: str, /, **data: Any) -> Data:
        run.noted = True
        self._trail.append((run.text, what, data))
        if what in _COUNTED:
            self.db.run(_HAPPENED, (self.now, run.tenant, run.type, _COUNTED[what]))
        return data

    def log(self, run: RunRow, what: str, data: Json) -> None:
        run.noted = True
        self._trail.append((run.text, what, data))

    def call_holders(self) -> None:
        self.db.run(SQL["call_holders"])

    def show_running(self, run: RunRow, steps: Sequence[RunningStep]) -> None:
        self.db.run(SQL["show_running"], (run.text, run.fence, text(steps)))

    def keep_trace(self, run: RunRow, trace: str) -> None:
        self.db.run(SQL["keep_trace"], (trace or None, run.text))

    def save(self) -> None:
        """Write all changes."""
        self._write_steps(*[run for run in self._runs.values() if run is not None and run.steps])
        self._write_runs()
        self._write_receipts()
        for seq, more in self._woken.items():
            if more:
                self.db.run(SQL["count"], (more, seq))
        self._write_trail()

    def _write_steps(self, *runs: RunRow) -> None:
        fresh, groups = list[Row](), dict[str, list[Row]]()
        for run in runs:
            saved = run.saved_steps
            for key, step in run.steps.items():
                if step is None:
                    continue
                was, now = saved.get(key), step_values(step)
                if was is None:
                    was = without_payloads(now)
                    fresh.append(new_step(run, was))
                if now != was:
                    sql, values = step_change(was, now)
                    groups.setdefault(sql, []).append((*values, run.text, key))
                saved[key] = now
            run.top, run.grown = run.seq, False
        if fresh:
            self.db.many(INSERT_STEP, fresh)
        for sql, values in groups.items():
            self.db.many(sql, values)

    def _write_runs(self) -> None:
        groups: dict[str, list[Row]] = {}
        for run in self._runs.values():
            if run is None or (now := changeable(run)) == run.saved:
                continue
            columns = changes(run.saved, now)
            noted = run.noted or run.updated_at == self.now
            values = (*[now[n] for n in columns], *([self.now] if noted else ()), run.text)
            groups.setdefault(update_run(columns, noted=noted), []).append(values)
            run.saved = now
        for sql, rows in groups.items():
            self.db.many(sql, rows)

    def _write_receipts(self) -> None:
        if self._receipts:
            self.db.many(SQL["receipt"], self._receipts)
            self._receipts.clear()

    def _write_trail(self) -> None:
        trail = [(run, what, data if type(data) is str else text(data)) for run, what, data in self._trail]
        self._trail.clear()
        if len(trail) < MANY_ROWS:
            if trail:
                self.db.many(SQL["trail"], [(*row, self.now) for row in trail])
            return
        part, size = list[tuple[str, str, str]](), 0
        for row in trail:
            if part and size + len(row[2]) > LONG:
                self.db.run(SQL["trail_of_many"], (self.now, text(part)))
                part, size = [], 0
            part.append(row)
            size += len(row[2])
        self.db.run(SQL["trail_of_many"], (self.now, text(part)))
