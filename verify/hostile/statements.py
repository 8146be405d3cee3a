"""SQL statements that a role of docs/sql.md may send, with hostile values.

They change runs of `hostile.…` only: a role that may cancel every run could stop all, which proves nothing.
"""

# ruff: noqa: S608  # the words are ours, hostile values are parameters

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .values import HostileValues

TYPES = ("hostile.echo.v1", "hostile.typed.v1", "hostile.waiter.v1", "hostile.says.v1", "hostile.plan.v1")
UNKNOWN_TYPES = ("hostile.nobody.v1", "hostile.nobody.v99999999999", f"hostile.{'x' * 300}.v1", "hostile", "")
STATUSES = ("pending", "leased", "waiting", "paused", "succeeded", "failed", "cancelled", "gone", "")
TOPICS = ("hostile", "hostile 1", "hostile 2")
RUN, EVENT, STEP = "workflow.workflow_run", "workflow.workflow_event", "workflow.workflow_step"
OURS = "type like 'hostile.%%'"
IDS_KEPT = 400


class Statement(NamedTuple):
    """A statement with its values; `kind` is for the figures."""

    kind: str
    sql: str
    values: tuple[Any, ...]


Kinds = tuple[tuple[int, Callable[[], Statement]], ...]  # each with its weight


class Source:
    """Hostile values by a seed, and the ids of the runs that were named so far."""

    def __init__(self, seed: int) -> None:
        self.values = HostileValues(seed)
        self.ids: list[Any] = [self.values.uuid()]

    def _id(self) -> Any:
        return self.values.one(self.ids) if self.values.chance(0.97) else self.values.uuid()

    def _new_id(self) -> Any:
        self.ids = [*self.ids[-IDS_KEPT:], self.values.uuid()]
        return self.ids[-1]

    def _type(self) -> str:
        s = self.values
        if s.chance(0.85):
            return s.one(TYPES)
        return s.one(UNKNOWN_TYPES) if s.chance(0.6) else "hostile." + s.text()


