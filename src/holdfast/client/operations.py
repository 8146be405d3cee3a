"""The operations of the HTTP API that the client calls: method, path, and whether a repeat is safe.

A test compares this table with that of the server. The client has its own so that it needs no part of the
server's libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Operation(NamedTuple):
    """One operation. repeatable: sending it twice has the effect of sending it once.

    A start, a rerun, an event and a bulk operation are repeatable because the client gives each of them a
    key.
    """

    method: str
    path: str
    repeatable: bool = True


OPERATIONS: Mapping[str, Operation] = {
    "start": Operation("POST", "/runs"),
    "start_many": Operation("POST", "/runs/batch"),
    "rerun": Operation("POST", "/runs/{run}/rerun"),
    "emit": Operation("POST", "/events"),
    "cancel": Operation("POST", "/runs/{run}/cancel"),
    "pause": Operation("POST", "/runs/{run}/pause", repeatable=False),
    "resume": Operation("POST", "/runs/{run}/resume", repeatable=False),
    "rewind": Operation("POST", "/runs/{run}/rewind", repeatable=False),
    "retry": Operation("POST", "/runs/{run}/retry", repeatable=False),
    "set_priority": Operation("POST", "/runs/{run}/priority"),
    "append_step": Operation("POST", "/runs/{run}/append_step", repeatable=False),
    "delete": Operation("DELETE", "/runs/{run}"),
    "restore": Operation("POST", "/runs/{run}/restore"),
    "approve": Operation("POST", "/runs/{run}/approve"),
    "reject": Operation("POST", "/runs/{run}/reject"),
    "approvals": Operation("GET", "/approvals"),
    "list": Operation("GET", "/runs"),
    "get": Operation("GET", "/runs/{run}"),
    "children_of_many": Operation("GET", "/runs/children"),
    "steps": Operation("GET", "/runs/{run}/steps"),
    "explain": Operation("GET", "/runs/{run}/explain"),
    "result": Operation("GET", "/runs/{run}/result"),
    "trail": Operation("GET", "/runs/{run}/events"),
    "trail_of_all": Operation("GET", "/events"),
    "counts": Operation("GET", "/counts"),
    "rates": Operation("GET", "/rates"),
    "scale": Operation("GET", "/scale"),
    "outbox": Operation("GET", "/outbox"),
    "backlog": Operation("GET", "/outbox/backlog"),
    "unserved": Operation("GET", "/outbox/unserved"),
    "resend": Operation("POST", "/outbox/{message}/resend", repeatable=False),
    "webhooks": Operation("GET", "/sinks"),
    "webhook": Operation("PUT", "/sinks/{name}", repeatable=False),  # its answer has a secret, once
    "remove_webhook": Operation("DELETE", "/sinks/{name}"),
    "schedules": Operation("GET", "/schedules"),
    "get_schedule": Operation("GET", "/schedules/{name}"),
    "schedule": Operation("PUT", "/schedules/{name}"),
    "unschedule": Operation("DELETE", "/schedules/{name}"),
    "pause_schedule": Operation("POST", "/schedules/{name}/pause"),
    "resume_schedule": Operation("POST", "/schedules/{name}/resume"),
    "fire_schedule": Operation("POST", "/schedules/{name}/fire", repeatable=False),
    "bulk": Operation("POST", "/bulk"),
    "preview": Operation("POST", "/bulk/preview"),
    "definitions": Operation("GET", "/definitions"),
    "registry": Operation("GET", "/registry"),
    "register": Operation("PUT", "/registry/{type}"),
    "unregister": Operation("DELETE", "/registry/{type}"),
    "limits": Operation("GET", "/limits"),
    "limit": Operation("PUT", "/limits/{scope}/{name}"),
    "unlimit": Operation("DELETE", "/limits/{scope}/{name}"),
    "pause_key": Operation("POST", "/limits/key/{key}/pause"),
    "resume_key": Operation("POST", "/limits/key/{key}/resume"),
    "workers": Operation("GET", "/workers"),
    "stats": Operation("GET", "/stats"),
    "doctor": Operation("GET", "/doctor"),
    "whoami": Operation("GET", "/whoami"),
    "keys": Operation("GET", "/keys"),
    "create_key": Operation("POST", "/keys", repeatable=False),
    "rotate_key": Operation("POST", "/keys/{key}/rotate", repeatable=False),
    "revoke_key": Operation("POST", "/keys/{key}/revoke"),
    "audit": Operation("GET", "/audit"),
}

# The worker protocol: `work/` calls it. Every request of it is safe to repeat.
WORK: Mapping[str, Operation] = {
    "register_worker": Operation("POST", "/workers/register"),
    "leave_worker": Operation("POST", "/workers/leave"),
    "claim": Operation("POST", "/leases/claim"),
    "load": Operation("POST", "/leases/load"),
    "heartbeat": Operation("POST", "/leases/heartbeat"),
    "batch": Operation("POST", "/leases/batch"),
    "states": Operation("POST", "/leases/states"),
    "running": Operation("POST", "/leases/running"),
    "readyz": Operation("GET", "/readyz"),
}
