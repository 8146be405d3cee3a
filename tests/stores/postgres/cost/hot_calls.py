"""Calls of every hot verb, on a Postgres store in which most rows do not concern the verb.

SQL without triggers fills the tables: `needed` are the rows that the calls need, `others` all the rest.
"""

from __future__ import annotations

from typing import Any

from holdfast.lifecycle import Move, StepKind
from holdfast.records import Ask, Item, Lease, NewEvent, NewRun, RelayAsk, StepWrite
from holdfast.stores.postgres.verbs import fast_rows
from holdfast.testing.contract import driver
from holdfast.testing.contract.driver import TYPE, call, done, listen, sleep
from tests.stores.postgres.session import Session

STEPS = 1000  # steps of the first run of the first group
EACH = 20  # runs of a group, and items of a call
WORKER = "w1"
PLAN = "shop.plan.v1"
TABLES = ("run", "step", "event", "inbox", "receipt", "outbox")
NAMES = ", ".join(f"workflow.workflow_{name}" for name in TABLES)
ID = "format('%s0000-0000-7000-8000-%s', lpad(to_hex({group}), 4, '0'), lpad(to_hex(n), 12, '0'))::uuid"

# Groups of runs, by number.
LEASED, FRESH, PENDING, EVENT, SLEEP, PLANNED, EXPIRED = range(1, 8)
PARENT, CHILD, CALLING, ENDED, LATE, DOOMED, ORPHAN = range(8, 15)
OTHERS = 100  # the first group of rows that no call needs

RUN = """
insert into workflow_run (
    id, type, kind, status, run_at, max_attempts, attempt, fence, started_fence, leased_by, lease_until,
    parent_id, parent_step, owes, timeout_at, timeout_seconds, finished_at, waiting_on, wait_topic,
    inbox_mark, rev, created_at, updated_at
)
select {id}, {type}, {kind}, {status}, clock() + {later}, 3, {attempt}, 5, 5, {leased_by}, {lease_until},
    {parent}, {parent_step}, {owes}, {timeout_at}, 60, {finished_at}, {waiting_on}, {wait_topic}, 1000000,
    5, clock(), clock()
from generate_series({since} + 1, {count}) as n
"""
STEP = """
insert into workflow_step (
    run_id, seq, key, kind, status, attempts, output, topic, due_at, fence, number, started_at, finished_at,
    child_id
)
select {id}, {seq}, {key}, {kind}, {status}, 1, '1', {topic}, {due_at}, 5, 1, clock(),
    case when {status} in ('waiting', 'pending') then null else clock() end, {child}
from generate_series({since} + 1, {count}) as n
"""
# All of these belong to the first run.
LONG = """
insert into workflow_step (
    run_id, seq, key, kind, status, attempts, output, fence, number, started_at, finished_at
)
select (select {id} from (values (1)) as t (n)), n + 1, 'step ' || n, 'task', 'succeeded', 1, '1', 5, 1,
    clock(), clock()
from generate_series({since} + 1, {count}) as n
"""
TOLD = """
insert into workflow_event (workflow_id, event_type, data, created_at, told)
select {id}, what, '{{}}', clock(), false
from generate_series({since} + 1, {count}) as n
cross join (values ('created'), ('leased'), ('log')) as t (what)
"""
POSTED = """
insert into workflow_inbox (seq, tenant, topic, event_id, run_id, at, delivered, keep_until)
select n * 2 + (topic = 'parcel')::integer, 'default',
    topic || case when topic = 'parcel' then '' else n::text end, topic || n, null, clock(), true,
    clock() + '7 days'
from generate_series({since} + 1, {count}) as n cross join (values ('other'), ('parcel')) as t (topic)
"""
RECEIVED = """
insert into workflow_receipt (run_id, event_seq, step)
select {id}, n, 'wait' from generate_series({since} + 1, {count}) as n
"""
SENT = """
insert into workflow_outbox (id, run_id, sink, key, status, behind, next_at)
select status || n, {id}, 'mail', null, status, false, clock() + later
from generate_series({since} + 1, {count}) as n
cross join (values ('sent', '0'), ('pending', interval '1 day')) as t (status, later)
"""
# Emit and deliver as one call.
EMITTED = """
create or replace function emitted(topic text) returns json language plpgsql as $$
begin
    perform emit_at_once(json_build_object('topic', topic, 'id', 'new ' || topic));
    return deliver_event('default', 'new ' || topic, null, 500);
end $$;
"""


