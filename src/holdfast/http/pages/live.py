"""Live pages: one reader for each distinct view in the process, shared by all who look at it.

A view is an address with the tenant and the scopes of the visitor. Its reader calls the handler of the page
once a second, and wakes its followers if a part differs. It ends with its last follower.

Readers take turns, READERS at a time. A reader counts the wait for its turn as a part of its work, and rests
four times as long. So all of them together leave time for other requests, however many views there are: with
many views each of them is read less often.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import api_keys
from holdfast.errors import StoreError
from holdfast.http.problems import Code, Refusal

from .current import Visitor
from .pagecall import PageCall

if TYPE_CHECKING:
    from holdfast.http.server import Api

log = logging.getLogger("holdfast.http")

READ_SECONDS = 1.0
SHARE = 5  # a view that is slow to read takes at most one of so many parts of the time
READERS = 2  # views that are read at once
VIEWS_MAX, VIEWS_PER_TENANT, VIEWS_PER_KEY = 500, 200, 100
_CSRF = f"csrf-{api_keys.make_secret()}"  # stands for the token of each follower

Parts = dict[str, str]


class Views:
    """The readers of one server process."""

    def __init__(self, api: Api, parts: Callable[[PageCall], Awaitable[Parts]]) -> None:
        self._api, self._parts = api, parts
        self._readers: dict[Any, _Reader] = {}
        self._turns = asyncio.Semaphore(READERS)
        self.reads = 0  # how often a handler was called
        self.seconds = READ_SECONDS

    async def follow(self, call: PageCall) -> AsyncIterator[bytes]:
        """Yield the parts of a page as events: all of them at first, then those that differ."""
        if not call.is_live:
            raise Refusal(Code.BAD_VALUE, "this view is not live")
        reader = self._joined(call)
        sent: Parts | None = None
        try:
            while not self._api.stopping:
                news, parts = reader.news, reader.parts
                if parts is not None and parts != sent:
                    yield _event(parts, sent).replace(_CSRF.encode(), call.csrf.encode())
                    sent = parts
                if not await reader.after(news):
                    if not self._api.stopping:  # otherwise the browser comes back to another server
                        yield b"event: end\ndata: {}\n\n"
                    return
        finally:
            self._left(reader, call.actor.key_id)

    def _joined(self, call: PageCall) -> _Reader:
        key = (call.place, call.actor.tenant, call.actor.scopes)
        reader, api_key = self._readers.get(key), call.actor.key_id
        if api_key and (reader is None or api_key not in reader.followers):
            self._check_key(api_key)
        if reader is None:
            self._check_room(call.actor.tenant)
            reader = self._readers[key] = _Reader(key)
            reader.task = asyncio.get_running_loop().create_task(self._read(reader, call))
        reader.followers[api_key] += 1
        return reader

    def _check_key(self, api_key: str) -> None:
        """Refuse one more view for a key that follows many: any field of the address makes another view."""
        if sum(api_key in one.followers for one in self._readers.values()) >= VIEWS_PER_KEY:
            detail = f"this key follows {VIEWS_PER_KEY} different views already"
            raise Refusal(Code.STREAMS_LIMIT, detail, retry_after_seconds=5)

    def _check_room(self, tenant: str) -> None:
        """Refuse a new view when there are too many. One tenant cannot take them all."""
        of_tenant = sum(key[1] == tenant for key in self._readers)
        if len(self._readers) >= VIEWS_MAX or of_tenant >= VIEWS_PER_TENANT:
            detail = f"{VIEWS_MAX} different views are followed already, or {VIEWS_PER_TENANT} of a tenant"
            raise Refusal(Code.STREAMS_LIMIT, detail, retry_after_seconds=5)

    def stop(self) -> None:
        """End all readers, and so the streams of their followers."""
        for reader in list(self._readers.values()):
            self._forget(reader)
            reader.end()

    def _left(self, reader: _Reader, api_key: str) -> None:
        reader.followers[api_key] -= 1
        if not reader.followers[api_key]:
            del reader.followers[api_key]
        if not reader.followers:
            self._forget(reader)

    def _forget(self, reader: _Reader) -> None:
        if self._readers.get(reader.key) is reader:
            del self._readers[reader.key]
        if reader.task is not None:
            reader.task.cancel()

    async def _read(self, reader: _Reader, first: PageCall) -> None:
        """Read the view again and again, until nobody follows it or it cannot be read."""
        visitor = Visitor(actor=first.actor, session="", csrf=_CSRF)
        world = self._api.world
        try:
            while True:
                began = world.monotonic()
                call = PageCall(self._api, first.settings, first.page, first.place, visitor, first.id)
                try:
                    async with self._turns:
                        self.reads += 1
                        parts = await self._parts(call)
                    if not call.is_live:
                        return
                    reader.show(parts)
                except StoreError as error:
                    log.warning("a live page could not be read: %s", error)
                except Refusal as refusal:
                    if refusal.code is not Code.STORE_UNAVAILABLE:
                        return  # the run was deleted, for example
                await asyncio.sleep(max(self.seconds, (world.monotonic() - began) * (SHARE - 1)))
        except Exception:
            log.exception("a live page failed")
        finally:
            reader.end()
            if self._readers.get(reader.key) is reader:
                del self._readers[reader.key]


class _Reader:
    """The last parts of one view, and its followers."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.followers: Counter[str] = Counter()  # by API key
        self.parts: Parts | None = None  # None: it was not read yet
        self.task: asyncio.Task[None] | None = None
        self.news = asyncio.Event()  # set, and replaced by a new one, when there are other parts
        self._has_ended = False

    def show(self, parts: Parts) -> None:
        """Take the parts as they are now; wake the followers if any differs."""
        if parts != self.parts:
            self.parts = parts
            self._wake()

    def end(self) -> None:
        """Tell the followers that there is nothing more."""
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    async def after(self, news: asyncio.Event) -> bool:
        """Wait for other parts than there were with this `news`; return False after the end."""
        if not self._has_ended:
            await news.wait()
        return not self._has_ended


def _event(parts: Parts, sent: Parts | None) -> bytes:
    """Return the event with the parts that differ from those that were sent, or with all of them at first:
    then a browser can tell which parts of its page are gone since it was loaded.
    """
    known = sent or {}
    changed = {id_: html for id_, html in parts.items() if known.get(id_) != html}
    gone = [id_ for id_ in known if id_ not in parts]
    return b"data: %s\n\n" % msgspec.json.encode({"parts": changed, "gone": gone, "all": sent is None})