class Plain(Source):
    """Inserts, updates and deletes."""

    @property
    def _plain(self) -> Kinds:
        return (
            (24, self._insert),
            (12, self._take),
            (18, self._hold),
            (10, self._edit),
            (12, self._tell),
            (5, self._rows),
            (2, self._remove),
        )

    def _insert(self) -> Statement:
        s = self.values
        columns: dict[str, Any] = {"id": self._new_id(), "type": self._type(), "payload": s.json()}
        more: dict[str, Callable[[], Any]] = {
            "tenant": lambda: s.one(["default", s.name()]),
            "priority": s.whole,
            "run_at": s.time,
            "labels": s.json,
            "idempotency_key": s.name,
            "max_attempts": s.whole,
            "timeout_seconds": s.number,
            "ttl_seconds": s.number,
            "budget": s.whole,
            "limit_key": s.name,
            "parent_id": self._id,
            "trace": s.json,
        }
        owned: dict[str, Callable[[], Any]] = {
            "status": lambda: s.one(STATUSES),
            "fence": s.whole,
            "rev": lambda: 0,
            "attempt": s.whole,
            "result": s.json,
            "progress": s.json,
            "error": s.json,
            "last_error": s.text,
            "digest": s.text,
            "leased_by": s.text,
            "lease_until": s.time,
            "deleted_at": s.time,
            "kind": lambda: s.one(["code", "plan", "x"]),
            "owes": s.whole,
            "created_at": s.time,
            "waiting_on": s.text,
            "wait_topic": s.text,
        }
        for name, maker in more.items():
            if s.chance(0.12):
                columns[name] = maker()
        if s.chance(0.15):
            name = s.one([*owned])
            columns[name] = owned[name]()
        places = ", ".join(["%s"] * len(columns))
        sql = f"insert into {RUN} ({', '.join(columns)}) values ({places}) on conflict do nothing"
        return Statement("insert", sql, tuple(columns.values()))

    def _take(self) -> Statement:
        s = self.values
        chosen = s.one(["type = %s", "type like %s"])
        sql = f"""with next as (
            select id from {RUN} where {OURS} and {chosen} and kind = 'code' and status = 'pending'
                and run_at <= now() and deleted_at is null
            order by priority, run_at, id limit 1 for update skip locked
        ) update {RUN} as r set status = 'leased', leased_by = %s, lease_until = now() + %s::interval
        from next where r.id = next.id returning r.id"""
        spans = ["30 seconds", "1 second", "0.1 second", "23 hours", "0", "-1 day", "2 days", "1000000 years"]
        return Statement("take", sql, (s.one(TYPES), s.name(), s.one(spans)))

    def _hold(self) -> Statement:
        """Write to a run as its holder would, though the sender may not hold it."""
        s = self.values
        ways: list[tuple[str, Callable[[], tuple[Any, ...]]]] = [
            ("lease_until = now() + interval '30 seconds', progress = %s", lambda: (s.json(),)),
            ("progress = %s", lambda: (s.json(),)),
            ("status = 'succeeded', result = %s", lambda: (s.json(),)),
            ("status = 'failed', last_error = %s", lambda: (s.text(),)),
            ("status = 'failed', error = %s, last_error = %s", lambda: (s.json(), s.text())),
            (
                "status = 'pending', last_error = %s, run_at = now() + make_interval(secs => %s)",
                lambda: (s.text(), s.one([0.1, 1e300, -1e9, float("nan"), 1.0])),
            ),
            ("status = 'pending'", tuple),
        ]
        sets, values = s.one(ways)
        held = f"(select id from {RUN} where {OURS} and status = 'leased' and plain_fence = fence limit 1)"
        where, named = (f"id = {held}", ()) if s.chance(0.8) else ("id = %s", (self._id(),))
        return Statement("hold", f"update {RUN} set {sets} where {where} and {OURS}", (*values(), *named))

    def _edit(self) -> Statement:
        """Change any column of a run, also those that only the database may change."""
        s = self.values
        columns: dict[str, Callable[[], Any]] = {
            "status": lambda: s.one(STATUSES),
            "priority": s.whole,
            "run_at": s.time,
            "labels": s.json,
            "deleted_at": s.time,
            "fence": s.whole,
            "attempt": s.whole,
            "crashes": s.whole,
            "leased_by": s.text,
            "lease_until": s.time,
            "payload": s.json,
            "result": s.json,
            "error": s.json,
            "last_error": s.text,
            "progress": s.json,
            "type": s.text,
            "tenant": s.text,
            "idempotency_key": s.text,
            "digest": s.text,
            "owes": s.whole,
            "cost": s.whole,
            "budget": s.whole,
            "max_attempts": s.whole,
            "kind": s.text,
            "waiting_on": s.text,
            "wait_topic": s.text,
            "limit_key": s.text,
            "expires_at": s.time,
            "trace": s.json,
        }
        names = s.dice.sample([*columns], s.one([1, 1, 1, 2, 3]))
        sets = ", ".join(f"{name} = %s" for name in names)
        values = tuple(columns[name]() for name in names)
        if s.chance(0.15):
            sets, values = s.one([("deleted_at = now()", ()), ("deleted_at = null", ())])
        if s.chance(0.1):
            sets += ", rev = rev + 1"  # as the functions do it: no trigger looks at such a row
        return Statement("edit", f"update {RUN} set {sets} where id = %s and {OURS}", (*values, self._id()))

    def _tell(self) -> Statement:
        s = self.values
        known = [
            "log",
            "created",
            "leased",
            "started",
            "heartbeat",
            "step_succeeded",
            "step_failed",
            "succeeded",
            "failed",
            "waiting",
            "event",
            "decided",
            "cancelled",
            "deleted",
            "lease_expired",
            "paused",
        ]
        what = s.one(known) if s.chance(0.6) else s.text()
        columns = "workflow_id, event_type, data" + s.one(["", ", told", ", created_at", ", id"])
        extra: dict[int, Callable[[], tuple[Any, ...]]] = {
            3: tuple,
            4: lambda: (s.one([False, s.time(), s.whole()]),),
        }
        values = (self._id(), what, s.json(), *extra[columns.count(",") + 1]())
        return Statement(
            "tell", f"insert into {EVENT} ({columns}) values ({', '.join(['%s'] * len(values))})", values
        )

    def _rows(self) -> Statement:
        """Write event and step rows without the functions: the page forbids it, but the role has the
        right.
        """
        s = self.values
        makers: list[Callable[[], Statement]] = [
            lambda: Statement(
                "rows",
                "insert into workflow.workflow_inbox (tenant, topic, event_id, payload)"
                " values (%s, %s, %s, %s)",
                (s.one(["default", s.name()]), s.one([*TOPICS, s.text()]), s.name(), s.json()),
            ),
            lambda: Statement(
                "rows",
                "insert into workflow.workflow_receipt (run_id, event_seq, step) values (%s, %s, %s)",
                (self._id(), s.whole(), s.text()),
            ),
            lambda: Statement(
                "rows",
                f"update {EVENT} set data = %s, event_type = %s where workflow_id = %s",
                (s.json(), s.text(), self._id()),
            ),
        ]
        return self._step_row() if s.chance(0.4) else s.one(makers)()

    def _step_row(self) -> Statement:
        s = self.values
        values: dict[str, Callable[[], Any]] = {
            "output": s.json,
            "error": s.json,
            "ask": s.json,
            "wake": s.json,
            "topic": s.text,
            "due_at": s.time,
            "attempts": s.whole,
            "cost": s.whole,
        }
        names = s.dice.sample([*values], 2)
        made = tuple(values[name]() for name in names)
        if s.chance(0.5):
            sets = ", ".join(f"{name} = %s" for name in names)
            return Statement("rows", f"update {STEP} set {sets} where run_id = %s", (*made, self._id()))
        kinds, statuses = ["task", "event", "approval", "child", "x"], ["succeeded", "waiting", "failed", "x"]
        fixed = (self._id(), s.whole(), s.text(), s.one(kinds), s.one(statuses))
        columns = ", ".join(["run_id", "seq", "key", "kind", "status", *names])
        return Statement("rows", f"insert into {STEP} ({columns}) values (%s{', %s' * 6})", (*fixed, *made))

    def _remove(self) -> Statement:
        table, column = self.values.one([(RUN, "id"), (EVENT, "workflow_id"), (STEP, "run_id")])
        return Statement("remove", f"delete from {table} where {column} = %s", (self._id(),))
