"""The verbs of an operator that carry runs to another store: export, import and move."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec.structs import replace

from holdfast.arguments import check_by
from holdfast.contract import Store
from holdfast.errors import UsageError
from holdfast.records import ANY, OWN, RunFilter
from holdfast.records.transfer import IMPORT, MOVE
from holdfast.transfer import receipts
from holdfast.transfer.departing import MoveExporter
from holdfast.transfer.exporting import Exporter, ExportReport, stored
from holdfast.transfer.importing import Importer, ImportReport
from holdfast.transfer.lines import file_errors
from holdfast.transfer.move_reports import MovePreview, MoveReport, UndoneMove
from holdfast.transfer.moving import Mover
from holdfast.transfer.places import shown_place, target_of
from holdfast.transfer.receipts import HandOver
from holdfast.world import World


class TransferVerbs:
    """The verbs; a part of `StoreClient`."""

    store: Store

    if TYPE_CHECKING:
        world: World

        async def _opened(self) -> None: ...

    async def export(
        self,
        path: str | PathLike[str],
        where: RunFilter | None = None,
        *,
        move: bool = False,
        mask: bool = False,
        resume: bool = False,
        by: str = MOVE,
        progress: Callable[[int], None] | None = None,
    ) -> ExportReport:
        """Write runs into a new file, which `import_` reads into any store. The runs are not changed.

        move: the runs leave this store. Each is stopped before it is written, with its family. Then
        `import_` at the target, `confirm_export` here and `release_import` there, in this order.
        `undo_export` lets them go on here, instead of `confirm_export`.

        where: only those that match; without it all runs, deleted ones too. Events that are kept,
        definitions, registry, limits and schedules come along. API keys, signing keys and webhooks do not.
        mask: hide params, results and payloads. resume: go on with a file whose export was ended. `progress`
        is called with the number of runs so far.
        """
        await self._opened()
        if move and mask:
            raise UsageError("runs that move are not masked: leave out one of the two")
        if move:
            exporter: Exporter = MoveExporter(
                self.store, of_all(where), str(self.world.uuid7()), check_by(by)
            )
        else:
            exporter = Exporter(self.store, of_all(where), mask=mask)
        with file_errors(Path(path)):
            return await exporter.write(Path(path), resume=resume, progress=progress)

    async def import_(
        self,
        path: str | PathLike[str],
        *,
        hold: bool = True,
        skip_damaged: bool = False,
        by: str = IMPORT,
        progress: Callable[[int], None] | None = None,
    ) -> ImportReport:
        """Read a file of `export` into the store. It may be ended and called again: a run that is there
        already is not written twice.

        Open runs are paused, and `resume` lets each go on where it was. Messages that are not sent are dead,
        and schedules are paused. hold=False: open runs go on at once, and messages are sent; use it only when
        the store that they come from has stopped for good. skip_damaged: leave out lines that are damaged;
        without it the first one ends the import.
        """
        await self._opened()
        importer = Importer(
            self.store, check_by(by), hold=hold, skip_damaged=skip_damaged, here=shown_place(self.store),
            receipt=str(self.world.uuid7()),
        )  # fmt: skip
        with file_errors(Path(path)):
            return await importer.read(Path(path), progress)

    async def confirm_export(self, path: str | PathLike[str], *, by: str = MOVE) -> HandOver:
        """Record that the runs of a file have left this store, after the target has imported it: it has
        written FILE.taken. Write FILE.left. Runs that the target has refused go on here."""
        await self._opened()
        with file_errors(Path(path)):
            return await receipts.confirm(stored(self.store), Path(path), check_by(by))

    async def release_import(self, path: str | PathLike[str], *, by: str = MOVE) -> HandOver:
        """Let the runs of a file go on here, after their source has recorded that they left: it has written
        FILE.left."""
        await self._opened()
        here = shown_place(self.store)
        with file_errors(Path(path)):
            return await receipts.release(stored(self.store), Path(path), here, check_by(by))

    async def undo_export(
        self, path: str | PathLike[str], *, lost: bool = False, by: str = MOVE
    ) -> list[UUID]:
        """Let the runs of a file go on here that have not left for good. Return them. Conflict:
        `confirm_export` was begun, and must be ended first. lost: the file is gone; do it for all runs that
        are on their way by a file, whichever it is."""
        await self._opened()
        with file_errors(Path(path)):
            return await receipts.take_back(stored(self.store), Path(path), check_by(by), lost=lost)

    async def move(
        self,
        target: TransferVerbs,
        where: RunFilter | None = None,
        *,
        pace: float | None = None,
        reseal: bool = False,
        by: str = MOVE,
        progress: Callable[[int], None] | None = None,
    ) -> MoveReport:
        """Move runs into the store of another app, while workers run at both ends. No step is executed at
        both. It may be ended, or killed, at any moment, and called again: it goes on.

        where: only those that match, with their families; without it all runs, with definitions, registry,
        limits and schedules. pace: at most so many runs a second. reseal: open the values of an encrypted
        store, and seal them with the keys of the target. At the source the runs are cancelled, with an error
        of kind `moved`. `progress` is called with the number of runs so far.
        """
        mover = await self._mover(target, where, pace=pace, reseal=reseal, by=by)
        return await mover.run(progress)

    async def preview_move(self, target: TransferVerbs, where: RunFilter | None = None) -> MovePreview:
        """Count the runs that `move` would take. Nothing is changed."""
        return await (await self._mover(target, where, touch=False)).preview()

    async def undo_move(
        self, target: TransferVerbs, where: RunFilter | None = None, *, lost: bool = False, by: str = MOVE
    ) -> UndoneMove:
        """Let the runs go on here that a move to this target has stopped, and that the target has not got.
        Return them. Runs come back also when the target cannot be reached: then a note says what is left to
        do there. lost: the target is gone for good, so schedules go on here too."""
        mover = await self._mover(target, where, by=by, touch=False)
        return await mover.undo(lost=lost, opened=target._opened)

    async def _mover(
        self,
        target: TransferVerbs,
        where: RunFilter | None,
        *,
        pace: float | None = None,
        reseal: bool | None = None,
        by: str = MOVE,
        touch: bool = True,
    ) -> Mover:
        if pace is not None and not pace > 0:
            raise UsageError(f"pace {pace!r}: give a number of runs a second, above 0")
        await self._opened()
        if touch:
            await target._opened()
        to = target_of(target.store)
        if to == target_of(self.store):
            raise UsageError(f"both stores are {shown_place(self.store)}: give two")
        return Mover(
            self.store, target.store, of_all(where), to=to, by=check_by(by), pace=pace,
            reseal=True if reseal is None else reseal,
        )  # fmt: skip


def of_all(where: RunFilter | None) -> RunFilter | None:
    """Return a filter that is for all tenants, unless it names one."""
    return replace(where, tenant=ANY) if where is not None and where.tenant is OWN else where
