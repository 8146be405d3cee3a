"""Fields that several operations share: the run in a path, the tenant of an operator, pages, durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.arguments import NAME_MAX, TOPIC_MAX
from holdfast.codec import parse
from holdfast.errors import HoldfastError
from holdfast.http.call import PAGE, PAGE_MAX, Call
from holdfast.http.cursors import CURSOR_MAX
from holdfast.http.operation import Path, Query
from holdfast.http.parsing import LARGE_BYTES
from holdfast.step_keys import KEY_MAX

FOREVER = 1000 * 365.25 * 86400.0

Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
StepKey = Annotated[str, Meta(min_length=1, max_length=KEY_MAX)]
Topic = Annotated[str, Meta(min_length=1, max_length=TOPIC_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=FOREVER, description="Seconds.")]
Attempts = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Priority = Annotated[int, Meta(ge=0, le=999, description="Lower is claimed first.")]
Cost = Annotated[float, Meta(gt=0, le=1_000_000_000)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX, description="The most items of a page.")]
Cursor = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=CURSOR_MAX,
        description="`next` of the page before.",
        extra_json_schema={"pattern": "^[A-Za-z0-9_-]+$"},  # other texts are refused as bad cursors
    ),
]
TenantName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_MAX,
        description="Only for keys with the scope `operator`: the tenant, or `*` for all.",
    ),
]
Value = Raw | UnsetType  # JSON of the caller; left out: null
Labels = Annotated[dict[str, str], Meta(description="Names and values, all texts.")]


async def values_of(call: Call, given: Sequence[Value], what: str) -> list[Any | HoldfastError]:
    """Return values that the caller has sent, each of them or its error; None for one that was left out."""
    found = iter(await call.api.bodies.values([bytes(one) for one in given if one is not UNSET], what))
    return [None if one is UNSET else next(found) for one in given]


async def value_of(call: Call, given: Value, what: str) -> Any:
    """Return a value that the caller has sent; None when it was left out. BadValue, TooLarge."""
    if given is UNSET:
        return None
    text = bytes(given)
    if len(text) <= LARGE_BYTES:
        return parse(text, what, repeated=False)  # the whole body was searched for repeated keys
    return await call.api.bodies.value(text, what)


class OneTenant(Query, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of an operation on one thing."""

    tenant: TenantName | None = None


class Paged(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a list."""

    limit: Limit = PAGE
    cursor: Cursor | None = None


class RunPath(Path, frozen=True, kw_only=True):
    """A run by its id."""

    run: UUID


class NamePath(Path, frozen=True, kw_only=True):
    """Something by its name."""

    name: Name
