"""Driver functions for export and import: a second store in memory, carried runs, and comparisons."""

from __future__ import annotations

import json

import msgspec
from msgspec.structs import replace

from holdfast.records import MessageStatus, NewEvent
from holdfast.stores.memory import MemoryStore
from holdfast.transfer.reading import events_of, ids_of, runs_of
from holdfast.transfer.writing import Writing

from .driver import StoreDriver


def memory(driver):
    """Return a driver of an empty store in memory, with the same clock and event loop."""
    other = StoreDriver(MemoryStore(clock=driver.clock), driver.clock)
    other._loop.close()
    other._loop, other._ids = driver._loop, 1_000_000  # its own ids
    return other


def events(driver, **fields):
    async def read():
        return [event async for page in events_of(driver.store, **fields) for event in page]

    return driver.run(read())


def runs(driver, ids=None):
    """Return runs in all their parts, by id."""

    async def read():
        if ids is not None:
            return [part async for part in runs_of(driver.store, ids)]
        return [
            part
            async for page in ids_of(driver.store)
            for part in [one async for one in runs_of(driver.store, page)]
        ]

    return driver.run(read())


def write(driver, parts, some_events=(), **fields):
    """Write events and runs; return the answers."""

    async def written():
        writing = Writing(driver.store, **fields)
        await writing.events(list(some_events))
        answers = []
        for part in parts:
            answers += await writing.run(part)
        return answers + await writing.flush()

    return driver.run(written())


def carry(source, target, ids=None, **fields):
    """Carry runs and all events from one store to another; return the runs as they were read."""
    found = runs(source, ids)
    answers = write(target, found, events(source), **fields)
    assert {one.answer for one in answers} <= {"imported"}, answers
    return found


def plain(parts):
    """Return runs without what may differ from store to store: numbers, fences, and the time of the last
    change."""
    return [_plain(part) for part in parts]


def _plain(part):
    row = part.row and replace(part.row, fence=0, updated_at=0, watermark=0, owes=0)
    steps = tuple(replace(step, watermark=0, took=(), fence=0) for step in part.steps)
    notes = tuple(replace(note, data=_sorted(note.data)) for note in part.notes)
    return replace(part, row=row, steps=steps, notes=notes, digest="")


def _sorted(text):
    """Return JSON with the fields in one order; fences are left out: each store gives its own."""
    data = json.loads(text, parse_int=float)
    return json.dumps({name: value for name, value in data.items() if name != "fence"}, sort_keys=True)


def without_import(parts):
    """Return runs that were imported on hold as they were before."""
    return [_before(part) for part in parts]


def _before(part):
    row = part.row
    if row is not None and row.pause_asked_by == "import":
        row = replace(row, status=row.resume_to, resume_to=None, pause_asked_by=None)
    notes = tuple(note for note in part.notes if note.type != "imported")
    return replace(part, row=row, notes=notes, messages=tuple(map(_pending, part.messages)))


def _pending(message):
    """Return a message that is dead because it was imported as it was before."""
    if message.error is None or json.loads(message.error)["kind"] != "import":
        return message
    return replace(message, status=MessageStatus.PENDING, error=None)


def said(event):
    """Return an event without its numbers."""
    return replace(event, seq=0, delivered=True)


def emitted(driver, topic="parcel", **fields):
    """Emit an event with an id of its own; return the id."""
    name = str(driver.id())
    driver.run(driver.store.emit(NewEvent(**{"id": name, "topic": topic, "payload": f'"{name}"', **fields})))
    return name


def encoded(parts):
    """Return runs as they are after a journey through JSON."""
    return [msgspec.json.decode(msgspec.json.encode(part), type=type(part)) for part in parts]
