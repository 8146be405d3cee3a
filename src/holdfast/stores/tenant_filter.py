"""The tenant of a filter, in the form that stores use: a name, or None for all."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from holdfast.records import ANY, DEFAULT_TENANT, OWN, OutboxFilter, RunFilter

F = TypeVar("F", RunFilter, OutboxFilter)


def inside(where: F) -> F:
    """Return the filter with the name of its tenant: `default` if none is given, None for ANY."""
    tenant = DEFAULT_TENANT if where.tenant is OWN else where.tenant
    return msgspec.structs.replace(where, tenant=None if tenant is ANY else tenant)
