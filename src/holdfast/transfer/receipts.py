"""A move by a file: what the two sides tell each other by two small files beside it.

1. The source stops the runs, and writes FILE (`MoveExporter`).
2. The target imports FILE, where the runs wait, and writes FILE.taken.
3. The source reads FILE.taken, records that the runs have left, and writes FILE.left (`confirm`).
4. The target reads FILE.left, and lets the runs go on (`release`).

Until step 3 the source can take its runs back (`take_back`). Each step can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from holdfast.contract import EXPORT_MAX, Store
from holdfast.errors import Conflict, UsageError
from holdfast.machine.relocating import NOT_LEAVING
from holdfast.records import ANY
from holdfast.records.transfer import MOVE, Departure, Relocated, RelocationAnswer

from .families import family_of, run_of
from .late_events import check_events, import_late, write_left
from .leaving import any_has_left, bring_back, undo
from .lines import DamagedLine, End, Header, Lines, RunLine, header_of, made, put, record_of, synced
from .places import is_away
from .settings import paused_for, resume_schedules

T = TypeVar("T", bound=msgspec.Struct)


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """FILE.taken: the target has the runs of the file, but for those that it has refused. `receipt`: made by
    this import; two stores may have the same name."""

    move: str
    target: str
    receipt: str = ""
    refused: list[UUID] = []


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of FILE.left: the source has recorded that the runs left, but for those that came back.
    It is for the store that has the import of this `receipt`. `events`: the number of the other lines."""

    move: str
    target: str
    receipt: str = ""
    back: list[UUID] = []
    events: int = 0


class Before(NamedTuple):
    """An earlier import of a file of runs that move. `runs`: those that it has brought. They must not come
    again: they may have gone on here, have ended and have been purged. `has_refused`: it has refused
    others."""

    runs: frozenset[UUID]
    has_refused: bool