def _run(group: int, status: str, count: int = EACH, since: int = 0, **columns: str) -> str:
    leased = status == "leased"
    ended = status in {"succeeded", "cancelled", "failed"}
    standard = {
        "type": f"'{TYPE}'", "kind": "'code'", "later": "interval '0'", "attempt": "1" if leased else "0",
        "leased_by": f"'{WORKER}'" if leased else "null",
        "lease_until": "clock() + '30 s'" if leased else "null", "parent": "null::uuid",
        "parent_step": "null", "owes": "0", "timeout_at": "null::timestamptz",
        "finished_at": "clock()" if ended else "null::timestamptz", "waiting_on": "null",
        "wait_topic": "null",
    }  # fmt: skip
    at = {"id": ID.format(group=group), "status": f"'{status}'", "count": count, "since": since}
    return RUN.format(**at, **{**standard, **columns})


def _step(group: int, count: int = EACH, since: int = 0, **columns: str) -> str:
    standard = {
        "seq": "1", "key": "'first'", "kind": "'task'", "status": "'succeeded'", "topic": "null",
        "due_at": "null::timestamptz", "child": "null::uuid",
    }  # fmt: skip
    at = {"id": ID.format(group=group), "count": count, "since": since}
    return STEP.format(**at, **{**standard, **columns})


def _of(sql: str, group: int, count: int = EACH, since: int = 0) -> str:
    return sql.format(id=ID.format(group=group), count=count, since=since)


def _wait(kind: str, **columns: str) -> dict[str, str]:
    return {"key": f"'{kind}'", "kind": f"'{kind}'", "status": "'waiting'", **columns}


def _child(of: int, **columns: str) -> dict[str, str]:
    return {"parent": ID.format(group=of), "parent_step": "'child'", **columns}


def needed() -> list[str]:
    """The rows that the calls need."""
    later, over = "interval '1 day'", "clock() - interval '1 s'"
    return [
        _run(LEASED, "leased"),
        _step(LEASED),
        _of(LONG, LEASED, STEPS),
        _of(TOLD, LEASED),
        _run(FRESH, "leased"),
        _run(PENDING, "pending"),
        _step(PENDING),
        _of(TOLD, PENDING),
        _run(EVENT, "waiting", wait_topic="'parcel'"),
        _step(EVENT, **_wait("event", topic="'parcel'")),
        _run(SLEEP, "waiting"),
        _step(SLEEP, **_wait("sleep", due_at=over)),
        _run(PLANNED, "leased", type=f"'{PLAN}'", kind="'plan'"),
        *(_step(PLANNED, seq=f"{at}", key=f"'{key}'", status="'pending'") for at, key in enumerate("ABC")),
        _run(EXPIRED, "leased", lease_until=over, leased_by="'gone'"),
        _run(PARENT, "waiting"),
        _step(PARENT, **_wait("child", child=ID.format(group=CHILD))),
        _run(CHILD, "pending", **_child(PARENT, later=later)),
        _run(CALLING, "waiting"),
        _step(CALLING, **_wait("child", child=ID.format(group=ENDED))),
        _run(ENDED, "succeeded", **_child(CALLING, owes="1")),
        _run(LATE, "pending", later=later, timeout_at=over),
        _run(DOOMED, "cancelled", owes="2"),
        _run(ORPHAN, "pending", **_child(DOOMED, later=later)),
    ]


