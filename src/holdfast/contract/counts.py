"""Counts that are kept: runs by type and status, happenings per minute, and what is due now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.records import Counts, Instant, Miscount, Rate, Scale, Tenant

COUNTED_TYPES_MAX = 1000  # types in one answer of `counts`
RATE_SECONDS = 2 * 86400.0  # how long counts per minute are kept
RATES_MAX = 10_000  # counts per minute in one answer of `rates`
FOLD_SECONDS = 10.0  # a change of the counts is folded when it is this old
FOLD_MAX = 5000  # rows of changes that one commit folds
SCALE_MAX = 1000  # types and tenants in one answer of `scale`
DUE_COUNTED = 10_000  # due runs that are counted exactly, for each type and tenant


class Counting(Protocol):
    """Counts cost the same with a million runs as with few.

    Every commit that changes the status of runs, deletes, restores or removes them, also writes the change of
    the counts, whoever makes the commit: a verb, a trigger for user SQL, a purge. Changes are kept apart from
    the counts, so commits do not wait for each other; `tick` folds them into the kept counts, at the latest
    FOLD_SECONDS after they were written if a keeper runs. Every read adds the changes that are not folded
    yet: folding is never visible. Without a keeper the changes pile up, unless the store folds by itself.

    A run counts under its status while it is there and is not deleted. Happenings are counted in the minute,
    by the store's clock, of the commit: the trail entries created, succeeded, failed, cancelled, retried and
    lease_expired of verbs (not those that user SQL writes into the trail itself). They stay when their run is
    deleted, rewound or purged. A run that leaves for another store is counted as cancelled by its status, and
    not as a happening: nobody has cancelled it.
    """

    async def counts(self, tenant: Tenant) -> Counts:
        """The runs of a tenant, or of all, by type and status, and all happenings so far by type."""

    async def rates(
        self, tenant: Tenant, since: Instant, until: Instant | None = None, limit: int = RATES_MAX
    ) -> Sequence[Rate]:
        """Happenings per minute, by minute, type and `what`, from the minute of `since` to that of `until`
        (both included; None: to the newest one). At most `limit` of them, at most RATES_MAX; a caller goes
        on from the last minute it got. Minutes that are older than RATE_SECONDS may be gone.
        """

    async def scale(self, tenant: Tenant, limit: int = SCALE_MAX) -> Scale:
        """Due and leased runs by type and tenant, for those that have any. `due` is counted up to
        DUE_COUNTED. The cost grows neither with runs that are not due nor with ended ones.
        """

    async def recount(self, *, repair: bool = False) -> Sequence[Miscount]:
        """Compare the kept counts by status with the rows, in one snapshot, and return the differences, by
        tenant, type and status. It reads all runs, so it takes time, and delays no other verb. repair: write
        the differences as changes of the counts; what other commits change meanwhile stays right, and two
        repairs at once correct once. Happenings cannot be compared: their runs may be gone.
        """
