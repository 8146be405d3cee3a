"""Indexes: the sorted sets that lead to a run or to one of its waits. They follow from the row alone.

A change of a row changes its entries in the same script, so that rows and sets cannot drift apart.
An entry is (key, member) with a score. Entries with score 0 are in the order of their members.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from uuid import UUID

from holdfast.contract import LABEL_MAX, LABELS_MAX
from holdfast.lifecycle import FINAL, OPEN, Status, StepStatus
from holdfast.machine.rows import StepRow
from holdfast.machine.settling import lapses
from holdfast.records import Instant, Json
from holdfast.records.unreadable import read_object

from .names import Names, part, unpart
from .rows import RunRow
from .snapshot import Snapshot

Entries = dict[tuple[str, str], int]
BIG = 20  # digits of an instant in a member


def place(priority: int, run_at: Instant, id: UUID | str) -> str:
    """Return the member of a queue: queues are in the order of priority, time and id."""
    return f"{priority:03d}:{instant_place(run_at)}:{id}"


def instant_place(at: Instant) -> str:
    """Return an instant as text that is in the order of time."""
    return f"{at + EARLIEST:0{BIG}d}"


EARLIEST = 10**18  # added to instants in members, so that none is negative


def placed(member: str) -> tuple[int, Instant, str]:
    """Return priority, time and id of a member of a queue."""
    priority, run_at, id = member.split(":")
    return int(priority), int(run_at) - EARLIEST, id


def fixed(names: Names, row: RunRow, labels: Json | None) -> Iterator[str]:
    """Yield the sets that hold a run as long as it is stored."""
    yield names("runs")
    yield names.of("tenant", row.tenant)
    yield names.of("type", row.type)
    if row.parent is not None:
        yield names("children", str(row.parent))
    yield from labelled(names, labels)


def labelled(names: Names, labels: Json | None) -> Iterator[str]:
    """Yield the sets that hold a run because of its labels."""
    for name, value in islice(read_object(labels).items(), LABELS_MAX):
        if isinstance(value, str) and len(name) <= LABEL_MAX and len(value) <= LABEL_MAX:
            yield names.of("label", name, value)
        yield names.of("labelled", name[:LABEL_MAX])


def of_run(names: Names, row: RunRow | None) -> Entries:
    """Return the entries of a run that its moves change."""
    if row is None:
        return {}
    found = _of_status(names, row) | _of_lease(names, row)
    id = str(row.id)
    if row.status in OPEN and row.timeout_at is not None:
        found[names("timeouts"), id] = row.timeout_at
    if row.owes:
        found[names("owing"), id] = 0
    if row.chain is not None:  # by score: those that are not deleted, then the others by time
        found[names("chain", str(row.chain)), id] = row.deleted_at or 0
    if row.parent is not None and row.status not in FINAL:
        found[names("children:open", str(row.parent)), id] = 0
    if row.account is not None and row.status is Status.PAUSED:
        found[names("stopped", str(row.account)), id] = 0
    if row.api_key is not None and row.finished_at is None:
        found[names.of("open:key", row.api_key), id] = 0
    # The first run of a chain that went on stays as long as the chain.
    if row.finished_at is None or row.present is not None:
        return found
    if row.expires_at is not None:
        found[names("expiring"), id] = row.expires_at
    else:
        found[names("ended"), id] = row.finished_at
    return found


def _of_status(names: Names, row: RunRow) -> Entries:
    id = str(row.id)
    if row.deleted_at is not None:
        return {(names("deleted"), id): row.deleted_at}
    found = {(names("status", row.status), id): 0, (names.of(f"status:{row.status}", row.tenant), id): 0}
    if row.status is Status.PENDING:
        member = place(row.priority, row.run_at, id)
        found[names.of("queue", row.type), member] = 0
        found[names.of("queue", row.type, row.tenant), member] = 0
        found[lane(names, row.type, row.tenant, row.limit_key), member] = 0
        found[names("pending"), id] = row.run_at
    return found


def _of_lease(names: Names, row: RunRow) -> Entries:
    if row.status is not Status.LEASED:
        return {}
    id = str(row.id)
    found = {(names("leases"), id): row.lease_until or 0}
    found[names.of("leased:worker", row.leased_by or ""), id] = row.fence
    for scope, name in (("type", row.type), ("tenant", row.tenant), ("key", row.limit_key)):
        if name is not None:
            found[names.of("leased", scope, name), id] = 0
    return found


def of_step(names: Names, row: RunRow, step: StepRow | None) -> Entries:
    """Return the entries of a step: it has some while it waits."""
    found: Entries = {}
    if step is None or step.status is not StepStatus.WAITING:
        return found
    member = f"{row.id}:{step.key}"
    found[names("waiting", step.kind.value), member] = 0
    if step.topic is not None:
        found[names.waits(row.tenant, step.topic), member] = 0
    if step.due_at is not None and lapses(row, step, wait_timeouts=True):
        late = lapses(row, step, wait_timeouts=False)
        found[names("timers") if late else names("timers:plans"), member] = step.due_at
    if step.kind.value == "approval":
        gate = f"{row.id}:{step.seq:0{BIG}d}:{step.key}"
        found[names("approvals"), gate] = 0
        found[names.of("approvals", row.tenant), gate] = 0
    return found


def move(snapshot: Snapshot, before: Entries, after: Entries) -> None:
    """Write the difference between two sets of entries."""
    for entry in before:
        if entry not in after:
            snapshot.leave(*entry)
    for (key, member), score in after.items():
        if before.get((key, member)) != score:
            snapshot.enter(key, score, member)


def lane(names: Names, type: str, tenant: str, key: str | None) -> str:
    """Return the queue of one type, tenant and limit_key: a lane, which a limit may hold back as a whole."""
    return names.of("lane", type, tenant) + lane_of(key)


def lane_of(key: str | None) -> str:
    """Return the end of a lane's name: '' for runs without a limit_key."""
    return "" if key is None else f":{part(key)}"


def key_of(end: str) -> str | None:
    """Return the limit_key of a lane by the end of its name."""
    return unpart(end[1:]) if end else None


def count_lanes(snapshot: Snapshot, before: RunRow | None, after: RunRow | None) -> None:
    """Count the pending runs: by type and tenant, and of these by lane. Claims ask for tenants and lanes."""
    old, new = _lane(before), _lane(after)
    if old == new:
        return
    for one, by in ((new, 1), (old, -1)):
        if one is not None:
            type, tenant, end = one
            for key, member in lane_counts(snapshot.names, type, tenant, end):
                snapshot.add("ZINCRBY", key, member, by)


def lane_counts(names: Names, type: str, tenant: str, end: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the sets that count the runs of a lane, and the member of each."""
    return (names.of("lanes", type), tenant), (names.of("lanes", type, tenant), end)


def _lane(row: RunRow | None) -> tuple[str, str, str] | None:
    if row is None or row.status is not Status.PENDING or row.deleted_at is not None:
        return None
    return row.type, row.tenant, lane_of(row.limit_key)