def others(count: int, since: int = 0) -> list[str]:
    """Rows of every kind that no call needs, from one number to another."""
    first, at, day = OTHERS, {"count": count, "since": since}, "clock() + interval '1 day'"
    return [
        _run(first, "leased", count // 10, since // 10, leased_by="'other'", lease_until=day),
        _run(first + 1, "pending", **at, later="interval '1 day'"),
        _run(first + 2, "succeeded", **at, **_child(first + 1)),
        _run(first + 3, "waiting", **at, waiting_on="'event'"),
        _step(first + 1, **at, **_wait("child", child=ID.format(group=first + 2))),
        _step(first + 2, **at),
        _step(first + 2, **at, seq="2", key="'second'"),
        _step(first + 3, **at, **_wait("event", topic="'other' || n", due_at=day)),
        _of(TOLD, first + 2, **at),
        _of(POSTED, 0, **at),
        _of(RECEIVED, first + 2, **at),
        _of(SENT, first, **at),
    ]


def fill(session: Session, statements: list[str]) -> None:
    """Fill the tables from another session than the measured one: this setting makes a session drop its
    plans.
    """
    session.run("set session_replication_role = replica")
    for sql in statements:
        session.run(sql)
    session.run("select setval(pg_get_serial_sequence('workflow_inbox', 'seq'), 1000000)")


def uid(group: int, n: int) -> str:
    return f"{group:04x}0000-0000-7000-8000-{n:012x}"


def item(group: int, n: int, move: Move, *steps: StepWrite, **fields: Any) -> Item:
    return driver.item(move, *steps, run=uid(group, n), fence=5, number=2, **fields)


def long_way() -> dict[str, list[Item]]:
    """Items of holders that do not fit the fast path."""
    each, wrong = range(1, EACH + 1), {"error": '{"kind":"x","message":"y"}'}
    events = {n: (NewEvent(topic=f"out {n}", id=f"out {n}"),) for n in each}
    return {
        "checkpoint, the long way": [item(LEASED, n, Move.CHECKPOINT, done("second", cost=1)) for n in each],
        "complete, the long way": [item(LEASED, n, Move.COMPLETE, done("second", cost=1)) for n in each],
        "fail": [item(LEASED, n, Move.FAIL, **wrong) for n in each],
        "retry": [item(LEASED, n, Move.RETRY, **wrong, delay_seconds=60.0) for n in each],
        "park, for a time": [item(LEASED, n, Move.PARK, sleep()) for n in each],
        "park, for an event": [item(LEASED, n, Move.PARK, listen(topic=f"mine {n}")) for n in each],
        "park, for a child": [item(LEASED, n, Move.PARK, call("call", uid(52, n))) for n in each],
        "advance, the long way": [item(PLANNED, n, Move.ADVANCE, done("A")) for n in each],
        "emit in a commit": [item(LEASED, n, Move.CHECKPOINT, events=events[n]) for n in each],
    }


def of_holders() -> dict[str, tuple[str, list[Any], int]]:
    """Calls of holders."""
    each = range(1, EACH + 1)
    one, *more = (
        fast_rows.Checkpoint(uid(LEASED, n), 5, 2, 30.0, "second", StepKind.TASK, 1, "1", 1, None)
        for n in each
    )
    completes = [fast_rows.Complete(uid(LEASED, n), 5, 2, "1", None, False) for n in each]
    whole = [fast_rows.Complete(uid(FRESH, n), 5, 2, "1", None, True) for n in each]
    parts = [fast_rows.Part(uid(FRESH, n), 5, 2, 1, "first", StepKind.TASK, 1, "1", 1) for n in each]
    advances = [
        fast_rows.Advance(uid(PLANNED, n), 5, 2, 30.0, "A", 1, "1", started_at=1, in_place=True) for n in each
    ]
    alone = [one.run, 5, 2, 30.0, "second", "task", 1, "1", 1]
    held = [Lease(run=uid(LEASED, n), fence=5, known=0) for n in each]
    held += [Lease(run=uid(group, n), fence=5) for n in each for group in (FRESH, PLANNED)]
    return {
        "checkpoint, one": ("commit_one", alone, 1),
        "checkpoint, many": ("commit", [None, [one, *more], None, None, False], EACH),
        "complete, many": ("commit", [None, None, completes, None, False], EACH),
        "complete, whole": ("commit", [None, None, whole, parts, False], EACH),
        "advance, many": ("commit", [None, None, None, None, False, advances], EACH),
        **{name: ("commit", [items, None, None, None, False], EACH) for name, items in long_way().items()},
        "renew": ("renew", [WORKER, held, 30.0], len(held)),
    }


def calls() -> dict[str, tuple[str, list[Any], int]]:
    """Every hot verb: its function, its arguments, and the number of items."""
    starts = [NewRun(id=uid(50, n), type=TYPE, key=f"key {n}") for n in range(EACH)]
    children = [NewRun(id=uid(51, n), type=TYPE, parent=uid(PARENT, n)) for n in range(1, EACH + 1)]
    idle = {"types": [TYPE], "tenants": None, "runtime": "python", "wait_timeouts": True, "besides": []}
    ask = {"worker": "w2", "types": (TYPE,), "limit": EACH}
    return {
        "start": ("start", [starts[:1]], 1),
        "start, many": ("start_together", [starts], EACH),
        "start children": ("start", [children], EACH),
        "claim": ("claim", [Ask(**ask)], EACH),
        "claim of a tenant": ("claim", [Ask(**ask, tenants=("default",))], EACH),
        **of_holders(),
        "emit": ("emit_at_once", [NewEvent(topic="parcel", id="new")], 1),
        "deliver to nobody": ("emitted", ["own"], 1),
        "deliver to many": ("emitted", ["parcel"], EACH),
        "deliver what is owed": ("deliver", [f'{{"owing":"{uid(0, 0)}"}}', 500], EACH),
        "cancel children": ("deliver", [f'{{"owing":"{uid(ENDED, EACH)}"}}', 500], 1),
        "due": ("due", [idle], 1),
        "tick: expire": ("expire", [500], EACH),
        "tick: time out": ("time_out", [500], EACH),
        "tick: lapse": ("lapse", [None, True, 500], EACH),
        "cancel": ("cancel", [uid(PARENT, 1), "default", "ada", True], 1),
        "relay": ("relay", [RelayAsk(relay="r", sinks=("mail",), limit=8)], 1),
    }


def pages(session: Session, verb: str, args: list[Any]) -> int:
    """Pages that a call reads, rolled back. The lower of two counts, because the first call also reads the
    catalog.
    """
    found = []
    for _ in range(2):
        session.begin()
        found.append(session.pages(verb, *args))
        session.roll_back()
    return min(found)
