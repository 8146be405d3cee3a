"""Examples of request bodies for the OpenAPI document. A test sends each of them to a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LEASE = {
    "run": "01890a5d-ac96-774b-bcce-b302099a8057",
    "fence": 1,
    "token": "kJ5xT0Vb1m3s",
}
_WORKER = {"worker": "shop-1:4711:a3f", "runtime": "go", "types": ["shop.order.v1"], "slots": 10}
EXAMPLES: Mapping[str, Any] = {
    "start": {"type": "shop.order.v1", "params": {"id": 42}, "labels": {"customer": "7"}},
    "start_many": {
        "starts": [
            {"type": "shop.order.v1", "params": {"id": 43}, "key": "order:43"},
            {"type": "shop.order.v1", "params": {"id": 44}, "key": "order:44"},
        ]
    },
    "rerun": {"params": {"id": 45}},
    "cancel": {"children": True},
    "pause": {},
    "resume": {"budget": 5.0},
    "rewind": {"step": "charge"},
    "retry": {},
    "set_priority": {"priority": 10},
    "append_step": {"name": "NOTIFY"},
    "restore": {},
    "approve": {"step": "manager", "comment": "fine"},
    "reject": {"step": "manager", "comment": "too expensive"},
    "emit": {"topic": "paid:42", "payload": {"amount": 10}, "id": "evt-1"},
    "schedule": {"type": "shop.report.v1", "cron": "0 6 * * *", "zone": "Europe/Berlin"},
    "pause_schedule": {},
    "resume_schedule": {},
    "fire_schedule": {},
    "resend": {},
    "webhook": {"url": "https://example.com/hooks"},
    "register": {"runtime": "python", "enabled": True},
    "limit": {"concurrency": 5, "rate": 100, "period": 60},
    "pause_key": {"seconds": 30},
    "resume_key": {},
    "create_key": {"name": "reporting", "scopes": ["runs.read"]},
    "rotate_key": {"overlap": 3600},
    "revoke_key": {},
    "bulk": {"verb": "retry", "where": {"type": "shop.%", "statuses": ["failed"]}, "rate": 50},
    "preview": {"verb": "retry", "where": {"type": "shop.%"}},
    "register_worker": {**_WORKER, "language": "go", "library": "holdfast-go", "version": "0.1.0"},
    "leave_worker": {"worker": "shop-1:4711:a3f"},
    "claim": {**_WORKER, "lease_ms": 30000, "wait_ms": 0},
    "load": {**_LEASE, "after": 17},
    "heartbeat": {"worker": "shop-1:4711:a3f", "lease_ms": 30000, "leases": [{**_LEASE, "known": 2}]},
    "states": {"leases": [_LEASE], "wait_ms": 0},
    "running": {
        "worker": "shop-1:4711:a3f",
        "runs": [{**_LEASE, "steps": [{"step": "charge", "attempt": 1, "started_ms": 120.5}]}],
    },
    "batch": {
        "items": [
            {
                "op": "checkpoint",
                **_LEASE,
                "seq": 1,
                "started_ms": 3.5,
                "steps": [{"key": "charge", "output": {"receipt": 7}, "started_ms": 3.7}],
            }
        ]
    },
}
