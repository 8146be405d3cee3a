"""transact: a checkpoint and what a function of the user's has written, in one commit.

Its connection is one of the store's own, apart from those that verbs use, or one of the user's own engine.
A commit whose outcome was not heard is asked for again: the item is known by then, or nothing stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from holdfast.contract import TRANSACTION_SECONDS, OwnEngine, Thread
from holdfast.errors import UsageError
from holdfast.records import Item, Verdict
from holdfast.records.moves import Checkpoint

from .calls import seconds_for
from .deeds import Deed, Elsewhere, Undone
from .errors import DRIVER
from .guests import Guest, Guests, guest, place_of, text
from .lending import Awaited, Plain, lender
from .lent import in_hands, refuse_inside

if TYPE_CHECKING:
    from .pools import Pool

ROLLBACK_SECONDS = 1.0
END_SECONDS = 6.0  # that the server has at least for `end_work`, which may wait 5 s for locks
MORE_TIME = (
    "select set_config('statement_timeout', t.ms, true) "
    "|| set_config('idle_in_transaction_session_timeout', t.ms, true) "
    "from (select cast($1 as text) as ms) as t"
)


class TransactRoom(Guests):
    """A part of the store."""

    call_seconds: float

    if TYPE_CHECKING:

        def _lending(self) -> Pool:
            """Sessions to be lent, of this event loop."""

        async def commit(self, batch: Sequence[Item]) -> list[Verdict]: ...

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        if not isinstance(item.move, Checkpoint):
            raise UsageError(f"a transaction is a checkpoint, no {item.move.verb}")
        refuse_inside(self.address)
        if on is None:
            deed = Deed(item, work, limit_seconds, self.address)
            return await self._verdict(deed, self._performed(deed, self._lent(deed)))
        old = None
        while True:
            place = self._place = self._place or await place_of(self.address)
            block = lender(on.engine)
            deed = Deed(item, work, limit_seconds, self.address, place, own=True)
            try:
                if isinstance(block, AbstractAsyncContextManager):
                    return await self._verdict(deed, self._performed(deed, block))
                return await self._verdict(deed, self._beside(deed, block, on.thread, limit_seconds))
            except Elsewhere as error:
                if old == place:
                    raise error.error from None
                old, self._place = place, None  # the server may have been started anew since it was asked

    async def _verdict(self, deed: Deed, performed: Awaitable[Verdict]) -> Verdict:
        try:
            return await performed
        except Undone as undone:
            # Its step was done before: what else the item brings is recorded, what the function did is not.
            return undone.verdict or (await self.commit((deed.item,)))[0]

    async def _performed(self, deed: Deed, block: Awaited) -> Verdict:
        try:
            async with block as given:
                who = guest(given)
                beginning = deed.beginning()
                who.seconds = self.call_seconds + seconds_for(beginning)
                async with asyncio.timeout(who.seconds):
                    deed.begun(text(await who.ask(self._guests_sql(who, "begin_work"), beginning)))
                with in_hands(given):
                    await deed.perform(given, who)
                ending = deed.ending()
                who.seconds = self.call_seconds + seconds_for(ending)
                async with asyncio.timeout(who.seconds):
                    if hasattr(given, "flush"):  # of a session: what it has not written yet
                        await given.flush()
                    if (seconds := deed.end_seconds(END_SECONDS)) is not None:
                        await who.ask(_more_time(who), seconds)
                    return deed.ended(text(await who.ask(self._guests_sql(who, "end_work"), ending)))
        except BaseException as error:  # noqa: BLE001 - told in our own words
            deed.refuse(error)

    async def _beside(self, deed: Deed, block: Plain, thread: Thread, limit_seconds: float) -> Verdict:
        """On a thread. Its time counts from when the function is called: for a thread it may wait long."""
        begun, loop = asyncio.Event(), asyncio.get_running_loop()
        tell = partial(loop.call_soon_threadsafe, begun.set)
        call = partial(self._performed_plain, deed, block, tell)
        errand: asyncio.Future[Verdict] = asyncio.ensure_future(thread(call))
        waiting = asyncio.ensure_future(begun.wait())
        try:
            both: set[asyncio.Future[Any]] = {errand, waiting}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({errand}, timeout=limit_seconds)
            if not errand.done() and (late := deed.give_up()) is not None:
                raise late
            return await errand
        finally:
            waiting.cancel()
            if not errand.done():
                deed.give_up()
                errand.cancel()

    def _performed_plain(self, deed: Deed, block: Plain, begun: Callable[[], object]) -> Verdict:
        try:
            with block as given:
                who = guest(given)
                deed.begun(text(who.ask(self._guests_sql(who, "begin_work"), deed.beginning())))
                begun()
                deed.perform_plain(given, who)
                if hasattr(given, "flush"):
                    given.flush()
                ending = deed.ending()
                if (seconds := deed.end_seconds(END_SECONDS)) is not None:
                    who.ask(_more_time(who), seconds)
                return deed.ended(text(who.ask(self._guests_sql(who, "end_work"), ending)))
        except BaseException as error:  # noqa: BLE001 - told in our own words
            deed.refuse(error)

    @asynccontextmanager
    async def _lent(self, deed: Deed) -> AsyncIterator[Any]:
        """A session of the store's own. Nothing that it cannot do in time is waited for."""
        async with self._lending().lent(self.call_seconds) as link:
            transaction = link.transaction()
            async with asyncio.timeout(self.call_seconds):
                await transaction.start()
            link.planned_at = -inf  # so that it is as new before anybody else has it
            try:
                yield link
            except BaseException:
                with suppress(*DRIVER):
                    async with asyncio.timeout(ROLLBACK_SECONDS):
                        await transaction.rollback()
                raise
            else:
                async with asyncio.timeout(self.call_seconds + deed.more_seconds):
                    await transaction.commit()
            finally:
                if link.changed:
                    link.abandon()


def _more_time(who: Guest) -> str:
    """The limits that `begin_work` set are those of the function, and this transaction's until it ends."""
    return MORE_TIME.replace("$1", who.place)
