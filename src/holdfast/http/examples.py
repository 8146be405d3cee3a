"""Examples of request bodies for the OpenAPI document. A test sends each of them to a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
}
