"""The params of a bulk operation, its filter as JSON, and its report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, get_type_hints
from uuid import UUID

import msgspec

from holdfast.engine.definitions import RESERVED
from holdfast.errors import Fatal
from holdfast.lifecycle import OPEN, Status
from holdfast.records import Instant, RunFilter, RunOutline, Tenant

BULK_TYPE = "holdfast.bulk.v1"
BULK_LABEL = "holdfast.bulk"  # of its runs, with the verb: stores find them by it
OPERATOR_TENANT = "holdfast.operator"  # the owner of bulk operations on the runs of all tenants
RATE, RATE_MAX = 200, 10_000  # runs a second
SAMPLE = 5  # ids that are kept as examples of a reason
REASONS_MAX = 20
# The reasons of a report that hold no text of a user.
_OWN_REASON = re.compile(r"changed since the start|deleted or purged meanwhile|cannot \w+: it is \w+")
CHANGED, GONE, OTHER = "changed since the start", "deleted or purged meanwhile", "other reasons"


class BulkVerb(StrEnum):
    """The verbs that can be applied to many runs."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    RETRY = "retry"
    REWIND = "rewind"
    DELETE = "delete"


# The statuses of a filter that names none: those that the verb can change.
STATUSES: Mapping[BulkVerb, frozenset[Status]] = {
    BulkVerb.CANCEL: OPEN,
    BulkVerb.PAUSE: OPEN - {Status.PAUSED},
    BulkVerb.RESUME: frozenset({Status.PAUSED, Status.LEASED}),
    BulkVerb.RETRY: frozenset({Status.FAILED}),
    BulkVerb.REWIND: frozenset(),
    BulkVerb.DELETE: frozenset(),
}


class BulkReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a bulk operation, or of a part of it.

    refused: runs that the verb could not move, by reason. left_out: runs that were not touched, because they
    had changed since the operation began, or were gone. sample: for each reason, the first few ids.
    """

    done: int = 0
    refused: dict[str, int] = {}
    left_out: dict[str, int] = {}
    sample: dict[str, tuple[UUID, ...]] = {}

    @property
    def seen(self) -> int:
        """The number of runs that it has dealt with, in any way."""
        return self.done + sum(self.refused.values()) + sum(self.left_out.values())

    def plus(self, other: BulkReport) -> BulkReport:
        """Return the sum of two reports. Beyond REASONS_MAX, reasons are counted as OTHER."""
        total = msgspec.structs.replace(self, done=self.done + other.done)
        for where in ("refused", "left_out"):
            for reason, count in getattr(other, where).items():
                total = total.counting(where, reason, count, other.sample.get(reason, ()))
        return total

    def counting(self, where: str, reason: str, count: int, ids: tuple[UUID, ...]) -> BulkReport:
        """Return the report with more runs counted under a reason."""
        counts: dict[str, int] = getattr(self, where)
        if reason not in counts and len(counts) >= REASONS_MAX:
            reason = OTHER
        sample = {**self.sample, reason: (*self.sample.get(reason, ()), *ids)[:SAMPLE]}
        changed = {where: {**counts, reason: counts.get(reason, 0) + count}, "sample": sample}
        return msgspec.structs.replace(self, **changed)


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """The params of a bulk operation. The last four fields are set where its chain goes on."""

    verb: BulkVerb
    where: dict[str, Any]
    rate: int = RATE
    by: str = ""
    step: str | None = None  # rewind: the step; None: the beginning
    children: bool = True  # cancel, rewind
    first: UUID | None = None  # the first run of the chain
    began_at: Instant | None = None  # when that run was created, by the store's clock
    after: UUID | None = None  # the last run that was listed
    report: BulkReport = BulkReport()


_DEFAULTS = RunFilter()
_LEFT_OUT = {"tenant", "values", "deleted"}


def written(where: RunFilter) -> dict[str, Any]:
    """Return the fields of a filter that are set, as JSON. The tenant is left out: the run has one."""
    given = {name: getattr(where, name) for name in RunFilter.__struct_fields__ if name not in _LEFT_OUT}
    return {
        name: msgspec.to_builtins(value) for name, value in given.items() if value != getattr(_DEFAULTS, name)
    }


def filter_of(bulk: Bulk, tenant: Tenant) -> RunFilter:
    """Return the filter of the operation. An unknown field is refused: without it more runs would match."""
    types = get_type_hints(RunFilter)
    fields = {}
    for name, value in bulk.where.items():
        if name not in types or name in _LEFT_OUT:
            raise Fatal(f"this worker does not know the filter {name!r}: a newer version started this run")
        try:
            fields[name] = msgspec.convert(value, types[name])
        except msgspec.ValidationError as error:
            raise Fatal(f"the filter {name!r} cannot be read: {error}") from None
    return narrowed(RunFilter(**fields, tenant=tenant, values=False), bulk.verb)


def narrowed(where: RunFilter, verb: BulkVerb | None) -> RunFilter:
    """Return the filter with the statuses that the verb can change, if it names none."""
    if verb is None or where.statuses or not STATUSES[verb]:
        return where
    return msgspec.structs.replace(where, statuses=tuple(one for one in Status if one in STATUSES[verb]))


def takes(run: RunOutline, verb: BulkVerb | None) -> bool:
    """Return True for a run that a bulk operation is about. Runs of the engine are never taken. A chain is
    taken by its present run: an earlier one has ended, and deleting it would delete the whole chain.
    """
    if run.type.startswith(RESERVED) or run.present != run.id:
        return False
    return verb is not BulkVerb.RESUME or run.status is not Status.LEASED or run.pause_asked


def bulk_verb(params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the verb of the params of a bulk operation; None: they are none."""
    return {"verb": params["verb"]} if params.get("verb") in set(BulkVerb) else None


def bulk_numbers(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the numbers of a report under the engine's own reasons; other reasons are counted as OTHER,
    because they may name a step. None: it is no report.
    """
    try:
        report = msgspec.convert(result, BulkReport)
    except msgspec.ValidationError:
        return None
    numbers: dict[str, Any] = {"done": report.done}
    for where in ("refused", "left_out"):
        numbers[where] = dict[str, int]()
        for reason, count in getattr(report, where).items():
            word = reason if _OWN_REASON.fullmatch(reason) else OTHER
            numbers[where][word] = numbers[where].get(word, 0) + count
    return numbers
