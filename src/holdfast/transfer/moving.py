"""Move: runs from one store into another, while workers run at both ends.

What was done so far is in the two stores, and nowhere else: a move that was ended, or killed, is started
again. Each group of runs goes in these steps:

1. `leave` at the source: nobody executes them, and nothing changes them.
2. Events, then the runs, are written at the target, where they wait.
3. They are read again at the target, and compared by digest.
4. `left` at the source: from here on they cannot come back, and only these copies can go on.
5. `arrive` at the target: they go on there.
6. `went_on` at the source: the move of these runs is done, and a purge may remove them there.

Two movers may work on the same runs. The one whose `left` comes first decides which copy goes on. The other
one lets the same copy go on, and drops its own, if that is another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from holdfast.contract import EXPORT_MAX, Store
from holdfast.errors import Conflict, HoldfastError
from holdfast.machine.carrying import OTHER_CONTENT
from holdfast.records import Instant, Run, RunFilter, instant
from holdfast.records.transfer import (
    MOVE,
    MOVED,
    NO_COPIES,
    CarriedEvent,
    Copies,
    Departure,
    ImportAnswer,
    Imported,
    Relocated,
    RelocationAnswer,
)

from .comparing import Content
from .families import TOGETHER, family_of, groups_of, pages_of, run_of
from .late_events import SLACK
from .leaving import away, bring_back, followers, stop, undo
from .move_reports import REFUSED_MAX, MovePreview, MoveReport, UndoneMove
from .places import goes_to, is_away, same_url, went_on
from .reading import events_of, runs_of
from .resealing import Resealing
from .settings import (
    hand_over_schedules,
    keep,
    pause_schedules,
    paused_for,
    resume_schedules,
    settings_of,
)
from .writing import Writing

PASSES = 20  # passes over the source: runs may be started while others move
YEARS = 365 * 86400.0
STAYS = "it waits on its way, because its parent has left: mend that at the target, and start the move again"
STILL_THERE = "it had left the target before, and is still there as moved: delete and purge it there first"

Progress = Callable[[int], None]


class Mover:
    """Moves runs from one store to another. `to` names the target, for people; `pace`: runs a second."""

    def __init__(
        self,
        source: Store,
        target: Store,
        where: RunFilter | None = None,
        *,
        to: str,
        by: str = MOVE,
        pace: float | None = None,
        reseal: bool = False,
    ) -> None:
        self._seals = Resealing(source, target, anew=reseal)
        self._source, self._target = self._seals.source, self._seals.target
        self._where, self._to, self._by, self._pace = where, to, by, pace
        self._writing = Writing(self._target, by, hold=False)
        self._last_event = 0
        self._since: Instant = 0  # when the first run left for the target
        self._began = 0.0
        self._refused: set[UUID] = set()
        self._missing: set[UUID] = set()
        self.report = MoveReport()

    async def preview(self) -> MovePreview:
        """Count the runs that would move. Nothing is changed."""
        found = MovePreview(by_status={})
        async for page in pages_of(self._source, self._where):
            for run in page:
                if not is_away(run):
                    found.by_status[run.status] = found.by_status.get(run.status, 0) + 1
        async for page in away(self._source, self._where, self._to):
            found.on_the_way += sum(run.pause_asked_by != MOVED for run in page)
        return found

    async def run(self, progress: Progress | None = None) -> MoveReport:
        """Move everything that matches. Go on with what an earlier move has begun."""
        self._began = _seconds()
        whole = self._where is None
        self._since = await self._source.now()
        async for page in away(self._source, None, self._to):
            self._since = min([self._since, *(instant(run.finished_at) for run in page if run.finished_at)])
        if whole:
            await self._carry_settings()
        await self._carry_events()
        await self._groups(self._on_the_way(), progress)
        await self._groups(self._candidates(first=True), progress)
        for _ in range(PASSES):
            before = self.report.moved, len(self._refused)
            await self._groups(self._candidates(first=False), progress)
            if (self.report.moved, len(self._refused)) == before:
                break
        # An event with a lower number may have been committed after a higher one.
        self._last_event = 0
        await self._carry_events()
        await self._target.deliver()
        if whole:
            self.report.schedules = await hand_over_schedules(
                self._source, self._target, paused_for(self._to)
            )
        self.report.seconds = _seconds() - self._began
        return self.report

    async def undo(
        self, *, lost: bool = False, opened: Callable[[], Awaitable[None]] | None = None
    ) -> UndoneMove:
        """Let all runs that are leaving for the target go on at the source, then remove their copies.
        Schedules go on at the source too, unless the target has them already. Runs that leave for the same
        URL of another machine come back too: none of them has left for good.

        The target is needed only for copies and schedules. lost: it does not come back, so it is not asked.
        `opened` opens it."""
        back = await undo(self._source, self._where, lambda to: same_url(to, self._to), self._by)
        undone = UndoneMove(runs=[run for run, _ in back], left=await self._left_for_good())
        try:
            if opened is not None and not lost:
                await opened()
            if not lost:
                await self._drop(back)
            if self._where is None:
                there = None if lost else self._target
                await resume_schedules(self._source, paused_for(self._to), unless_at=there)
        except HoldfastError as error:
            undone.note = (
                f"the target cannot be asked ({error}): copies of these runs may wait there, and schedules "
                "stay paused here; undo again when it can be reached, or say that it is lost"
            )
        return undone

    async def _left_for_good(self) -> int:
        """Count the runs that have left for the target, and have not gone on there yet."""
        left = 0
        async for page in away(self._source, self._where):
            some = [run for run in page if run.pause_asked_by == MOVED and not went_on(run)]
            left += sum(same_url(goes_to(run) or "", self._to) for run in some)
        return left

    async def _drop(self, departures: Sequence[Departure], copies: Copies = NO_COPIES) -> list[Relocated]:
        """Remove copies at the target that wait for a release which does not come. `copies`: only these."""
        answers: list[Relocated] = []
        for at in range(0, len(departures), EXPORT_MAX):
            answers += await self._target.drop_arrived(departures[at : at + EXPORT_MAX], self._by, copies)
        return answers

    async def _carry_settings(self) -> None:
        await pause_schedules(self._source, paused_for(self._to))
        async for setting in settings_of(self._source):
            why = await keep(self._target, self._seals.setting(setting))
            if why is not None and len(self.report.notes) < REFUSED_MAX:
                self.report.notes.append(why)

    async def _on_the_way(self) -> AsyncIterator[Sequence[Run]]:
        """Yield pages of runs that an earlier move has stopped, and that may not have arrived."""
        async for page in away(self._source, self._where, self._to):
            if found := [run for run in page if not went_on(run)]:
                yield found

    async def _candidates(self, *, first: bool) -> AsyncIterator[Sequence[Run]]:
        """Yield pages of runs that match. first: also those that have left, and may not have arrived."""
        async for page in pages_of(self._source, self._where):
            found = [run for run in page if self._is_wanted(run, first=first)]
            if found:
                yield found

    def _is_wanted(self, run: Run, *, first: bool) -> bool:
        if run.id in self._refused or went_on(run):
            return False
        if not is_away(run):
            return True
        to = goes_to(run)
        if first and to not in {None, self._to} and run.pause_asked_by != MOVED:
            assert to is not None
            self.report.elsewhere[to] = self.report.elsewhere.get(to, 0) + 1
        return to in {None, self._to} and (first or run.pause_asked_by != MOVED)

    async def _groups(self, pages: AsyncIterator[Sequence[Run]], progress: Progress | None) -> None:
        most = TOGETHER if self._pace is None else max(1, min(TOGETHER, int(self._pace / 4)))
        async for group in groups_of(self._source, pages, most):
            await self._move(group)
            if progress is not None:
                progress(self.report.moved)
            await self._keep_pace()

    async def _keep_pace(self) -> None:
        if self._pace:
            ahead = self.report.moved / self._pace - (_seconds() - self._began)
            if ahead > 0:
                await asyncio.sleep(ahead)

    async def _move(self, group: Sequence[UUID]) -> None:
        stopped, refused = await stop(self._source, group, self._to, self._by)
        answers = [one for one in stopped if one.answer is RelocationAnswer.LEAVING]
        leaving = {one.run: one.departure for one in answers}
        # Runs that an earlier move has recorded as left, but perhaps not released.
        gone = [one for one in stopped if one not in answers and one.to == self._to]
        failed = {one.run: one.reason for one in refused}
        copies: dict[UUID, int] = {}
        if leaving and not failed:
            await self._carry_events()
            failed, copies = await self._carry(leaving)
        if failed:
            await self._give_up(leaving, failed)
            leaving = {}
        await self._hand_over(leaving, copies, gone)

    async def _carry_events(self) -> None:
        """Carry the events that were recorded since the last time."""
        async for page in events_of(self._source, after=self._last_event):
            await self._writing.events([self._seals.event(self._to_deliver(event)) for event in page])
            self._last_event = page[-1].seq
            self.report.events = max(self.report.events, self._writing.events_written)

    def _to_deliver(self, event: CarriedEvent) -> CarriedEvent:
        """Return an event as it is written at the target. The source may have delivered it to nobody, because
        its run had left: so the target delivers it. It may have been recorded before that, and committed
        after it."""
        return replace(event, delivered=False) if event.at >= self._since - SLACK else event

    async def _carry(self, departures: Mapping[UUID, int]) -> tuple[dict[UUID, str], dict[UUID, int]]:
        """Write these runs at the target, and compare. Return those that failed, with the reason; and the
        copies that wait there."""
        runs = list(departures)
        contents, answers = await self._write(runs)
        stale = [one.run for one in answers if one.reason == OTHER_CONTENT]
        if stale and await self._drop_stale([(run, departures[run] - 1) for run in stale]):
            # The events that were addressed to the copies are gone with them.
            self._last_event = 0
            await self._carry_events()
            more, again = await self._write(stale)
            contents |= more
            answers = [one for one in answers if one.run not in set(stale)] + again
        failed = {
            one.run: await self._why_refused(one) for one in answers if one.answer is ImportAnswer.REFUSED
        }
        copies: dict[UUID, int] = {}
        if not failed:
            found, copies = await self._contents(runs)
            failed = {
                run: "it is not at the target as it was read at the source: its digest differs"
                for run in runs
                if contents.get(run) != found.get(run)
            }
            self.report.verified += 0 if failed else len(runs)
        return failed, copies

    async def _why_refused(self, one: Imported) -> str:
        """Return why the target refuses a run, and how to mend it."""
        there = await run_of(self._target, one.run) if one.reason == OTHER_CONTENT else None
        has_left = there is not None and is_away(there) and there.pause_asked_by == MOVED
        return STILL_THERE if has_left else one.reason

    async def _write(self, runs: Sequence[UUID]) -> tuple[dict[UUID, str], list[Imported]]:
        contents: dict[UUID, str] = {}
        answers: list[Imported] = []
        content = Content()
        async for part in runs_of(self._source, runs):
            content = Content() if part.is_first else content
            content.add(self._seals.opened(part))
            if part.row is not None:
                contents[part.id] = content.text
            answers += await self._writing.run(self._seals.part(part))
        return contents, answers + await self._writing.flush()

    async def _contents(self, runs: Sequence[UUID]) -> tuple[dict[UUID, str], dict[UUID, int]]:
        """Return the digests of runs as they are at the target, and their fences there."""
        found: dict[UUID, str] = {}
        fences: dict[UUID, int] = {}
        content = Content()
        async for part in runs_of(self._target, runs):
            content = Content() if part.is_first else content
            content.add(self._seals.opened_there(part))
            if part.row is not None:
                found[part.id], fences[part.id] = content.text, part.row.fence
        return found, fences

    async def _drop_stale(self, departures: Sequence[Departure]) -> bool:
        """Remove copies at the target that an earlier move has left there, and that came back since."""
        answers = await self._drop(departures)
        if not any(one.answer is RelocationAnswer.DROPPED for one in answers):
            return False
        # Only what was just dropped is that old.
        while (await self._target.purge(100 * YEARS, 30 * YEARS)).runs:
            pass
        return True

    async def _give_up(self, leaving: Mapping[UUID, int], failed: dict[UUID, str]) -> None:
        """Let a group go on at the source that the target cannot take as a whole. Those of it that are not of
        the family of a run that failed come in the next pass. A run whose parent has left stays on its way: a
        family does not go on at two stores."""
        stay = await followers(self._source, leaving)
        comes = [one for one in leaving.items() if one[0] not in stay]
        back = await bring_back(self._source, comes, self._by)
        await self._drop(back)
        came_back = {run for run, _ in back}
        for run, reason in failed.items():
            # A run that was stopped and does not come back was moved by somebody else meanwhile.
            if run in came_back or run in stay or run not in leaving:
                self._refuse(run, f"{reason}; {STAYS}" if run in stay else reason)
                found = await run_of(self._source, run)
                self._refused.update([run] if found is None else await family_of(self._source, found))

    async def _hand_over(
        self, leaving: Mapping[UUID, int], copies: Copies, gone: Sequence[Relocated]
    ) -> None:
        """Record at the source that runs have left, parents first; then let them go on, children first.
        `copies`: those that wait at the target. `gone`: runs that an earlier move has recorded as left."""
        departures = list(leaving.items())
        said: list[Relocated] = []
        for at in range(0, len(departures), EXPORT_MAX):
            said += await self._source.left(departures[at : at + EXPORT_MAX], self._by, copies)
        left = [one for one in said if one.answer in {RelocationAnswer.LEFT, RelocationAnswer.WENT_ON}]
        ours = {one.run for one in left if one.copy == copies[one.run]}
        await self._drop([pair for pair in departures if pair[0] not in ours], copies)
        # Parents are recorded first, so those that an earlier move has recorded come last.
        waiting = [one for one in reversed(left) if one.answer is RelocationAnswer.LEFT]
        await self._let_go_on([*waiting, *reversed(gone)], ours)
        self.report.moved += len(ours)
        stays = [one for one in said if one not in left]
        if stays:
            raise Conflict(
                f"run {stays[0].run} does not leave any more ({stays[0].reason or stays[0].answer}): "
                "somebody has undone the move; the others of its group have moved; start it again"
            )

    async def _let_go_on(self, runs: Sequence[Relocated], ours: Collection[UUID]) -> None:
        """Let runs go on at the target that the source has recorded as left, and record that they do. `ours`:
        those whose copy this move has brought, or has found there as it had read it."""
        for at in range(0, len(runs), EXPORT_MAX):
            page = {one.run: one for one in runs[at : at + EXPORT_MAX]}
            pairs = [(run, one.departure) for run, one in page.items()]
            copies = {run: one.copy for run, one in page.items()}
            here: list[Departure] = []
            for one in await self._target.arrive(pairs, self._by, copies):
                if one.answer is RelocationAnswer.HERE:
                    here.append((one.run, page[one.run].departure))
                elif one.run in ours:
                    self._refuse(one.run, f"it has left, and the target does not let it go on: {_why(one)}")
                else:
                    self._miss(one)
            await self._source.went_on(here, self._by)

    def _miss(self, one: Relocated) -> None:
        if one.run not in self._missing:
            self._missing.add(one.run)
            if len(self.report.missing) < REFUSED_MAX:
                reason = (
                    f"it has left, and is not at the target ({_why(one)}): it ended and was purged there, "
                    "or somebody has deleted it; delete it at the source when you know"
                )
                self.report.missing.append(Imported(one.run, ImportAnswer.REFUSED, reason))

    def _refuse(self, run: UUID, reason: str) -> None:
        if run not in self._refused:
            self._refused.add(run)
            self.report.refused_runs += 1
            if len(self.report.refused) < REFUSED_MAX:
                self.report.refused.append(Imported(run, ImportAnswer.REFUSED, reason))


def _why(one: Relocated) -> str:
    return one.reason or f"it is {one.answer} there"


def _seconds() -> float:
    return asyncio.get_running_loop().time()
