"""Counts of runs that a store keeps, and the runs that are due now."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from .units import Instant


class Counted(StrEnum):
    """A happening that is counted per minute. Each is one trail entry of a run."""

    STARTED = "started"  # trail `created`
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    EXPIRED = "expired"  # trail `lease_expired`


class Counts(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The runs of a store, or of one tenant. Types, and numbers that are 0, may be missing.

    `more`: there are more types than COUNTED_TYPES_MAX; the largest are here, the rest are under the type "".
    """

    now: Instant
    by_type: dict[str, dict[str, int]]  # by type and status, the runs that are there and not deleted
    totals: dict[str, dict[str, int]]  # by type and `Counted`, since the store began to count
    more: bool = False

    def by_status(self) -> dict[str, int]:
        """The number of runs by status, over all types."""
        found: dict[str, int] = {}
        for one in self.by_type.values():
            for status, number in one.items():
                found[status] = found.get(status, 0) + number
        return found


class Rate(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """How often something happened to runs of a type in one minute."""

    minute: Instant  # the start of the minute
    type: str
    what: Counted
    number: int


class DueRuns(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The due runs of one type and tenant: pending, not deleted, run_at at or before now."""

    type: str
    tenant: str
    due: int
    more: bool  # the store stopped counting at `due`, and has more of them
    oldest_due_at: Instant | None  # the earliest run_at; None: nothing is due
    leased: int  # runs that are executed now: the slots in use


class Scale(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """Due runs by type and tenant: the signal to add or remove workers.

    `more`: there are more types and tenants than SCALE_MAX; those with the oldest due runs are not certain to
    be among these.
    """

    now: Instant
    items: tuple[DueRuns, ...]  # by type, then tenant
    more: bool = False


class Miscount(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """A kept count that differs from the rows.

    Tenant "": the count of all tenants together, where the counts of the tenants do not explain it.
    """

    tenant: str
    type: str
    status: str
    kept: int
    real: int
