"""What is read and written: frozen records, one kind each.

Instants in the write path are integer microseconds since the epoch; in what a person reads they
are aware datetimes. Values (params, results, payloads, errors) cross the seam as JSON text, which
stores keep and never look into. Records form no cycles, so the garbage collector leaves them alone.
"""

from .answers import Claim, Decided, Due, Emitted, Held, Purged, Renewal, Started, Ticked, Verdict
from .shown import ApprovalRequest, Decision, Event, Finding, Run, RunFilter, Stats, Step, TrailEntry
from .units import (
    COST_UNIT,
    DEFAULT_TENANT,
    EPOCH,
    MAX_ATTEMPTS,
    MAX_CRASHES,
    PRIORITY,
    SECOND,
    Instant,
    Json,
    instant,
    moment,
)
from .written import (
    Ask,
    Definition,
    Error,
    Item,
    Lease,
    NewEvent,
    NewRun,
    Outbound,
    PlanStep,
    Presence,
    StepWrite,
    TrailWrite,
)

__all__ = [
    "COST_UNIT",
    "DEFAULT_TENANT",
    "EPOCH",
    "MAX_ATTEMPTS",
    "MAX_CRASHES",
    "PRIORITY",
    "SECOND",
    "ApprovalRequest",
    "Ask",
    "Claim",
    "Decided",
    "Decision",
    "Definition",
    "Due",
    "Emitted",
    "Error",
    "Event",
    "Finding",
    "Held",
    "Instant",
    "Item",
    "Json",
    "Lease",
    "NewEvent",
    "NewRun",
    "Outbound",
    "PlanStep",
    "Presence",
    "Purged",
    "Renewal",
    "Run",
    "RunFilter",
    "Started",
    "Stats",
    "Step",
    "StepWrite",
    "Ticked",
    "TrailEntry",
    "TrailWrite",
    "Verdict",
    "instant",
    "moment",
]
