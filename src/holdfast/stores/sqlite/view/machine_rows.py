"""Rows as the machine changes them, and the statements that write the changed columns."""

from __future__ import annotations

from functools import cache
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, NamedTuple
from uuid import UUID, SafeUUID

import msgspec

from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.machine import rows as machine
from holdfast.machine.rows import UNREAD, StepRow
from holdfast.records import Instant, Json
from holdfast.stores.sqlite.connection.database import Row, text
from holdfast.stores.sqlite.sql import statements

SQL = statements("view/view")

# A dict lookup takes a fifth of the time of a call of the enum.
_RUN = {status.value: status for status in Status}
_STEP = {status.value: status for status in StepStatus}
_KINDS = {kind.value: kind for kind in StepKind}

# The columns of a run as they are read, without the last: they have the order of the fields of RunRow.
_COLUMNS = [name.strip() for name in SQL["run_columns"].split("(", 1)[0].rstrip(", ").split(",")]
_FIXED = _COLUMNS.index("deleted_at") + 1  # columns from here on never change
_STATUS, _STEP_MARK, _PARENT, _CHAIN = (
    _COLUMNS.index(name) for name in ("status", "step_mark", "parent_id", "chain")
)
_UNREAD = (UNREAD, UNREAD)
CHANGEABLE = (*_COLUMNS[2:_FIXED], "progress", "result")  # fields and columns have the same names
changeable = attrgetter(*CHANGEABLE)
step_values = msgspec.structs.astuple
STEP_COLUMNS = tuple(name.strip() for name in SQL["step_columns"].split(","))
SQL = {
    name: sql.replace("$run_columns", SQL["run_columns"])
    .replace("$step_columns", ", ".join(STEP_COLUMNS))
    .replace("$columns_of_step", ", ".join(f"step.{column}" for column in STEP_COLUMNS))
    for name, sql in SQL.items()
}
_CHILD, _OUTPUT, _WAKE = (STEP_COLUMNS.index(name) for name in ("child_id", "output", "wake"))


class RunRow(machine.RunRow, gc=False, kw_only=True):
    """A run and its steps that were read. `saved` and `saved_steps` hold the values that are in the file."""

    text: str  # the id as text
    chain_text: str | None = None  # the id of the first run of the chain, if that is another run
    saved: Row = ()
    seq: int = 0  # the highest number of a step
    top: int = 0  # the highest number of a step in the file
    steps: dict[str, StepRow | None] = msgspec.field(default_factory=dict)
    saved_steps: dict[str, Row] = msgspec.field(default_factory=dict)
    knows_open: bool = False  # all open steps were read
    grown: bool = False  # a step has to be inserted
    noted: bool = False  # the trail gets an entry about it

    @property
    def has_moved(self) -> bool:
        """True when the status differs from the status in the file."""
        return bool(self.saved) and self.status != self.saved_status

    @property
    def saved_status(self) -> str:
        """The status in the file, of a run that was read."""
        return str(self.saved[_STATUS - 2])


def run_row(row: Row, id: UUID | None = None) -> RunRow:
    """Return a run from its row. `id`: the id, if the caller has it and it need not be parsed."""
    parent, seq, step_mark = row[_PARENT], row[-1] or 0, row[_STEP_MARK]
    resume_to = row[_STATUS + 1]
    fields = (
        id or uuid_of(row[0]), *row[1:_STATUS], _RUN[row[_STATUS]],
        None if resume_to is None else _RUN[resume_to], *row[_STATUS + 2 : _FIXED], UNREAD, UNREAD,
        *row[_FIXED:-1],
    )  # fmt: skip
    run = RunRow(
        *fields, text=row[0], saved=row[2:_FIXED] + _UNREAD, seq=max(step_mark, seq), top=seq,
    )  # fmt: skip
    if parent is not None:
        run.parent = uuid_of(parent)
    chain, present = row[_CHAIN : _CHAIN + 2]
    if chain is not None:
        run.chain, run.chain_text = uuid_of(chain), chain
    elif present is not None:
        run.present = uuid_of(present)
    if run.account is not None:
        run.account = uuid_of(row[_CHAIN + 2])
    return run


def step_row(row: Row) -> StepRow:
    """Return a step from its row."""
    child = row[18]
    return StepRow(
        row[0], row[1], _KINDS[row[2]], _STEP[row[3]], row[4], row[5], row[6], row[7], row[8], row[9],
        row[10], row[11], row[12], row[13], row[14], row[15], row[16], row[17],
        None if child is None else uuid_of(child), row[19], row[20], row[21], row[22],
    )  # fmt: skip


