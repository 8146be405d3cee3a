"""Stopping runs at the source, group by group, and letting them come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from uuid import UUID

from msgspec.structs import replace

from holdfast.arguments import BIG_MAX
from holdfast.contract import EXPORT_MAX, FOLLOWED_MAX, Store
from holdfast.decoding import decode_untyped
from holdfast.errors import Unavailable
from holdfast.lifecycle import FINAL, Status
from holdfast.records import ANY, Run, RunFilter
from holdfast.records.transfer import MOVE, MOVED, MOVING, Departure, Relocated, RelocationAnswer

from .families import ALL, groups_of, pages_of, run_of, top_of
from .places import goes_to, is_away, went_on
from .reading import runs_of

TRIES = 100  # how often runs that are busy are asked again
PAUSE_SECONDS = 0.05

Stopped = tuple[list[Relocated], list[Relocated]]  # runs that are leaving or have left; refused ones


async def stop(store: Store, runs: Sequence[UUID], to: str, by: str = MOVE) -> Stopped:
    """Let a group leave, parents first. Children that were started meanwhile, and runs that a chain has gone
    on as meanwhile, are stopped too: a run that is stopped starts no more."""
    members: dict[UUID, Relocated] = {}
    asked = list(runs)
    while asked:
        for answer in await _leave(store, asked, to, by):
            members[answer.run] = answer
        found = await _goes_on_as(store, asked) + await _children_of(store, asked)
        asked = [one for one in dict.fromkeys(found) if one not in members]
    gone = {RelocationAnswer.LEAVING, RelocationAnswer.LEFT}
    refused = [one for one in members.values() if one.answer is RelocationAnswer.REFUSED]
    return [one for one in members.values() if one.answer in gone], refused


async def _goes_on_as(store: Store, runs: Sequence[UUID]) -> list[UUID]:
    """Return the present runs of the chains of these runs."""
    found: list[UUID] = []
    for at in range(0, len(runs), FOLLOWED_MAX):
        # Only the present run is asked for, and no row of the trail.
        pairs = [(run, BIG_MAX) for run in runs[at : at + FOLLOWED_MAX]]
        found += [one.present for one in await store.follow(pairs, ANY) if one.present is not None]
    return found


async def _children_of(store: Store, runs: Sequence[UUID]) -> list[UUID]:
    """Return the children of these runs, with the first and the present run of their chains."""
    found: dict[UUID, None] = {}
    for at in range(0, len(runs), EXPORT_MAX):
        for parent in await store.children(runs[at : at + EXPORT_MAX], ANY, 1):
            async for page in pages_of(store, replace(ALL, parent=parent.run)):
                for child in page:
                    found |= dict.fromkeys((child.chain, child.present, child.id))
    return list(found)


async def _leave(store: Store, runs: Sequence[UUID], to: str, by: str) -> list[Relocated]:
    answers: dict[UUID, Relocated] = {}
    for at in range(0, len(runs), EXPORT_MAX):
        left = list(runs[at : at + EXPORT_MAX])
        for _ in range(TRIES):
            said = await store.leave(left, to, by)
            answers |= {one.run: one for one in said}
            left = [one.run for one in said if one.answer is RelocationAnswer.BUSY]
            if not left:
                break
            await store.deliver()
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            why = answers[left[0]].reason
            raise Unavailable(f"run {left[0]} is busy all the time: {why}; try again later")
    return [answers[run] for run in runs]


async def away(store: Store, where: RunFilter | None, to: str | None = None) -> AsyncIterator[Sequence[Run]]:
    """Yield pages of open runs that were stopped, newest first: those that are leaving, and those that have
    left. `to`: only for this target."""
    wanted = ALL if where is None else RunFilter(tenant=where.tenant, type=where.type, values=False)
    async for page in pages_of(store, replace(wanted, statuses=(Status.CANCELLED,))):
        found = [run for run in page if is_away(run) and (to is None or goes_to(run) == to)]
        if found:
            yield found


async def bring_back(store: Store, departures: Sequence[Departure], by: str = MOVE) -> list[Departure]:
    """Let a group go on at the source, children first. Return the departures that are undone by this."""
    back: list[Departure] = []
    order = list(reversed(departures))
    for at in range(0, len(order), EXPORT_MAX):
        said = await store.come_back(order[at : at + EXPORT_MAX], by)
        back += [(one.run, one.departure) for one in said if one.departure]
    await store.deliver()
    return back


async def undo(
    store: Store, where: RunFilter | None, is_target: Callable[[str], bool], by: str = MOVE
) -> list[Departure]:
    """Let all runs that are leaving for such a target go on at the source. A run stays when its parent has
    left. Return the departures that are undone."""
    back: list[Departure] = []
    async for group in groups_of(store, _on_the_way(store, where, MOVING, is_target), apart=True):
        first = await run_of(store, group[0])
        if first is None or not await _top_has_left(store, first):
            back += await bring_back(store, await _departures(store, group, is_target), by)
    return back


async def followers(store: Store, runs: Iterable[UUID]) -> set[UUID]:
    """Return those of these runs that are leaving, and must follow their family: its first run has left."""
    found: set[UUID] = set()
    known: dict[UUID, bool] = {}  # by parent, or by first run of a chain
    for one in runs:
        run = await run_of(store, one)
        if run is None or run.pause_asked_by != MOVING:
            continue
        before = run.parent or run.chain
        if before not in known:
            known[before] = await _top_has_left(store, run)
        if known[before]:
            found.add(one)
    return found


async def _top_has_left(store: Store, run: Run) -> bool:
    """Return True when the first run of a family has left for good."""
    top = await top_of(store, run)
    first = top if top.chain == top.id else await run_of(store, top.chain)
    return any(one is not None and one.pause_asked_by == MOVED and is_away(one) for one in (top, first))


async def any_has_left(store: Store, is_target: Callable[[str], bool]) -> bool:
    """Return True when a run has left for such a target, and the source does not know yet that it goes on
    there."""
    async for page in _on_the_way(store, None, MOVED, is_target):
        for run in page:
            if not went_on(run) and is_target(goes_to(run) or await _noted_target(store, run)):
                return True
    return False


async def _departures(
    store: Store, runs: Sequence[UUID], is_target: Callable[[str], bool]
) -> list[Departure]:
    """Return those of these runs that are leaving for such a target, with the numbers of their departures."""
    found: list[Departure] = []
    for one in runs:
        run = await run_of(store, one)
        if run is not None and run.pause_asked_by == MOVING and is_away(run):
            to = goes_to(run) or await _noted_target(store, run)
            found += [(one, run.fence)] if is_target(to) else []
    return found


async def _noted_target(store: Store, run: Run) -> str:
    """Return the target of a run that is leaving, as its trail says it: an ended run has no error that
    does."""
    if run.deleted_at is None:
        rows = await store.trail(run.id, ANY, ("leaving",))
        return str(rows[-1].data.get("to", "")) if rows else ""
    to = ""
    async for part in runs_of(store, [run.id]):  # `trail` has nothing of a deleted run
        for note in part.notes:
            to = str(decode_untyped(note.data).get("to", "")) if note.type == "leaving" else to
    return to


async def _on_the_way(
    store: Store, where: RunFilter | None, how_far: str, is_target: Callable[[str], bool]
) -> AsyncIterator[Sequence[Run]]:
    """Yield pages of runs that are leaving (MOVING), or have left (MOVED): those that were open for such a
    target, and all those that had ended."""
    wanted = ALL if where is None else RunFilter(tenant=where.tenant, type=where.type, values=False)
    async for page in pages_of(store, replace(wanted, statuses=tuple(sorted(FINAL)))):
        some = [run for run in page if run.pause_asked_by == how_far]
        found = [run for run in some if (to := goes_to(run)) is None or is_target(to)]
        if found:
            yield found
