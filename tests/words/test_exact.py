"""Fields of records: plain types, texts that can be stored, JSON; also in tuples and in records within."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.errors import UsageError
from holdfast.exact import check_fields, check_nested
from holdfast.records import Ask, Item, NewRun, StepWrite
from holdfast.records.moves import CHECKPOINT, PARK, Complete, Retry


class Text(str):
    """As a library of templates may make them."""

    __slots__ = ()


class Number(int):
    """As an enum of numbers is one."""


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
    """Wherever it stands: alone, in a tuple, beside others that are plain."""
    with pytest.raises(UsageError):
        check_fields(record)


def test_records_within_a_record_are_looked_at_on_their_own():
    """`check_fields` looks at one record; `check_nested` at those in it too."""
    child = StepWrite(key="a", child=NewRun(id=UUID(int=2), type="a.b.v1", digest=Text("d")))
    for record in (item(steps=(child,)), item(Complete(result="{x"))):
        check_fields(record)
        with pytest.raises(UsageError):
            check_nested(record)


@pytest.mark.parametrize("record", [ask(), ask(tenants=("a",), crashed=(1, 2)), PARK, item(PARK)])
def test_plain_records_are_taken(record):
    """As often as they come."""
    for _ in range(2):
        check_nested(record)
