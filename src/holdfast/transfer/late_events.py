"""Events that come to the source after the file of a move was written: the later lines of FILE.left."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from uuid import UUID

from msgspec.structs import replace

from holdfast.contract import IMPORT_MAX, Store
from holdfast.errors import UsageError
from holdfast.records import SECOND
from holdfast.records.transfer import CarriedEvent

from .lines import DamagedLine, Header, Lines, RunLine, line_of, made, put, record_of, synced
from .reading import events_of

# A transaction that has recorded an event may commit later than one that began after it.
SLACK = 3600 * SECOND

Key = tuple[str, str]  # tenant and id


async def write_left(
    store: Store,
    path: Path,
    header: Header,
    left: Path,
    back: Collection[UUID],
    first: Callable[[int], bytes],
) -> int:
    """Write FILE.left as a whole, or not at all: its first line, and then the events that came since the
    export began and are not in FILE, and those that FILE.left has already. Return their number. `first` makes
    the first line from the number. `back`: runs that go on at the source."""
    lines, new = left.with_name(f"{left.name}.events"), left.with_name(f"{left.name}.new")
    count = 0
    with made(lines, anew=True) as file:
        known: set[Key] = set()
        for event in read_events(left):
            known.add((event.tenant, event.id))
            file.write(line_of(event))
            count += 1
        async for event in _late(store, path, header, back):
            if (event.tenant, event.id) not in known:
                file.write(line_of(event))
                count += 1
    with made(new, anew=True) as file:
        file.write(first(count))
        with lines.open("rb") as found:
            shutil.copyfileobj(found, file)
        synced(file)
    put(new, left)
    lines.unlink()
    return count


async def _late(
    store: Store, path: Path, header: Header, back: Collection[UUID]
) -> AsyncIterator[CarriedEvent]:
    """Yield the events of the source for the runs of a file that are not in the file. None of the runs has
    taken them, so they are not delivered."""
    since = header.exported_at - SLACK
    known, chains = _in_file(path, since)
    async for page in events_of(store):
        for event in page:
            is_meant = event.chain is None or header.whole or event.chain in chains
            is_new = event.at >= since and (event.tenant, event.id) not in known
            if is_new and is_meant and event.chain not in back:
                yield replace(event, delivered=False, woken=0)


def _in_file(path: Path, since: int) -> tuple[set[Key], set[UUID]]:
    """Return the events of a file since an instant, and the chains of its runs."""
    known: set[Key] = set()
    chains: set[UUID] = set()
    with path.open("rb") as file:
        lines = Lines(file)
        while (text := lines.next()) is not None:
            record = record_of(text, lines.number)
            if isinstance(record, CarriedEvent) and record.at >= since:
                known.add((record.tenant, record.id))
            elif isinstance(record, RunLine):
                chains.add(record.run.chain or record.run.id)
    return known, chains


def read_events(left: Path) -> Iterator[CarriedEvent]:
    """Yield the events of FILE.left, if it is there. UsageError: a line is damaged."""
    if not left.exists():
        return
    with left.open("rb") as file:
        lines = Lines(file)
        lines.next()
        while (text := lines.next()) is not None:
            try:
                record = record_of(text, lines.number)
            except DamagedLine as error:
                raise UsageError(f"{left} is not whole ({error}): copy it again") from None
            if not isinstance(record, CarriedEvent):
                raise UsageError(f"{left} is not whole (line {lines.number} is no event): copy it again")
            yield record


def check_events(left: Path, count: int) -> None:
    """Check that FILE.left has all its events."""
    found = sum(1 for _ in read_events(left))
    if found != count:
        raise UsageError(f"{left} is not whole ({found:,} of {count:,} events): copy it again")


async def import_late(store: Store, left: Path) -> int:
    """Record the events of FILE.left at the target, but for those that no store keeps any more. Return how
    many there are."""
    now, count = await store.now(), 0
    page: list[CarriedEvent] = []
    for event in read_events(left):
        if event.keep_until > now or event.chain is not None:
            page.append(event)
            count += 1
        if len(page) == IMPORT_MAX:
            await store.import_events(page)
            page = []
    if page:
        await store.import_events(page)
    return count
