"""A store in which every text is hostile: rows of every table, written past all checks.

The columns come from the schema: a text column that is added later is hostile too.
"""

from __future__ import annotations

import json
import sqlite3
from itertools import cycle
from uuid import UUID

from holdfast.shown import trail as words

TEXT = (
    "\x1b]0;x\x07 \x1b[2J \x1b[31mred \r\nERROR forged line \u202e \u2028 \u2066 \u200b \x9b2J \x7f \x00"
    " \ufeff \U000e0041 `holdfast ls`"
)
NOW = 1_900_000_000_000_000
KEYS = [
    "ask", "by", "cause", "child", "comment", "data", "error", "event", "kind", "level", "message", "name",
    "note", "payload", "reason", "run", "status", "step", "topic", "traceback", "type", "until", "worker",
]  # fmt: skip
JSON = json.dumps({**dict.fromkeys(KEYS, TEXT), TEXT: TEXT, "done": 1, "total": 4, "attempt": 2, "delay": 3})
RAW = '{"ask": "\x7f\x9b2J\u202e\u2028", \r\n "data": "\x9b2J"}'  # the same, not escaped as JSON may
DEEP = "[" * 5_000 + "]" * 5_000
NESTED = json.dumps({name: {TEXT: [TEXT]} for name in KEYS})
SHAPES = {
    "hostile texts": JSON,
    "texts that JSON need not escape": RAW,
    "texts one level down": NESTED,
    "no JSON": TEXT,
    "nothing": "",
    "a list": "[1]",
    "a text": '"abc"',
    "a number that is too large": "1e400",
    "half a surrogate pair": '"\\ud800"',
    "words for numbers": '{"done": "abc", "total": [], "attempt": "x", "delay": "soon", "run": 7}',
    "thousands of levels": DEEP,
    "objects in a list": json.dumps([dict.fromkeys(KEYS, TEXT)] * 3),
    "a forged envelope": json.dumps({"holdfast.sealed": {"by": [TEXT], "key": TEXT}}),
}
VALUES = {
    "workflow_run": ("payload", "labels", "progress", "trace", "result", "error"),
    "workflow_step": ("output", "error", "ask", "wake"),
    "workflow_event": ("data",),
    "workflow_inbox": ("payload",),
    "workflow_outbox": ("payload", "last_error"),
    "workflow_schedule": ("payload", "labels"),
}
# Columns that a user of SQL cannot write: JSON of the right shape, with hostile texts in it.
FIXED = {
    ("workflow_worker", "types"): json.dumps([TEXT]),
    ("workflow_worker", "patterns"): json.dumps([TEXT]),
    ("workflow_worker", "tenants"): json.dumps([TEXT]),
    ("workflow_worker", "sinks"): json.dumps([TEXT]),
    ("workflow_worker", "lacking"): json.dumps({TEXT: [TEXT]}),
    ("workflow_definition", "steps"): None,
    ("workflow_schedule", "waiting"): json.dumps([NOW]),
    ("workflow_limit_book", "asks"): "{}",
}
STATUSES = ("pending", "leased", "waiting", "paused", "succeeded", "failed", "cancelled")
STEPS = [
    (kind, status)
    for kind in ("task", "sleep", "event", "approval", "child", "now", "emit")
    for status in ("waiting", "succeeded", "failed", "ready", "pending", "running", "cancelled")
]


def fill(path, first=0):
    """Write the rows. Columns that hold values of others get all shapes in turn, beginning with this one."""
    db = sqlite3.connect(path)
    assert len(SHAPES) == 13, "a number that shares no factor with those of the columns: each gets all shapes"
    shapes = cycle([*SHAPES.values()][first:] + [*SHAPES.values()][:first])
    runs = [str(UUID(int=(0x0199 << 112) + 0xABCDEF0000 + number)) for number in range(len(STATUSES))]

    def add(table, **given):
        row = {
            name: given[name] if name in given else _filled(table, name, kind, shapes)
            for _, name, kind, *_ in db.execute(f"pragma table_info({table})")
        }
        marks = ", ".join("?" * len(row))
        db.execute(f"insert into {table} ({', '.join(row)}) values ({marks})", [*row.values()])

    for status, run in zip(STATUSES, runs, strict=True):
        final = status in ("succeeded", "failed", "cancelled")
        add(
            "workflow_run", id=run, status=status, kind="code", parent_id=runs[0], deleted_at=None,
            leased_by=TEXT if status == "leased" else None, lease_until=NOW if status == "leased" else None,
            finished_at=NOW if final else None, resume_to="pending" if status == "paused" else None,
            idempotency_key=f"{TEXT}\x1f{TEXT}{run}", owes=0, expires_at=None, run_at=1, timeout_at=None,
            chain=None, present=None, account=runs[0],
        )  # fmt: skip
        for seq, (kind, state) in enumerate(STEPS):
            ended = state in ("succeeded", "failed", "cancelled")
            add(
                "workflow_step", run_id=run, seq=seq, key=f"{TEXT}{seq}", kind=kind, status=state,
                child_id=runs[1] if kind == "child" else None, finished_at=NOW if ended else None,
            )  # fmt: skip
        for type_ in (*words._SENTENCES, TEXT):
            add("workflow_event", id=None, workflow_id=run, event_type=type_)
        add("workflow_running", run_id=run)
        add("workflow_origin", run_id=run, origin=runs[0])
        add("workflow_inbox", seq=None, event_id=f"{TEXT}{run}", run_id=run)
        for number, state in enumerate(("pending", "sent", "dead")):
            add("workflow_outbox", seq=None, id=f"{TEXT}{run}{number}", run_id=run, status=state, behind=0)
    add("workflow_schedule", id=runs[0], cron=TEXT, every_us=None, last_run=runs[0], overlap="skip",
        catch_up="one", next_at=1, paused=0)  # fmt: skip
    add("workflow_schedule", id=runs[1], name="every", cron=None, every_us=10**9, last_run=runs[0],
        overlap="queue", catch_up="one", next_at=1, paused=1)  # fmt: skip
    for scope in ("type", "tenant", "key"):
        add("workflow_limit", scope=scope)
    add("workflow_registry")
    add("workflow_webhook")
    add("workflow_definition", kind="code")
    add("workflow_worker", seen_at=2**62)
    db.commit()
    db.close()
    return runs


def _filled(table, name, kind, shapes):
    if (table, name) in FIXED:
        return FIXED[table, name]
    if name in VALUES.get(table, ()):
        return next(shapes)
    if kind == "TEXT":
        return TEXT
    return 1.0 if kind == "REAL" else 1
