"""One request for each operation, made from the things of a tenant, for the tests of authorisation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """The request of one operation. A text `{name}` in it stands for a thing, such as a run by its name."""

    path: dict[str, str] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    answers: tuple[int, ...] = (200,)  # for things of the caller's own tenant

    def sent(self, operation, things):
        """Return method, path and options of the request."""
        path = operation.path.format(**{name: _of(value, things) for name, value in self.path.items()})
        options = {"params": _of(self.query, things)}
        if self.body is not None:
            options["json"] = _of(self.body, things)
        return operation.method, path, {**options, "headers": {**self.headers}}


def _of(value, things):
    match value:
        case str() if value.startswith("{") and value.endswith("}"):
            name = value[1:-1]
            return getattr(things, name) if name in {"message", "key", "schedule", "cursor"} else things[name]
        case dict():
            return {name: _of(one, things) for name, one in value.items()}
        case list():
            return [_of(one, things) for one in value]
        case _:
            return value


def run(name, **others):
    return Row(path={"run": f"{{{name}}}"}, **others)


WORKER = {"worker": "w", "runtime": "python", "types": ["no.such.v1"], "slots": 5}
LEASE = {"run": "{waits}", "fence": 1, "token": "AAAA"}
SCHEDULE = {"name": "{schedule}"}
ROWS = {
    "start": Row(body={"type": "shop.quick.v1"}, answers=(201,)),
    "start_many": Row(body={"starts": [{"type": "shop.quick.v1"}]}),
    "rerun": run("done", body={}, answers=(201,)),
    "list": Row(),
    "count": Row(),
    "get": run("waits"),
    "children": run("parent"),
    "children_of_many": Row(query={"run": "{parent}"}),
    "steps": run("waits"),
    "explain": run("waits"),
    "result": run("done"),
    "trail": run("waits"),
    "trail_of_all": Row(),
    "cancel": run("cancelled", body={}),
    "pause": run("paused", body={}),
    "resume": run("resumed", body={}),
    "rewind": run("rewound", body={"step": None}),
    "retry": run("retried", body={}),
    "set_priority": run("priority", body={"priority": 7}),
    "append_step": run("plan", body={"name": "NOTIFY"}),
    "delete": run("deleted"),
    "restore": run("restored", body={}),
    "approvals": Row(),
    "approve": run("gate", body={"comment": "c4n4ry"}),
    "reject": run("gate two", body={}),
    "emit": Row(body={"topic": "a topic", "payload": 1}),
    "schedules": Row(),
    "get_schedule": Row(path=SCHEDULE),
    "schedule": Row(path=SCHEDULE, body={"type": "shop.quick.v1", "every": 60}),
    "pause_schedule": Row(path=SCHEDULE),
    "resume_schedule": Row(path=SCHEDULE),
    "fire_schedule": Row(path=SCHEDULE, answers=(201,)),
    "unschedule": Row(path=SCHEDULE),
    "outbox": Row(),
    "unserved": Row(query={"sink": "mail"}),
    "resend": Row(path={"message": "{message}"}),
    "bulk": Row(body={"verb": "pause", "where": {"type": "no.such.v1"}}, answers=(201,)),
    "preview": Row(body={"where": {}}),
    "list_bulk": Row(),
    "whoami": Row(),
    "keys": Row(),
    "create_key": Row(body={"name": "one more", "scopes": ["admin"]}, answers=(201,)),
    "rotate_key": Row(path={"key": "{key}"}, body={}),
    "revoke_key": Row(path={"key": "{key}"}),
    "audit": Row(),
    "definitions": Row(),
    "registry": Row(),
    "register": Row(path={"type": "shop.quick.v1"}, body={"runtime": "python"}),
    "unregister": Row(path={"type": "shop.quick.v1"}),
    "limits": Row(),
    "limit": Row(path={"scope": "key", "name": "mail"}, body={"concurrency": 5}),
    "unlimit": Row(path={"scope": "key", "name": "mail"}),
    "pause_key": Row(path={"key": "mail"}, body={"seconds": 5}),
    "resume_key": Row(path={"key": "mail"}),
    "workers": Row(),
    "stats": Row(),
    "counts": Row(),
    "metrics": Row(),
    "rates": Row(),
    "scale": Row(),
    "backlog": Row(),
    "doctor": Row(),
    "webhooks": Row(),
    "webhook": Row(path={"name": "hook"}, body={"url": "https://example.com/hook"}),
    "remove_webhook": Row(path={"name": "hook"}),
    "register_worker": Row(body={**WORKER, "language": "python", "library": "tests"}),
    "leave_worker": Row(body={"worker": "w"}, answers=(204,)),
    "claim": Row(body=WORKER),
    "load": Row(body=LEASE, answers=(409,)),
    "heartbeat": Row(body={"worker": "w", "leases": [LEASE]}),
    "states": Row(body={"leases": [LEASE]}),
    "running": Row(
        body={"worker": "w", "runs": [{**LEASE, "steps": [{"step": "a", "attempt": 1, "started_ms": 1}]}]}
    ),
    "batch": Row(body={"items": [{"op": "release", **LEASE, "seq": 1}]}),
    "healthz": Row(),
    "readyz": Row(),
    "openapi_json": Row(),
    "worker_openapi_json": Row(),
    "docs_page": Row(),
    "problems_page": Row(),
}  # fmt: skip

# Each field of a request that names a thing of a tenant: the row that names it. Fields of paths are in ROWS.
NAMED: dict[tuple[str, str], Row] = {
    ("list", "query.parent"): Row(query={"parent": "{parent}"}),
    ("list", "query.key"): Row(query={"key": "key of waits"}),
    ("children_of_many", "query.run"): Row(query={"run": "{parent}"}),
    ("count", "query.parent"): Row(query={"parent": "{parent}"}),
    ("outbox", "query.run"): Row(query={"run": "{done}"}),
    ("start", "body.parent"): Row(body={"type": "shop.quick.v1", "parent": "{pending}"}, answers=(201,)),
    ("start_many", "body.starts.parent"): Row(
        body={"starts": [{"type": "shop.quick.v1", "parent": "{pending}"}]}
    ),
    ("emit", "body.run"): Row(body={"topic": "a topic", "run": "{waits}"}),
    ("bulk", "body.where.parent"): Row(
        body={"verb": "pause", "where": {"parent": "{parent}"}}, answers=(201,)
    ),
    ("preview", "body.where.parent"): Row(body={"where": {"parent": "{parent}"}}),
    ("audit", "query.key"): Row(query={"key": "{key}"}),
    ("load", "body.run"): ROWS["load"],
    ("heartbeat", "body.leases.run"): ROWS["heartbeat"],
    ("states", "body.leases.run"): ROWS["states"],
    ("running", "body.runs.run"): ROWS["running"],
    ("batch", "body.items.run"): ROWS["batch"],
}  # fmt: skip
