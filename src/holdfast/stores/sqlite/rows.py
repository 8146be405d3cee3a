"""Conversion of rows of the file into records."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from holdfast.bounds import NEWS_BYTES, ROW_BYTES
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.machine.rows import PLAN
from holdfast.records import DEFAULT_TENANT, Definition, Instant, PlanStep, Run, RunOutline, Step, moment

from .connection.database import Database, Row
from .sql import statements

_SQL = statements("rows")
STEP_COLUMNS = _SQL["step_columns"]
plan_steps = msgspec.json.Decoder(tuple[PlanStep, ...]).decode
_STEPS_AFTER, _SMALL_STEPS_AFTER, _OPEN_WAITS, _SETTLED_SINCE, _RUN, _RUN_OR_DELETED, LIST = (
    _SQL[name]
    .replace("$step_columns", STEP_COLUMNS)
    .replace("$run_columns", _SQL["run_columns"])
    .replace("$values", "payload, result")
    for name in (
        "steps_after",
        "small_steps_after",
        "open_waits",
        "settled_since",
        "run",
        "run_or_deleted",
        "list",
    )
)

_STEPS_BEFORE, _SMALL_STEPS_BEFORE = (
    sql.replace("seq > :after order by seq", "seq < :after order by seq desc")
    for sql in (_STEPS_AFTER, _SMALL_STEPS_AFTER)
)

LIST_WITHOUT_VALUES = (
    _SQL["list_whole"].replace("$run_columns", _SQL["run_columns"]).replace("$values", "'null', null")
)

OUTLINES = _SQL["outlines"]

# A dict lookup takes a fifth of the time of a call of the enum, and a resumed run may have many steps.
_KINDS = {kind.value: kind for kind in StepKind}
_STATUSES = {status.value: status for status in StepStatus}
_OF_CODE = (None, None, None, None, None, None, 0)

_KEY_SEPARATOR = "\x1f"


def stored_key(tenant: str, key: str | None) -> str | None:
    """Return an idempotency key as it is stored: with its tenant in front, except for the default tenant.

    So one simple unique index serves all tenants.
    """
    return key if key is None or tenant == DEFAULT_TENANT else f"{tenant}{_KEY_SEPARATOR}{key}"


def shown_key(tenant: str, key: str | None) -> str | None:
    """Return an idempotency key as users gave it."""
    return key if key is None or tenant == DEFAULT_TENANT else key.partition(_KEY_SEPARATOR)[2]


def step(row: Row) -> Step:
    if row[13:20] == _OF_CODE:
        return Step(
            seq=row[0], key=row[1], kind=_KINDS[row[2]], status=_STATUSES[row[3]], attempts=row[4],
            output=row[5], error_json=row[6], cost=row[7], topic=row[8], due_at=row[9], fence=row[10],
            started_at=row[11], finished_at=row[12],
        )  # fmt: skip
    return Step(
        seq=row[0], key=row[1], kind=_KINDS[row[2]], status=_STATUSES[row[3]], attempts=row[4],
        output=row[5], error_json=row[6], cost=row[7], topic=row[8], due_at=row[9], fence=row[10],
        started_at=row[11], finished_at=row[12], max_attempts=row[13], timeout_seconds=row[14], ask=row[15],
        digest=row[16], child=None if row[17] is None else UUID(row[17]), wake=row[18], waits=row[19],
    )  # fmt: skip


def steps_after(
    db: Database, run: str, after: int, most: int, largest: int | None = None
) -> tuple[list[Step], int, bool]:
    """Return (steps with seq > after in at most `most` bytes, the bytes left, True if there are more steps).

    It returns at least one step if there is one; then the bytes left may be negative. Values above `largest`
    bytes are left out.
    """
    return steps_part(db, run, after, most, largest)


def steps_part(
    db: Database, run: str, place: int, most: int, largest: int | None, *, newest: bool = False
) -> tuple[list[Step], int, bool]:
    """Return the same as `steps_after`; newest: the steps with seq < place, from the end."""
    sql = _STEPS_AFTER if largest is None else _SMALL_STEPS_AFTER
    if newest:
        sql = _STEPS_BEFORE if largest is None else _SMALL_STEPS_BEFORE
    asked = sql, {"run": run, "after": place, **({} if largest is None else {"largest": largest})}
    steps: list[Step] = []
    # A separate cursor that is closed: a cursor that is not read to its end would keep its snapshot open.
    with closing(db.connection.cursor()) as rows:
        for row in rows.execute(*asked):
            size = ROW_BYTES + row[20]
            if steps and size > most:
                return steps, most, True
            most -= size
            steps.append(step(row) if largest is None or not row[21] else replace(step(row), left_out=True))
    return steps, most, False


def open_waits(db: Database, run: str) -> list[Step]:
    """Return the open waits of a run, first due first."""
    return [step(row) for row in db.all(_OPEN_WAITS, (run,))]


def settled_since(db: Database, run: str, known: int | None) -> tuple[Step, ...]:
    """Return the waits that were settled after step number `known`, oldest first."""
    return () if known is None else tuple(step(row) for row in db.all(_SETTLED_SINCE, (run, known)))


def has_settled(db: Database, run: str, known: int | None) -> bool:
    """Return True when there are such waits."""
    return known is not None and db.one(_SQL["has_settled"], (run, known)) is not None


def news_since(db: Database, run: str, known: int | None) -> tuple[tuple[Step, ...], bool]:
    """Return the settled waits for an answer. If they are too large for it: nothing, and True."""
    row = None if known is None else db.one(_SQL["news_bytes"], (run, known))
    if row is not None and ROW_BYTES * row[0] + row[1] > NEWS_BYTES:
        return (), True
    return settled_since(db, run, known), False


def run_of(db: Database, run: str) -> Run | None:
    """Return the run with its open waits. None: it is unknown or deleted."""
    row = db.one(_RUN, (run,))
    return None if row is None else run_record(db, row)


def run_or_deleted(db: Database, run: str) -> Run | None:
    """Return the run with its open waits, also when it is deleted."""
    row = db.one(_RUN_OR_DELETED, (run,))
    return None if row is None else run_record(db, row)


def run_record(db: Database, row: Row) -> Run:
    seq, cursor = (None, row[31]) if row[33] != PLAN or row[31] is None else msgspec.json.decode(row[31])
    spent, budget = (None, None) if row[37] is None else msgspec.json.decode(row[37])
    id_, chain, present = row[0], row[-2], row[-1]
    run = UUID(id_)
    return Run(
        id=run, tenant=row[1], type=row[2], status=Status(row[3]), params_json=row[4],
        result_json=row[5], error_json=row[6], last_error=row[7], priority=row[8], run_at=moment(row[9]),
        key=shown_key(row[1], row[10]), attempt=row[11], max_attempts=row[12], crashes=row[13], fence=row[14],
        leased_by=row[15], lease_until=_moment(row[16]), pause_asked_by=row[17],
        parent=None if row[18] is None else UUID(row[18]), limit_key=row[19], labels_json=row[20],
        cost_units=row[21], budget_units=row[22], progress_json=row[23], timeout_at=_moment(row[24]),
        expires_at=_moment(row[25]), created_at=moment(row[26]), updated_at=moment(row[27]),
        started_at=_moment(row[28]), finished_at=_moment(row[29]), deleted_at=_moment(row[30]),
        cursor=cursor, current_step_seq=seq, current_step_name=None if seq is None else cursor,
        ttl_seconds=row[32], kind=row[33], parent_step=row[34],
        timeout_seconds=row[35], account=_id(row[36]), account_cost_units=spent, account_budget_units=budget,
        origin=_id(row[38]),
        # Most runs have no chain: to make a UUID takes longer than to compare two texts.
        chain=run if chain == id_ else UUID(chain), present=run if present == id_ else UUID(present),
        waiting_on=() if row[29] is not None else tuple(open_waits(db, row[0])),
    )  # fmt: skip


def outline_record(row: Row) -> RunOutline:
    return RunOutline(
        id=UUID(row[0]), type=row[1], status=Status(row[2]), present=UUID(row[3]), pause_asked=bool(row[4]),
        created_at=moment(row[5]), started_at=_moment(row[6]), finished_at=_moment(row[7]),
    )  # fmt: skip


def _id(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


def _moment(at: Instant | None) -> datetime | None:
    return None if at is None else moment(at)


def definition(row: Row) -> Definition:
    return Definition(
        type=row[0], kind=row[1], max_attempts=row[2], timeout_seconds=row[3], description=row[4],
        steps=() if row[5] is None else plan_steps(row[5]), budget=row[6], covers_children=bool(row[7]),
    )  # fmt: skip
