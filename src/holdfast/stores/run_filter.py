"""Filters of lists, in the form that stores use, and what they say about one run or message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec

from holdfast.contract import LABELS_MAX
from holdfast.lifecycle import Status
from holdfast.records import (
    ANY,
    DEFAULT_TENANT,
    OWN,
    Instant,
    Json,
    MessageStatus,
    OutboxFilter,
    RunFilter,
    instant,
)
from holdfast.records.fingerprints import fingerprint
from holdfast.records.unreadable import read_object
from holdfast.searching import json_forms

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


class Filtered(Protocol):
    """The fields of a run that filters and searches look at."""

    id: UUID
    type: str
    tenant: str
    key: str | None
    parent: UUID | None
    status: Status
    params: Json
    result: Json | None
    labels: Json | None
    error: Json | None
    last_error: str | None
    created_at: Instant
    updated_at: Instant
    finished_at: Instant | None
    deleted_at: Instant | None


class FilteredMessage(Protocol):
    """The fields of a message that filters look at."""

    id: str
    tenant: str
    run: UUID
    sink: str
    status: MessageStatus


def matches(row: Filtered, where: RunFilter) -> bool:
    """Return True when a run matches the filter, apart from what it waits for."""
    return (
        (where.deleted or row.deleted_at is None)
        and (not where.statuses or row.status in where.statuses)
        and (where.type is None or _is_type(row.type, where.type))
        and where.tenant in {None, row.tenant}
        and where.key in {None, row.key}
        and where.parent in {None, row.parent}
        and not (where.roots and row.parent is not None)
        and _is_labelled(row.labels, where.labels)
        and (where.error is None or _failed_as(row, where.error))
        and _within(row.created_at, where.created_since, where.created_until)
        and _within(row.finished_at, where.finished_since, where.finished_until)
        and _within(row.updated_at, where.updated_since, where.updated_until)
    )


def matches_message(row: FilteredMessage, where: OutboxFilter) -> bool:
    """Return True when a message matches the filter."""
    return (
        (not where.statuses or row.status in where.statuses)
        and where.sink in {None, row.sink}
        and where.run in {None, row.run}
        and where.tenant in {None, row.tenant}
        and where.id in {None, row.id}
    )


def _is_type(name: str, wanted: str) -> bool:
    return name.startswith(wanted[:-1]) if wanted.endswith("%") else name == wanted


def _is_labelled(labels: Json | None, wanted: Mapping[str, str | None]) -> bool:
    if not wanted:
        return True
    there = dict(islice(read_object(labels).items(), LABELS_MAX))
    return all(name in there and value in {None, there[name]} for name, value in wanted.items())


def _failed_as(row: Filtered, wanted: str | tuple[str, ...]) -> bool:
    found = fingerprint(row.error) if row.status is Status.FAILED else None
    if found is None or isinstance(wanted, tuple):
        return found is not None and found in wanted
    return found.startswith(wanted[:-1]) if wanted.endswith("%") else found == wanted


def _within(at: Instant | None, since: datetime | None, until: datetime | None) -> bool:
    if since is None and until is None:
        return True
    return (
        at is not None and (since is None or at >= instant(since)) and (until is None or at < instant(until))
    )


def holds(row: Filtered, text: str) -> bool:
    """Return True when a run holds the text of a search."""
    values = (row.params, row.result or "", row.labels or "")
    return (
        any(form in value for form in dict.fromkeys(json_forms(text)) for value in values)
        or text in (row.key or "")
        or text in (row.last_error or "")
        or text in _message(row.error)
    )


def _message(error: Json | None) -> str:
    message = None if error is None else read_object(error).get("message")
    return message if isinstance(message, str) else ""
