"""Filters of lists, in the form that stores use."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from holdfast.records import ANY, DEFAULT_TENANT, OWN, OutboxFilter, RunFilter

F = TypeVar("F", RunFilter, OutboxFilter)


def inside(where: F) -> F:
    """Return the filter with the name of its tenant: `default` if none is given, None for ANY."""
    tenant = DEFAULT_TENANT if where.tenant is OWN else where.tenant
    return msgspec.structs.replace(where, tenant=None if tenant is ANY else tenant)


def is_filtered(where: RunFilter) -> bool:
    """Return True for a filter whose runs an SQL store finds in slices, by the index of one of its fields.
    Lists over all tenants by status, type, key or parent are one statement, which the planner of the database
    chooses an index for.
    """
    times = (where.created_since, where.created_until, where.finished_since, where.finished_until,
             where.updated_since, where.updated_until)  # fmt: skip
    return bool(
        isinstance(where.tenant, str) or where.roots or where.labels or where.error is not None or any(times)
    )
