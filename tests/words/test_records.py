"""Records: instants that round-trip, and properties that people read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadValue
from holdfast.records import Error, NewRun, Step, Ticked, TrailEntry, instant, moment
from holdfast.records.unreadable import value
from holdfast.stores.schedules import same_time


@given(st.integers(0, 253_402_300_799_999_999))
def test_an_instant_round_trips_to_the_microsecond(at):
    """Stores keep integers, people read datetimes, and nothing is lost between."""
    assert instant(moment(at)) == at
    assert moment(at).tzinfo is UTC


def test_an_instant_is_the_same_in_every_zone():
    """An aware datetime means the same moment wherever it was written."""
    here = datetime(2024, 3, 31, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert instant(here) == instant(here.astimezone(UTC))
    assert instant(datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=UTC)) == 7


def test_a_record_cannot_be_changed():
    """Frozen: an answer never changes."""
    step = Step(seq=1, key="a", kind="task", status="succeeded")
    with pytest.raises(AttributeError):
        step.key = "b"


def test_an_error_leaves_out_what_it_does_not_know():
    """Small in the store, and complete again when it is read."""
    error = Error(kind="fatal", message="no")
    assert msgspec.json.encode(error) == b'{"kind":"fatal","message":"no"}'
    assert msgspec.json.decode(msgspec.json.encode(error), type=Error) == error


def test_a_round_that_did_nothing_counts_nothing():
    """Zero means that nothing was written."""
    assert Ticked().total == 0
    assert Ticked(expired=1, lapsed=2, delivered=3, timed_out=4).total == 10


def test_a_trail_entry_shows_its_data():
    """JSON text on its way, a dict to read."""
    entry = TrailEntry(seq=1, run=None, type="log", at=moment(0), data_json='{"message":"hi"}')
    assert entry.data == {"message": "hi"}


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "9" * 5000, "1e400", '"\\ud800"'])
def test_a_value_that_cannot_be_read_is_a_bad_value(text):
    with pytest.raises(BadValue, match="it cannot be read: "):
        value(text, "it")


def test_labels_of_any_shape_stand_in_no_schedules_way():
    new = NewRun(id=UUID(int=1), type="a.b.v1", labels='{"schedule": "s", "fire_at": "t"}')
    for labels in ("{", "7", '{"schedule": 1}', "[" * 9999, None):
        assert not same_time(new, "default", labels)
    assert same_time(new, "default", new.labels)
