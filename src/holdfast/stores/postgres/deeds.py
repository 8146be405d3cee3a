"""One try of a transaction, whoever's connection it is on: what is asked, and what came of it."""

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

from . import plain
from .address import Address
from .calls import item_json, json_text, seconds_for
from .errors import IN_THE_WAY, OURS, refusal, told, translated
from .guests import NOT_BEGUN, Guest, coded, elsewhere, told_guest
from .lent import INSIDE, inside, wrong
from .numbers import finite_item

_FAILED = "25P02"


class Undone(Exception):
    """It is to be rolled back, and the verdict is this; None: what the item brings besides is to be sent."""

    def __init__(self, verdict: Verdict | None) -> None:
        super().__init__()
        self.verdict = verdict


class Elsewhere(Exception):
    """The connection is on another database than the store, or the server was started anew."""

    def __init__(self, database: str, address: Address) -> None:
        super().__init__(database)
        self.error = elsewhere(database, address)


class _Begun(msgspec.Struct):
    pledge: str = ""
    verdict: Verdict | None = None
    elsewhere: str | None = None


class _Ended(msgspec.Struct):
    verdict: Verdict | None = None
    stays: bool = False


_BEGUN = msgspec.json.Decoder(_Begun)
_ENDED = msgspec.json.Decoder(_Ended)


class Deed:
    """A function of the user's, on its way into a commit. Used once."""

    def __init__(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float,
        address: Address,
        place: str | None = None,
        *,
        own: bool = False,
    ) -> None:
        self.item, self._work, self._limit = item, work, limit_seconds
        self._address, self._place, self._own = address, place, own  # own: the user's engine
        self._pledge, self.more_seconds = "", 0.0  # for what is large
        self._phase = "begin"
        self._given_up = self._over = False  # of a function on a thread
        self._raised: BaseException | None = None
        self._lost = False  # the server, when that was raised
        self._undone: Undone | Elsewhere | None = None
        self._turn = threading.Lock()

    # -- what is asked -------------------------------------------------------------------------

    def beginning(self) -> str:
        limit = self._limit if isfinite(self._limit) else None
        item = item_json(finite_item(self.item))
        return json_text({"place": self._place, "item": item, "limit_seconds": limit})

    def begun(self, answer: str) -> None:
        """Go on to the function, unless it is known already, or is not to be called."""
        found = _BEGUN.decode(answer)
        if found.elsewhere is not None:
            self._undo(Elsewhere(found.elsewhere, self._address))
        if found.verdict is not None:
            self._undo(Undone(found.verdict))
        self._pledge, self._phase = found.pledge, "work"

    def ending(self) -> str:
        item, news = finite_item(self.item), brings_news((self.item,))
        rows = plain.sort((item,)).checkpoints or None
        text = json_text({"pledge": self._pledge, "item": item_json(item), "plain": rows, "news": news})
        self.more_seconds = seconds_for(text)
        return text

    def end_seconds(self, least: float) -> str | None:
        """How long the server may take for the end, in its milliseconds; None if it has as long already."""
        seconds = least + self.more_seconds
        return None if seconds <= self._limit + 1 else str(int(seconds * 1000))

    def ended(self, answer: str) -> Verdict:
        """What will have been answered when it is committed."""
        found = _ENDED.decode(answer)
        if not found.stays or found.verdict is None:
            self._undo(Undone(found.verdict))
        self._phase = "commit"
        return found.verdict

    def _undo(self, undone: Undone | Elsewhere) -> NoReturn:
        self._undone = undone
        raise undone

    # -- the function --------------------------------------------------------------------------

    async def perform(self, given: Any, who: Guest) -> None:
        """On the event loop."""
        limit, token = asyncio.timeout(self._limit), INSIDE.set(inside(self._address))
        until = time.monotonic() + self._limit
        try:
            async with limit:
                made = self._work(given)
                made = await made if inspect.isawaitable(made) else self._accept_plain(made)
            self._made(made, until)
        except BaseException as error:
            if isinstance(error, TimeoutError) and limit.expired():
                self._raised = self._too_long()
                raise self._raised from None
            self._raised, self._lost = error, who.is_lost()
            raise
        finally:
            INSIDE.reset(token)
        self._end(who)

    def perform_plain(self, given: Any, who: Guest) -> None:
        """On a thread. It cannot be stopped there: see `give_up`."""
        token = INSIDE.set(inside(self._address))
        until = time.monotonic() + self._limit
        try:
            self._refuse_late()
            made = self._work(given)
            _refuse_awaitable(made)
            self._refuse_late(over=True)
            self._made(made, until)
        except BaseException as error:
            self._raised, self._lost = error, who.is_lost()
            raise
        finally:
            INSIDE.reset(token)
        self._end(who)

    def _end(self, who: Guest) -> None:
        self._phase = "end"
        if who.is_lost():
            raise Unavailable(f"{self._address.shown}: the connection of a transaction was lost")

    def _accept_plain(self, made: Item) -> Item:
        if self._own:
            raise UsageError(
                "the function of a transaction is plain, and its engine is async: write `async def`"
            )
        return made

    def _made(self, made: Item, until: float) -> None:
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
        """From outside: whatever the function still does is rolled back. None: it has ended in time."""
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

    # -- what came of it -----------------------------------------------------------------------

    def refuse(self, error: BaseException) -> NoReturn:
        """What came of a block that anything has left. Rolling back may have raised anew: not that counts."""
        outcome: BaseException = error
        if self._undone is not None:
            outcome = self._undone
        elif self._raised is not None:
            outcome = self._told_raised(self._raised)
        elif isinstance(error, Exception):
            outcome = self._told(error)
        if outcome is error or outcome is self._undone or outcome is self._raised:
            raise outcome
        raise outcome from error

    def _told_raised(self, raised: BaseException) -> BaseException:
        cause = coded(raised)
        code, message, detail = told(cause) if cause is not None else ("", "", "")
        if code.startswith(OURS) and detail and not isinstance(raised, HoldfastError):
            return refusal(message, detail)
        gone = self._lost or code.startswith(("08", "57P"))
        if gone and isinstance(raised, Exception) and not isinstance(raised, HoldfastError):
            return Unavailable(f"{self._address.shown}: the connection of a transaction was lost ({raised})")
        return raised

    def _told(self, error: Exception) -> HoldfastError:
        cause = coded(error)
        code, message, _ = told(cause) if cause is not None else ("", "", "")
        if self._phase == "end" and code == _FAILED:
            return wrong("goes on after a statement of its own has failed: put that in a savepoint")
        if self._phase == "end" and str(error).startswith(NOT_BEGUN):
            return wrong("ends its transaction")
        if self._phase == "end" and code and code not in IN_THE_WAY:
            return translated(cause or error, self._address.shown)
        if self._phase == "commit" and code and not code.startswith((OURS, "08", "40", "53", "57", "58")):
            return StoreError(
                f"{self._address.shown}: the commit of a transaction was refused, and nothing of it stays: "
                f"{message}"
            )
        return told_guest(error, self._address)


def _refuse_awaitable(made: Any) -> None:
    if inspect.isawaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        raise UsageError("the function of a transaction is async, and its engine is not: write `def`")
