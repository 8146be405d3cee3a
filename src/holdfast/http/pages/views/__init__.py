"""The pages of the dashboard, by what they show. Importing this package fills the table."""

from . import (
    approvals,
    audit,
    events,
    keys,
    limits,
    outbox,
    overview,
    run,
    runs,
    schedules,
    workers,
    workflows,
)

__all__ = [
    "approvals",
    "audit",
    "events",
    "keys",
    "limits",
    "outbox",
    "overview",
    "run",
    "runs",
    "schedules",
    "workers",
    "workflows",
]
