"""Rows as the machine works on them, and the statements that write what it has changed of them."""

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

from .database import Row, text
from .sql import statements

SQL = statements("view")

# A lookup takes a fifth of the time of an enum's call.
_RUN = {status.value: status for status in Status}
_STEP = {status.value: status for status in StepStatus}
_KINDS = {kind.value: kind for kind in StepKind}

# The columns of a run as they are read, but for the last: they stand in the order of its fields.
_COLUMNS = [name.strip() for name in SQL["run_columns"].split("(", 1)[0].rstrip(", ").split(",")]
_FIXED = _COLUMNS.index("deleted_at") + 1  # from here on nothing changes
_STATUS, _STEP_MARK, _PARENT, _CHAIN = (
    _COLUMNS.index(name) for name in ("status", "step_mark", "parent_id", "chain")
)
_UNREAD = (UNREAD, UNREAD)
CHANGEABLE = (*_COLUMNS[2:_FIXED], "progress", "result")  # fields and columns are named alike
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
    """A run and those of its steps that were read; `was`, `stood`: as they are in the file."""

    text: str  # the id
    chain_text: str | None = None  # that of the chain, if another run is the first
    was: Row = ()
    seq: int = 0  # the highest number of a step
    top: int = 0  # the same in the file
    steps: dict[str, StepRow | None] = msgspec.field(default_factory=dict)
    stood: dict[str, Row] = msgspec.field(default_factory=dict)
    knows_open: bool = False  # all open steps were read
    grown: bool = False  # a step is to be inserted
    noted: bool = False  # the trail tells of a change

    @property
    def has_moved(self) -> bool:
        """Whether its status is another one than in the file."""
        return bool(self.was) and self.status != self.was[_STATUS - 2]


def run_row(row: Row, id: UUID | None = None) -> RunRow:
    """A run as it was read; `id`: its id, if that need not be made of the text."""
    parent, seq, step_mark = row[_PARENT], row[-1] or 0, row[_STEP_MARK]
    resume_to = row[_STATUS + 1]
    fields = (
        id or uuid_of(row[0]), *row[1:_STATUS], _RUN[row[_STATUS]],
        None if resume_to is None else _RUN[resume_to], *row[_STATUS + 2 : _FIXED], UNREAD, UNREAD,
        *row[_FIXED:-1],
    )  # fmt: skip
    run = RunRow(
        *fields, text=row[0], was=row[2:_FIXED] + _UNREAD, seq=max(step_mark, seq), top=seq,
    )  # fmt: skip
    if parent is not None:
        run.parent = uuid_of(parent)
    chain, present = row[_CHAIN : _CHAIN + 2]
    if chain is not None:
        run.chain, run.chain_text = uuid_of(chain), chain
    elif present is not None:
        run.present = uuid_of(present)
    return run


def step_row(row: Row) -> StepRow:
    """A step as it was read."""
    child = row[18]
    return StepRow(
        row[0], row[1], _KINDS[row[2]], _STEP[row[3]], row[4], row[5], row[6], row[7], row[8], row[9],
        row[10], row[11], row[12], row[13], row[14], row[15], row[16], row[17],
        None if child is None else uuid_of(child), row[19], row[20], row[21], row[22],
    )  # fmt: skip


def outlined(row: Row) -> StepRow:
    """A step that was read without its values."""
    step = step_row(row)
    step.output = step.error = step.ask = step.wake = UNREAD
    return step


class FromEvent(NamedTuple):
    """JSON that is put together where it is written, so that no payload passes through this process."""

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
        said: Any = FromEvent(self._before, self.seq, "}")
        return said  # type: ignore[no-any-return]  # opaque to the machine

    @property
    def wake(self) -> Json:
        said: Any = FromEvent('{"reason":"event","event":' + self._before, self.seq, "}}")
        return said  # type: ignore[no-any-return]  # the same

    @property
    def _before(self) -> str:
        return text({"id": self.id, "topic": self.topic, "at": self.at})[:-1] + ',"payload":'


def uuid_of(name: str) -> UUID:
    """The id that a text of ours is of. UUID itself would look at every part of it, in thrice the time."""
    made = object.__new__(UUID)
    object.__setattr__(made, "int", int(name.replace("-", ""), 16))
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made


def changes(was: Row, now: Row) -> tuple[int, ...]:
    """The places at which two rows differ."""
    return tuple([n for n in compress(_PLACES, map(is_not, was, now)) if was[n] != now[n]])


_PLACES = tuple(range(max(len(CHANGEABLE), len(STEP_COLUMNS))))


@cache
def update_run(columns: tuple[int, ...], *, noted: bool) -> str:
    """The statement that writes these columns of a run; `noted`: and when it was changed."""
    names = [CHANGEABLE[n] for n in columns] + ["updated_at"] * noted
    said = ", ".join(f"{name} = :{name}" for name in names)
    return f"update workflow_run set {said}, rev = rev + 1 where id = :run"


@cache
def update_step(columns: tuple[int, ...], composed: tuple[int, ...]) -> str:
    """The statement that writes these columns of a step; `composed`: those with an event's payload."""
    said = ", ".join(f"{STEP_COLUMNS[n]} = {_value(n, composed)}" for n in columns)
    return f"update workflow_step set {said} where run_id = :run and key = :this_key"


def _value(n: int, composed: tuple[int, ...]) -> str:
    name = STEP_COLUMNS[n]
    if n not in composed:
        return f":{name}"
    payload = f"coalesce((select payload from workflow_inbox where seq = :{name}_event), '')"
    return f":{name}_before || {payload} || :{name}_behind"


def step_change(was: Row, now: Row) -> tuple[str, list[Any]]:
    """The statement and its values, but for the run and the key."""
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
    """A step as it is inserted: a payload is put in by a statement of its own."""
    if type(now[_OUTPUT]) is FromEvent or type(now[_WAKE]) is FromEvent:
        return tuple([None if type(value) is FromEvent else value for value in now])
    return now


def new_step(run: RunRow, now: Row) -> Row:
    """The values of a step that is inserted."""
    child = now[_CHILD]
    if child is not None:
        now = (*now[:_CHILD], str(child), *now[_CHILD + 1 :])
    return (run.text, run.tenant, *now)