def outlined(row: Row) -> StepRow:
    """Return a step from a row that was read without its values."""
    step = step_row(row)
    step.output = step.error = step.ask = step.wake = UNREAD
    return step


class FromEvent(NamedTuple):
    """JSON with a payload that SQLite inserts, so that the payload is never read into this process."""

    before: str
    seq: int
    behind: str


class Event(NamedTuple):
    """An event that a wait may take."""

    seq: int
    id: str
    topic: str
    at: Instant
    size: int

    @property
    def output(self) -> Json:
        output: Any = FromEvent(self._before, self.seq, "}")
        return output  # type: ignore[no-any-return]  # the machine does not look inside

    @property
    def wake(self) -> Json:
        wake: Any = FromEvent('{"reason":"event","event":' + self._before, self.seq, "}}")
        return wake  # type: ignore[no-any-return]  # the same

    @property
    def _before(self) -> str:
        return text({"id": self.id, "topic": self.topic, "at": self.at})[:-1] + ',"payload":'


def uuid_of(name: str) -> UUID:
    """Return the id of a text that Holdfast wrote. UUID(text) checks every part of it and takes three
    times as long."""
    made = object.__new__(UUID)
    object.__setattr__(made, "int", int(name.replace("-", ""), 16))
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made


def changes(was: Row, now: Row) -> tuple[int, ...]:
    """Return the positions at which two rows differ."""
    return tuple([n for n in compress(_PLACES, map(is_not, was, now)) if was[n] != now[n]])


_PLACES = tuple(range(max(len(CHANGEABLE), len(STEP_COLUMNS))))


@cache
def update_run(columns: tuple[int, ...], *, noted: bool) -> str:
    """Return the statement that writes these columns of a run, and with `noted` also the time of the
    change."""
    names = [CHANGEABLE[n] for n in columns] + ["updated_at"] * noted
    assignments = ", ".join(f"{name} = :{name}" for name in names)
    return f"update workflow_run set {assignments}, rev = rev + 1 where id = :run"


@cache
def update_step(columns: tuple[int, ...], composed: tuple[int, ...]) -> str:
    """Return the statement that writes these columns of a step. `composed`: columns with an event's
    payload."""
    assignments = ", ".join(f"{STEP_COLUMNS[n]} = {_value(n, composed)}" for n in columns)
    return f"update workflow_step set {assignments} where run_id = :run and key = :this_key"


def _value(n: int, composed: tuple[int, ...]) -> str:
    name = STEP_COLUMNS[n]
    if n not in composed:
        return f":{name}"
    payload = f"coalesce((select payload from workflow_inbox where seq = :{name}_event), '')"
    return f":{name}_before || {payload} || :{name}_behind"


def step_change(was: Row, now: Row) -> tuple[str, list[Any]]:
    """Return the statement and its values, without the run and the key."""
    columns = changes(was, now)
    if _CHILD not in columns and type(now[_OUTPUT]) is not FromEvent and type(now[_WAKE]) is not FromEvent:
        return update_step(columns, ()), [now[n] for n in columns]
    composed = tuple([n for n in columns if type(now[n]) is FromEvent])
    values: list[Any] = []
    for n in columns:
        if n in composed:
            values += now[n]
        elif n == _CHILD and now[n] is not None:
            values.append(str(now[n]))
        else:
            values.append(now[n])
    return update_step(columns, composed), values


INSERT_STEP = (
    f"insert into workflow_step (run_id, tenant, {', '.join(STEP_COLUMNS)}) "
    f"values (:run, :tenant, {', '.join(':' + name for name in STEP_COLUMNS)})"
)


def without_payloads(now: Row) -> Row:
    """Return the values of a step that is inserted. A second statement adds payloads of events."""
    if type(now[_OUTPUT]) is FromEvent or type(now[_WAKE]) is FromEvent:
        return tuple([None if type(value) is FromEvent else value for value in now])
    return now


def new_step(run: RunRow, now: Row) -> Row:
    """Return the values of the insert statement."""
    child = now[_CHILD]
    if child is not None:
        now = (*now[:_CHILD], str(child), *now[_CHILD + 1 :])
    return (run.text, run.tenant, *now)
