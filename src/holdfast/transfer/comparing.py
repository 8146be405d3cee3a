"""The digest of a run without what differs between two stores: whether a run came as it was."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import astuple, replace

from holdfast.decoding import decode_untyped
from holdfast.records.transfer import CarriedNote, CarriedRun, CarriedStep

_encode = msgspec.json.Encoder(order="sorted").encode
_COMES = "imported"  # a trail row that the target adds


class Content:
    """The digest of what a run is, in whichever store. Numbers of events, fences and debts are left out, and
    the trail row that the import adds."""

    def __init__(self) -> None:
        self._sections = [hashlib.sha256() for _ in range(4)]

    def add(self, part: CarriedRun) -> None:
        """Add the next part."""
        steps, notes, messages, rest = self._sections
        for step in part.steps:
            steps.update(_encode(_step(step)) + b"\n")
        for note in part.notes:
            if note.type != _COMES:
                notes.update(_encode(_note(note)) + b"\n")
        for message in part.messages:
            messages.update(_encode(astuple(replace(message, fence=0))) + b"\n")
        if part.row is not None:
            row = replace(part.row, fence=0, updated_at=0, watermark=0, owes=0, goes_on_as=None)
            rest.update(_encode((part.id, part.tenant, part.chain, astuple(row))))

    @property
    def text(self) -> str:
        whole = hashlib.sha256()
        for one in self._sections:
            whole.update(one.digest())
        return whole.hexdigest()


def _step(step: CarriedStep) -> tuple[object, ...]:
    # As a tuple: a struct leaves out fields whose default it recognises, which is not the same each time.
    return astuple(replace(step, watermark=0, took=(), fence=0))


def _note(note: CarriedNote) -> tuple[str, int, object, bool]:
    """Return a trail row with its fields in one order: stores write JSON in their own way."""
    return note.type, note.at, _numbers(decode_untyped(note.data)), note.told


def _numbers(value: object) -> object:
    """Return a value with whole numbers as numbers: 1 and 1.0 are the same."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return value
