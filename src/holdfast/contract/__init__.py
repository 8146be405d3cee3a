"""The contract of a store, in parts. The docstrings are the law, and one suite tests them on every store.

| part | file | verbs |
|---|---|---|
| `Starting` | starting.py | start, publish |
| `Holding` | holding.py | claim, load, commit, transact, renew, lease_states, show_running |
| `People` | people.py | cancel, pause, resume, rewind, retry_run, set_priority, append_step, … |
| `Events` | events.py | emit, deliver |
| `Approvals` | approvals.py | approvals, decide |
| `Chores` | chores.py | tick, purge: the chores of keepers |
| `Workers` | workers.py | present, absent, listen, hears |
| `Catalog` | catalog.py | reads: get, list, outlines, search, children, steps, trail, follow, … |
| `Counting` | counts.py | counts, rates, scale, recount |
| `Outbox` | outbox.py | messages and webhooks |
| `Schedules` | schedules.py | schedules and their times |
| `Registry`, `Limits` | limits.py | rules for claims |
| `Keys` | keys.py | API keys, signing keys, the audit log |
| `PageSessions` | page_sessions.py | sessions of people who have signed in to the pages |
| `Transfer` | transfer.py | whole runs and events, read and written: export, import, move |

Three laws hold for every verb: a change of state and its trail share one commit; a worker without
the current lease changes nothing; a recorded step is never run again. "Now" is the store's own
clock, in microseconds. Times, timers and deadlines are due at equality; leases end after it.
A verb that changes something is applied completely or not at all, after a crash at any instant. A verb that
raises `Unavailable` may or may not have been carried out: sending the same call again is safe.
Every verb refuses numbers, times and names that no store can keep (`stores/checked.py`), with `UsageError`:
nothing has changed then.

The docstrings of `machine/` say what each move does to a run. They are part of the contract, also for stores
that do not share that code.

Trail rows that verbs write (`data` in brackets; `status` there is the run's status from then on):
created [type, steps: the names of a plan's, origin? by?] · leased [worker attempt fence] · started [at] ·
heartbeat [worker] ·
step_succeeded [step status?] · step_failed [step error] · waiting [step kind, status on the row that parks] ·
approval_opened [the same] · approved, rejected [step by comment status?] · step_added [step] ·
child_started [step child] ·
woken [step event? child? error?: the child failed, and with it the step; status?] ·
timed_out [step approved?: what a gate then says; status?, or no step: the run itself] ·
retried [attempt delay error step? status by?] · released [] · lease_expired [worker crashes] ·
paused [by, and before a step that may cost too much: step cost_max cost budget] ·
resumed [by status] · budget_set [by budget] · cancelled [by, or step: a wait was given up] ·
rewound [step forgotten status by] · reprioritized [by priority] ·
deleted [by, status when it was leased] · restored [by] · imported [by digest, status when it is open] ·
leaving [by to was: what it goes on with; status when it was open] · left [by copy?] · went_on [by] ·
returned, arrived [by, status when it is open] ·
succeeded [] ·
failed [kind message] · log [message level …].
"""

from __future__ import annotations

from typing import Protocol

from holdfast.records import Traits

from .approvals import Approvals
from .catalog import CHILDREN_COUNTED, FOLLOWED_MAX, LABEL_MAX, LABELS_MAX, OUTLINES_MAX, Catalog
from .chores import (
    DELETED_SECONDS,
    EVENT_KEEP_SECONDS,
    GONE_SECONDS,
    PURGE_SLICE,
    TTL_SECONDS,
    Chores,
)
from .counts import (
    COUNTED_TYPES_MAX,
    DUE_COUNTED,
    FOLD_MAX,
    FOLD_SECONDS,
    RATE_SECONDS,
    RATES_MAX,
    SCALE_MAX,
    Counting,
)
from .events import SLICE, SLICES, Events
from .holding import (
    BUDGET,
    RUNNING_BYTES,
    RUNNING_MAX,
    START,
    TRANSACTION_SECONDS,
    Holding,
    OwnEngine,
    Thread,
)
from .keys import (
    AUDIT_BATCH,
    AUDIT_SECONDS,
    AUDIT_SLACK_SECONDS,
    KEY_KEEP_SECONDS,
    PATTERNS_MAX,
    USED_SECONDS,
    Keys,
)
from .limits import Limits, Registry
from .outbox import GIVE_UP_SECONDS, Outbox
from .page_sessions import SEEN_SECONDS, SESSIONS_PER_KEY, PageSessions
from .people import People
from .schedules import QUEUE_MAX, Schedules
from .starting import Starting
from .transfer import EXPORT_MAX, IMPORT_MAX, Transfer
from .workers import LIVE_SECONDS, Workers

__all__ = [
    "Store", "OwnEngine", "Thread",
    # the parts
    "Approvals", "Catalog", "Chores", "Counting", "Events", "Holding", "Keys", "Limits", "Outbox",
    "PageSessions", "People",
    "Registry", "Schedules", "Starting", "Transfer", "Workers",
    # times and sizes
    "AUDIT_BATCH", "AUDIT_SECONDS", "AUDIT_SLACK_SECONDS", "KEY_KEEP_SECONDS", "PATTERNS_MAX", "USED_SECONDS",
    "COUNTED_TYPES_MAX", "DUE_COUNTED", "FOLD_MAX", "FOLD_SECONDS", "RATES_MAX", "RATE_SECONDS", "SCALE_MAX",
    "BUDGET", "CHILDREN_COUNTED", "DELETED_SECONDS", "EVENT_KEEP_SECONDS", "FOLLOWED_MAX", "GIVE_UP_SECONDS",
    "GONE_SECONDS", "LABELS_MAX", "LABEL_MAX", "LIVE_SECONDS",
    "OUTLINES_MAX", "PURGE_SLICE", "QUEUE_MAX", "RUNNING_BYTES",
    "RUNNING_MAX", "SLICE", "SLICES", "START", "TRANSACTION_SECONDS", "TTL_SECONDS",
    "EXPORT_MAX", "IMPORT_MAX", "SEEN_SECONDS", "SESSIONS_PER_KEY",
]  # fmt: skip


class Store(
    Starting, Holding, People, Events, Approvals, Chores, Workers, Catalog, Counting, Outbox, Schedules,
    Registry, Limits, Keys, PageSessions, Transfer, Protocol,
):  # fmt: skip
    """A store keeps the whole contract. Each verb is one round trip and one commit unless it says otherwise.

    `traits` says what differs from store to store; everything else is the same on each.
    """

    traits: Traits

    async def open(self) -> None:
        """Connect; bring the schema up to date (forward only, under a lock, safe when many open
        at once). `SchemaMismatch` for another major version, `NotADatabase`, `Unavailable`."""

    async def close(self) -> None:
        """Finish calls under way and release everything. A second call does nothing."""
