"""The version that a schedule starts: the one that it names, or the newest published one of a bare name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.arguments import is_type
from holdfast.contract import Store
from holdfast.engine.definitions import newest
from holdfast.errors import HoldfastError, UnknownWorkflow
from holdfast.records import Schedule


async def published_types(store: Store, schedules: Iterable[Schedule]) -> Sequence[str]:
    """Return the published types, if one of these schedules has a bare name; else nothing is read."""
    if all(is_type(one.type) for one in schedules):
        return ()
    return [one.type for one in await store.definitions()]


def resolved(one: Schedule, published: Sequence[str]) -> Schedule:
    """Return the schedule with the type that a firing starts now; UnknownWorkflow if there is none yet.

    Two keepers may resolve differently while a new version is deployed. The store lets only one of them fire
    a time, so one version of the two is started.
    """
    if is_type(one.type):
        return one
    try:
        return msgspec.structs.replace(one, type=newest(one.type, published))
    except UnknownWorkflow:
        raise UnknownWorkflow(
            f"no version of {one.type} is published yet: start a worker that has it; the schedule is retried"
        ) from None


def unresolved(one: Schedule, published: Sequence[str]) -> str | None:
    """Return the reason why a schedule has no version to start; None if it has one."""
    try:
        resolved(one, published)
    except HoldfastError as error:
        return str(error)
    return None
