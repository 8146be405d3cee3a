"""The operations of the HTTP API, by what they are about. Importing this package fills the table."""

from . import (
    approvals,
    bulk,
    counts,
    events,
    health,
    keys,
    live,
    metrics,
    moves,
    operators,
    outbox,
    runs,
    schedules,
    starts,
)

__all__ = [
    "approvals",
    "bulk",
    "counts",
    "events",
    "health",
    "keys",
    "live",
    "metrics",
    "moves",
    "operators",
    "outbox",
    "runs",
    "schedules",
    "starts",
]