class HandOver(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one step. `runs`: those that have left, or that go on. `back`: those that go on at the
    source. `events`: those that came to the source after FILE was written. `missing`: runs that have left,
    and that the target does not have."""

    runs: int
    back: int
    events: int = 0
    missing: list[UUID] = []


async def check_taken(store: Store, path: Path, move: str, target: str) -> Before | None:
    """Check that a file of runs that move was not imported into another store before, and is not imported
    into the store that it comes from. Return what an earlier import has done."""
    known = _known_taken(path, move)
    if known is None:
        first = _first_run(path)
        if first is not None and await _comes_from(store, first, file_name(move)):
            raise UsageError(
                f"this is the store that {path} comes from: import it at the target, or undo the move "
                "here (export --undo)"
            )
        return None
    if known.target != target:
        raise UsageError(
            f"{path} was imported into {known.target} before: its runs cannot go to two stores; if that was "
            f"a mistake, and nothing was imported there, remove {_taken(path)}"
        )
    refused = set(known.refused)
    taken = [run for run, _ in departures_of(path) if run not in refused]
    # Two stores may have the same name: the one that FILE.taken is of has runs of the file, or had them.
    if taken and not await _has_any(store, taken):
        raise UsageError(
            f"{_taken(path)} says that {path} was imported before, and run {taken[0]} is not in this store, "
            "nor any other of them: its runs cannot go to two stores; or they ended here and were purged"
        )
    return Before(frozenset(taken), bool(refused))


async def _has_any(store: Store, runs: Iterable[UUID]) -> bool:
    for run in runs:
        if await run_of(store, run) is not None:
            return True
    return False


def check_not_overtaken(path: Path, move: str) -> None:
    """Check that no other import of the file has ended since this one began: its runs may have gone on here,
    have ended and have been purged."""
    if _known_taken(path, move) is not None:
        raise Conflict(f"another import of {path} has ended meanwhile: this one ends here")


def _known_taken(path: Path, move: str) -> Taken | None:
    """Return FILE.taken of this move, if an import has written it."""
    known = _read(_taken(path), Taken) if _taken(path).exists() else None
    return known if known is not None and known.move == move else None


async def _comes_from(store: Store, run: UUID, name: str) -> bool:
    """Return True when a run has left this store for the file of this name: no import came after that."""
    rows = await store.trail(run, ANY, ("leaving", "imported"))
    left = [at for at, row in enumerate(rows) if row.type == "leaving" and row.data.get("to") == name]
    return bool(left) and all(row.type != "imported" for row in rows[left[-1] :])


def write_taken(path: Path, move: str, target: str, refused: list[UUID], receipt: str) -> None:
    """Write FILE.taken. A repeated import keeps its receipt."""
    known = _known_taken(path, move)
    if known is not None:
        receipt = known.receipt
    _write(_taken(path), Taken(move=move, target=target, refused=refused, receipt=receipt))


async def confirm(store: Store, path: Path, by: str = MOVE) -> HandOver:
    """Record at the source that the runs of a file have left; those that the target has refused, and their
    families, come back. Events that came since the file was written go along in FILE.left."""
    header = move_header(path)
    taken = _read(_taken(path), Taken)
    if taken.move != header.move:
        raise UsageError(f"{_taken(path)} is of another move: import {path} at the target first")
    known = _read(_left(path), Left) if _left(path).exists() else None
    if known is not None and known.move == header.move:
        return await _confirm_again(store, path, taken, known, by)
    await _check_source(store, path)
    back: dict[UUID, None] = {}
    for run in taken.refused:
        found = await run_of(store, run)
        back |= dict.fromkeys([run] if found is None else await family_of(store, found))
    runs = 0
    for page in _pages(departures_of(path)):
        for one in await store.left([pair for pair in page if pair[0] not in back], by):
            if one.answer in {RelocationAnswer.LEFT, RelocationAnswer.WENT_ON}:
                runs += 1
            elif await _came_back(store, path, one):
                back[one.run] = None
    left = Left(move=header.move, target=taken.target, receipt=taken.receipt, back=list(back))
    _left(path).unlink(missing_ok=True)  # of another move
    events = await _write_left(store, path, header, left)
    await _settle(store, path, back, by)
    return HandOver(runs=runs, back=len(back), events=events)


async def _write_left(store: Store, path: Path, header: Header, left: Left) -> int:
    """Write FILE.left with the events that came since. Return their number."""

    def first(events: int) -> bytes:
        return msgspec.json.encode(replace(left, events=events)) + b"\n"

    return await write_left(store, path, header, _left(path), frozenset(left.back), first)


async def _settle(store: Store, path: Path, back: Collection[UUID], by: str) -> None:
    """Let the runs `back` go on here, and let the source purge the others. Not before FILE.left says which
    they are: a purge may remove both from now on, and then the source does not know it any more."""
    await bring_back(store, [pair for pair in departures_of(path) if pair[0] in back], by)
    for page in _pages(pair for pair in departures_of(path) if pair[0] not in back):
        await store.went_on(page, by)


async def _confirm_again(store: Store, path: Path, taken: Taken, known: Left, by: str) -> HandOver:
    """Repeat `confirm`. FILE.left stays as it is, but for events that came since: the target may have
    released the runs already, and may have purged them since."""
    if (known.target, known.receipt) != (taken.target, taken.receipt):
        raise UsageError(
            f"{path} was confirmed for another import before, into {known.target}: its runs cannot go to two "
            "stores"
        )
    back, runs = set(known.back), 0
    for _ in departures_of(path):
        pass  # it must be whole before a run is recorded as left
    for page in _pages(pair for pair in departures_of(path) if pair[0] not in back):
        runs += len(await store.left(page, by))
    check_events(_left(path), known.events)
    events = await _write_left(store, path, move_header(path), known)
    await _settle(store, path, back, by)
    return HandOver(runs=runs, back=len(back), events=events)


async def _check_source(store: Store, path: Path) -> None:
    """Check, before anything is recorded, that a file is whole and that its runs are those of this store."""
    for run, _ in departures_of(path):
        if await run_of(store, run) is None:
            raise _not_the_source(path, run)


async def _came_back(store: Store, path: Path, one: Relocated) -> bool:
    """Return True when a run that does not leave came back before. UsageError: this is not its source."""
    run = await run_of(store, one.run)
    if run is None:
        raise _not_the_source(path, one.run)
    if one.reason == NOT_LEAVING and is_away(run):
        raise UsageError(f"run {one.run} waits for its release in this store: confirm {path} at its source")
    return True


def _not_the_source(path: Path, run: UUID) -> UsageError:
    return UsageError(
        f"run {run} of {path} is not in this store: give the store that the file comes from; if the run was "
        f"purged there, bring {_left(path).name} back that an earlier confirmation has written"
    )


async def release(store: Store, path: Path, here: str, by: str = MOVE) -> HandOver:
    """Let the runs of a file go on at the target, children first."""
    header = move_header(path)
    left = _read(_left(path), Left)
    if (left.move, left.target) != (header.move, here):
        raise UsageError(f"{_left(path)} is of another move, or for another store: {left.target}")
    taken = _read(_taken(path), Taken) if _taken(path).exists() else None
    if taken is not None and taken.receipt != left.receipt:
        raise UsageError(
            f"{_left(path)} is for another import of {path}: its runs go on at the store of that import"
        )
    back, runs, missing = set(left.back), 0, list[UUID]()
    departures = list(departures_of(path))
    check_events(_left(path), left.events)
    events = await import_late(store, _left(path))
    for page in _pages(pair for pair in reversed(departures) if pair[0] not in back):
        for one in await store.arrive(page, by):
            runs += one.answer is RelocationAnswer.HERE
            if one.answer is not RelocationAnswer.HERE:
                missing.append(one.run)
    for page in _pages(pair for pair in departures if pair[0] in back):
        await store.drop_arrived(page, by)
    await store.deliver()
    return HandOver(runs=runs, back=len(back), events=events, missing=missing)


async def take_back(store: Store, path: Path, by: str = MOVE, *, lost: bool = False) -> list[UUID]:
    """Let the runs of a file go on at the source, unless it has recorded that they left. Conflict: `confirm`
    was begun, and must be ended first. lost: the file is gone, so this is done for all runs that leave for a
    file."""
    if lost:
        back = await undo(store, None, lambda to: to.startswith(FILE_NAME), by)
        return [run for run, _ in back]
    header = move_header(path)
    name = file_name(header.move)
    known = _read(_left(path), Left) if _left(path).exists() else None
    is_confirmed = known is not None and known.move == header.move
    if not is_confirmed and await any_has_left(store, lambda to: to == name):
        # Only a confirmation that is ended tells the target which runs go on there.
        raise Conflict(
            f"runs of {path} have left for good: a confirmation (export --confirm) was begun and not ended; "
            "end it, and the target lets them go on"
        )
    back = await undo(store, None, lambda to: to == name, by)
    if header.whole and not is_confirmed:
        await resume_schedules(store, paused_for(name))
    return [run for run, _ in back]


FILE_NAME = "a file of move "


def file_name(move: str) -> str:
    """Return the target that runs in a file leave for, as their trail says it."""
    return FILE_NAME + move


def move_header(path: Path) -> Header:
    """Return the header of a file of runs that move. Any other file is refused."""
    try:
        with path.open("rb") as file:
            header = header_of(Lines(file).first(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if not header.move:
        raise UsageError(f"{path} was not written by `export --move`: its runs have not left")
    return header


def departures_of(path: Path) -> Iterator[Departure]:
    """Yield the runs of a file in its order, each once, with the numbers of their departures. UsageError,
    after the last one: the file is not whole."""
    seen: set[UUID] = set()
    record: Any = None
    with path.open("rb") as file:
        lines = Lines(file)
        while (text := lines.next()) is not None:
            record = record_of(text, lines.number)
            if isinstance(record, RunLine) and (row := record.run.row) and record.run.id not in seen:
                seen.add(record.run.id)
                yield record.run.id, row.fence
        is_last = isinstance(record, End) and record.lines == lines.number - 1
        if not is_last or record.sha256 != lines.sha256:
            raise UsageError(f"{path} is not whole: copy it again, or continue its export (--resume)")


def _first_run(path: Path) -> UUID | None:
    """Return the first run of a file, if its lines can be read so far."""
    try:
        return next((run for run, _ in departures_of(path)), None)
    except (DamagedLine, UsageError):
        return None  # the import names what is wrong


def _pages(departures: Iterable[Departure]) -> Iterator[list[Departure]]:
    left = iter(departures)
    while page := list(islice(left, EXPORT_MAX)):
        yield page


def _taken(path: Path) -> Path:
    return path.with_name(f"{path.name}.taken")


def _left(path: Path) -> Path:
    return path.with_name(f"{path.name}.left")


def _read(path: Path, kind: type[T]) -> T:
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(Lines(file).next() or b"", type=kind)
    except FileNotFoundError:
        raise UsageError(f"{path} is missing: it comes from the other store, by the step before") from None
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def _write(path: Path, record: msgspec.Struct) -> None:
    """Write a file as a whole, or not at all."""
    new = path.with_name(f"{path.name}.new")
    with made(new, anew=True) as file:
        file.write(msgspec.json.encode(record) + b"\n")
        synced(file)
    put(new, path)
