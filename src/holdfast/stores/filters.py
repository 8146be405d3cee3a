"""The tenant of a filter, as stores keep it inside: a name, or None for all."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from holdfast.records import ANY, DEFAULT_TENANT, OWN, OutboxFilter, RunFilter

F = TypeVar("F", RunFilter, OutboxFilter)


def inside(where: F) -> F:
    """Give the filter with the name of its tenant: `default` where none is said, None for ANY."""
    said = DEFAULT_TENANT if where.tenant is OWN else where.tenant
    return msgspec.structs.replace(where, tenant=None if said is ANY else said)
