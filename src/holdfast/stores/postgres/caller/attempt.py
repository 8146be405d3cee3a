"""One attempt of a transaction step, on a connection of the store or of the user's engine."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from math import isfinite
from typing import Any, NoReturn

import msgspec

from holdfast.errors import HoldfastError, StepTimeout, StoreError, Unavailable, UsageError
from holdfast.records import Item, Verdict
from holdfast.stores.items import brings_news, check_batch
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.errors import COLLISIONS, OURS, error_parts, refusal, translated
from holdfast.stores.postgres.verbs import fast_rows
from holdfast.stores.postgres.verbs.calls import item_json, json_text, seconds_for
from holdfast.stores.postgres.verbs.durations import finite_item

from .connection import NOT_BEGUN, CallerConnection, caller_error, coded, wrong_database
from .guarded_session import INSIDE, inside, wrong

_FAILED = "25P02"


class Undone(Exception):
    """The transaction must be rolled back, and this is the verdict; None: the rest of the item must be sent
    again.
    """

    def __init__(self, verdict: Verdict | None) -> None:
        super().__init__()
        self.verdict = verdict


class WrongDatabase(Exception):
    """The connection is on another database than the store, or the server was restarted."""

    def __init__(self, database: str, address: Address) -> None:
        super().__init__(database)
        self.error = wrong_database(database, address)


class _Begun(msgspec.Struct):
    commit_guard: str = ""
    verdict: Verdict | None = None
    wrong_database: str | None = None


class _Ended(msgspec.Struct):
    verdict: Verdict | None = None
    stays: bool = False


_BEGUN = msgspec.json.Decoder(_Begun)
_ENDED = msgspec.json.Decoder(_Ended)


class TransactionAttempt:
    """A function of the user on its way into a commit. Used once."""

    def __init__(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float,
        address: Address,
        database_id: str | None = None,
        *,
        own: bool = False,
    ) -> None:
        self.item, self._work, self._limit = item, work, limit_seconds
        self._address, self._database_id, self._own = address, database_id, own  # own: on the user's engine
        self._commit_guard, self.more_seconds = "", 0.0  # extra time for large items
        self._phase = "begin"
        self._given_up = self._over = False  # for a function on a thread
        self._raised: BaseException | None = None
        self._lost = False  # the connection, when the function raised
        self._undone: Undone | WrongDatabase | None = None
        self._turn = threading.Lock()

    # -- calls of begin_work and end_work ------------------------------------------------------

    def beginning(self) -> str:
        limit = self._limit if isfinite(self._limit) else None
        item = item_json(finite_item(self.item))
        return json_text({"database_id": self._database_id, "item": item, "limit_seconds": limit})

    def begun(self, answer: str) -> None:
        """Read the answer of `begin_work`. Raises when the item is known already, or the function must not be
        called.
        """
        found = _BEGUN.decode(answer)
        if found.wrong_database is not None:
            self._undo(WrongDatabase(found.wrong_database, self._address))
        if found.verdict is not None:
            self._undo(Undone(found.verdict))
        self._commit_guard, self._phase = found.commit_guard, "work"

    def ending(self) -> str:
        item, news = finite_item(self.item), brings_news((self.item,))
        rows = fast_rows.sort((item,)).checkpoints or None
        text = json_text(
            {"commit_guard": self._commit_guard, "item": item_json(item), "fast_rows": rows, "news": news}
        )
        self.more_seconds = seconds_for(text)
        return text

    def end_seconds(self, least: float) -> str | None:
        """Return the server's time limit for `end_work` in milliseconds; None when the present limit is long
        enough.
        """
        seconds = least + self.more_seconds
        return None if seconds <= self._limit + 1 else str(int(seconds * 1000))

    def ended(self, answer: str) -> Verdict:
        """Return the verdict, which counts once the transaction is committed."""
        found = _ENDED.decode(answer)
        if not found.stays or found.verdict is None:
            self._undo(Undone(found.verdict))
        self._phase = "commit"
        return found.verdict

    def _undo(self, undone: Undone | WrongDatabase) -> NoReturn:
        self._undone = undone
        raise undone

    # -- the user's function -------------------------------------------------------------------

    async def perform(self, given: Any, caller: CallerConnection) -> None:
        """Call the function on the event loop."""
        limit, token = asyncio.timeout(self._limit), INSIDE.set(inside(self._address))
        until = time.monotonic() + self._limit
        try:
            async with limit:
                made = self._work(given)
                made = await made if inspect.isawaitable(made) else self._accept_sync(made)
            self._accept(made, until)
        except BaseException as error:
            if isinstance(error, TimeoutError) and limit.expired():
                self._raised = self._too_long()
                raise self._raised from None
            self._raised, self._lost = error, caller.is_lost()
            raise
        finally:
            INSIDE.reset(token)
        self._end(caller)

    def perform_sync(self, given: Any, caller: CallerConnection) -> None:
        """Call the function on a thread, where it cannot be stopped: see `give_up`."""
        token = INSIDE.set(inside(self._address))
        until = time.monotonic() + self._limit
        try:
            self._refuse_late()
            made = self._work(given)
            _refuse_awaitable(made)
            self._refuse_late(over=True)
            self._accept(made, until)
        except BaseException as error:
            self._raised, self._lost = error, caller.is_lost()
            raise
        finally:
            INSIDE.reset(token)
        self._end(caller)

    def _end(self, caller: CallerConnection) -> None:
        self._phase = "end"
        if caller.is_lost():
            raise Unavailable(f"{self._address.shown}: the connection of a transaction was lost")

    def _accept_sync(self, made: Item) -> Item:
        if self._own:
            raise UsageError(
                "the function of a transaction is sync, and its engine is async: write `async def`"
            )
        return made

    def _accept(self, made: Item, until: float) -> None:
        if time.monotonic() > until:
            raise self._too_long()
        check_batch("item", (made,))
        self.item = made

    def _too_long(self) -> StepTimeout:
        return StepTimeout(
            f"the function of a transaction took longer than {self._limit:g} s, and was rolled back: do what "
            "takes long in a step before it, or give `limit=`"
        )

    def give_up(self) -> StepTimeout | None:
        """Give up, from outside: what the function still does is rolled back. None: it has ended in time."""
        with self._turn:
            if self._over:
                return None
            self._given_up = True
        return self._too_long()

    def _refuse_late(self, *, over: bool = False) -> None:
        with self._turn:
            if self._given_up:
                raise self._too_long()
            self._over = over

    # -- errors --------------------------------------------------------------------------------

    def refuse(self, error: BaseException) -> NoReturn:
        """Raise the outcome of an attempt that failed. A rollback may have raised another error, which does
        not count.
        """
        outcome: BaseException = error
        if self._undone is not None:
            outcome = self._undone
        elif self._raised is not None:
            outcome = self._translated_raised(self._raised)
        elif isinstance(error, Exception):
            outcome = self._translated(error)
        if outcome is error or outcome is self._undone or outcome is self._raised:
            raise outcome
        raise outcome from error

    def _translated_raised(self, raised: BaseException) -> BaseException:
        cause = coded(raised)
        code, message, detail = error_parts(cause) if cause is not None else ("", "", "")
        if code.startswith(OURS) and detail and not isinstance(raised, HoldfastError):
            return refusal(message, detail)
        gone = self._lost or code.startswith(("08", "57P"))
        if gone and isinstance(raised, Exception) and not isinstance(raised, HoldfastError):
            return Unavailable(f"{self._address.shown}: the connection of a transaction was lost ({raised})")
        return raised

    def _translated(self, error: Exception) -> HoldfastError:
        cause = coded(error)
        code, message, _ = error_parts(cause) if cause is not None else ("", "", "")
        if self._phase == "end" and code == _FAILED:
            return wrong("goes on after a statement of its own has failed: put that in a savepoint")
        if self._phase == "end" and str(error).startswith(NOT_BEGUN):
            return wrong("ends its transaction")
        if self._phase == "end" and code and code not in COLLISIONS:
            return translated(cause or error, self._address.shown)
        if self._phase == "commit" and code and not code.startswith((OURS, "08", "40", "53", "57", "58")):
            return StoreError(
                f"{self._address.shown}: the commit of a transaction was refused, and nothing of it stays: "
                f"{message}"
            )
        return caller_error(error, self._address)


def _refuse_awaitable(made: Any) -> None:
    if inspect.isawaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        raise UsageError("the function of a transaction is async, and its engine is not: write `def`")
