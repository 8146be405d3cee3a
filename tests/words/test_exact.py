"""Fields of records: exact types, texts that can be stored, JSON; also in tuples and nested records."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.errors import UsageError
from holdfast.exact import check_fields, check_nested
from holdfast.records import Ask, Item, NewRun, StepWrite
from holdfast.records.moves import CHECKPOINT, PARK, Complete, Retry


class Text(str):
    """A subclass, as template libraries make them."""

    __slots__ = ()


class Number(int):
    """A subclass, like an enum of numbers."""


def ask(**fields):
    return Ask(**{"worker": "w", "types": ("a.b.v1",), "limit": 1, **fields})


def item(move=CHECKPOINT, **fields):
    return Item(**{"run": UUID(int=1), "fence": 1, "number": 1, "move": move, **fields})


@pytest.mark.parametrize(
    "record",
    [
        ask(worker=Text("w")), ask(limit=Number(1)), ask(types=(Text("a.b.v1"),)), ask(types=("a", "b\0")),
        ask(types=("half \ud800",)), ask(tenants=("a", Text("b"))), ask(crashed=(1, Number(2))),
        item(fence=Number(1)), item(tenant=Text("t")), item(progress="{x"), item(steps=("none", Text("x"))),
        StepWrite(key=Text("a")), StepWrite(key="a", output="{x"), StepWrite(key="a", attempts=Number(1)),
        Complete(result="{x"), Retry(error=None, last_error="half \ud800", delay_seconds=1.0),
    ],
)  # fmt: skip
def test_a_field_that_no_store_can_keep_is_refused(record):
    """Alone, in a tuple, or beside valid ones."""
    with pytest.raises(UsageError):
        check_fields(record)


def test_records_within_a_record_are_looked_at_on_their_own():
    """`check_fields` checks one record; `check_nested` also the records in it."""
    child = StepWrite(key="a", child=NewRun(id=UUID(int=2), type="a.b.v1", digest=Text("d")))
    for record in (item(steps=(child,)), item(Complete(result="{x"))):
        check_fields(record)
        with pytest.raises(UsageError):
            check_nested(record)


@pytest.mark.parametrize("record", [ask(), ask(tenants=("a",), crashed=(1, 2)), PARK, item(PARK)])
def test_valid_records_are_accepted(record):
    """However often they come."""
    for _ in range(2):
        check_nested(record)
