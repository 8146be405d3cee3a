"""Subscriptions: the rows that were read ahead for one subscriber, in order, and its place in the trail.

A subscription is in one of two states. While it is behind, it reads its own pages of the trail. When it has
read all that was there, it is live: the shared reader gives it the rows. A subscriber that is too slow for
the reader falls behind again. Its place is the same in both states, so no row is lost and none comes twice.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

from holdfast.arguments import BIG_MAX
from holdfast.contract import Store
from holdfast.errors import UnknownRun
from holdfast.lifecycle import FINAL
from holdfast.records import Followed, Tenant, TrailEntry, tenant_name
from holdfast.records.sizes import entry_bytes

from .news import Closed, End, Ended, Gone

T = TypeVar("T")

BUFFER_ROWS, BUFFER_BYTES = 1000, 256 * 1024  # rows that the reader reads ahead for one subscriber
BUFFERS_BYTES = 64 * 1024 * 1024  # the same for all subscribers together
PAGE_ROWS, PAGE_BYTES = 1000, 256 * 1024  # a page that a subscriber reads itself
SMALL_PAGE_BYTES = 8 * 1024  # the same while half of BUFFERS_BYTES is taken


class Page(NamedTuple):
    """Rows of the trail, the place after them, and the end, if nothing can come after them."""

    entries: Sequence[TrailEntry]
    seq: int
    more: bool
    end: End | None


class Hub(Protocol):
    """The services of `Live` for its subscriptions."""

    store: Store
    buffered: int  # bytes in the buffers of all subscriptions

    def enter(self, one: Any) -> None: ...

    def leave(self, one: Any) -> None: ...

    def look_soon(self) -> None: ...

    async def once(self, read: Callable[[], Awaitable[T]], tenant: Tenant) -> T | None:
        """Return what is read, or raise; None: this process stops."""

    async def patiently(self, read: Callable[[], Awaitable[T]], tenant: Tenant) -> T | None:
        """Return what is read, whenever the store is there again; None: this process stops."""


class Subscription(ABC):
    """A trail as it grows: `async with` a subscription, then `async for` its rows; the last item is an end.

    One task may read it. The task may be cancelled while it waits for the next row, and read on later.
    """

    def __init__(self, hub: Hub, tenant: Tenant, after: int | None) -> None:
        self._hub, self._tenant = hub, tenant
        self.seq = after  # of the last row that is given or buffered; None: not known yet, from now on
        self.is_live = False
        self._buffer: deque[tuple[TrailEntry, int]] = deque()
        self._bytes = 0
        self._end: End | None = None
        self._error: Exception | None = None
        self._is_over = False
        self._news = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Begin. TooManySubscribers; UnknownRun; StoreError, if the store does not answer the first read."""
        self._hub.enter(self)
        try:
            if self._end is None and (page := await self._hub.once(self._page, self._tenant)) is not None:
                self._take(page)
        except BaseException:
            self._hub.leave(self)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hub.leave(self)
        self._drop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TrailEntry | End:
        """Return the next row, or the end. Nothing is lost when this is cancelled."""
        while not self._buffer:
            if self._is_over:
                raise StopAsyncIteration
            if self._error is not None:
                self._is_over = True
                raise self._error
            if self._end is not None:
                self._is_over = True
                return self._end
            if self.is_live:
                self._news.clear()
                await self._news.wait()
            elif (page := await self._hub.patiently(self._page, self._tenant)) is not None and (
                self._end is None
            ):
                self._take(page)
        entry, size = self._buffer.popleft()
        self._count(-size)
        return entry

    def push(self, page: Page) -> None:
        """Take the rows of the shared reader, as far as they fit into the buffer."""
        for entry in page.entries:
            if self.seq is not None and entry.seq <= self.seq:
                continue
            size = entry_bytes(entry)
            if self._buffer and self._is_full(size):
                self.is_live = False
                break
            self._append(entry, size)
        else:
            self.seq = page.seq if self.seq is None else max(self.seq, page.seq)
            if not page.more:
                self._finish(page.end)
        self._news.set()

    def close(self) -> None:
        """End at once, whatever is in the buffer."""
        self._drop()
        self._finish(Closed())
        self._news.set()

    def fail(self, error: Exception) -> None:
        """End with an error, after the rows that are there: what comes next cannot be read."""
        self._error, self.is_live = error, False
        self._news.set()

    def _finish(self, end: End | None) -> None:
        if end is not None:
            self._end, self.is_live = end, False

    def _is_full(self, size: int) -> bool:
        return (
            len(self._buffer) >= BUFFER_ROWS
            or self._bytes + size > BUFFER_BYTES
            or self._hub.buffered + size > BUFFERS_BYTES
        )

    def _take(self, page: Page) -> None:
        """Take a page of its own. After the last one the subscription is live."""
        for entry in page.entries:
            self._append(entry, entry_bytes(entry))
        self.seq = page.seq
        if not page.more:
            self.is_live = True
            self._finish(page.end)
            self._hub.look_soon()  # more may have come since this page was read

    def _append(self, entry: TrailEntry, size: int) -> None:
        self._buffer.append((entry, size))
        self._count(size)
        self.seq = entry.seq

    def _count(self, size: int) -> None:
        self._bytes += size
        self._hub.buffered += size

    @property
    def _page_bytes(self) -> int:
        """The size of the next page of its own: small while many subscribers do not take what they have."""
        return PAGE_BYTES if self._hub.buffered < BUFFERS_BYTES // 2 else SMALL_PAGE_BYTES

    def _drop(self) -> None:
        self._buffer.clear()
        self._count(-self._bytes)

    @abstractmethod
    async def _page(self) -> Page:
        """Read the next page of its own."""


class RunTrail(Subscription):
    """The trail of one run as it is stored; its end is `Ended`, `Gone` or `Closed`."""

    def __init__(self, hub: Hub, run: UUID, tenant: Tenant, after: int) -> None:
        super().__init__(hub, tenant, after)
        self.source, self._is_known = run, False

    async def _page(self) -> Page:
        after = self.seq or 0
        found = await self._hub.store.follow(
            [(self.source, after)], self._tenant, PAGE_ROWS, self._page_bytes
        )
        if found and found[0].gone and not self._is_known:
            raise UnknownRun(self.source)
        self._is_known = True
        return page_of(found[0], after) if found else Page((), after, more=False, end=None)


class AllTrail(Subscription):
    """The trail over all runs of a tenant, or of all tenants; its only end is `Closed`."""

    def __init__(self, hub: Hub, tenant: Tenant, types: Sequence[str], after: int | None) -> None:
        super().__init__(hub, tenant, after)
        self._types = tuple(sorted(set(types)))
        self.source = tenant_name(tenant), self._types  # subscriptions with the same source share their reads

    async def _page(self) -> Page:
        return await self.read_after(self.seq, PAGE_ROWS, self._page_bytes)

    async def read_after(self, after: int | None, limit: int, size: int) -> Page:
        """Read a page of the source."""
        page = await self._hub.store.follow_all(self._tenant, self._types, after, limit, size)
        return Page(page.entries, page.seq, page.more, None)


class Waiter:
    """A subscriber that only waits for the end of a run; rows are not read for it."""

    seq = BIG_MAX
    is_live = True

    def __init__(self, run: UUID) -> None:
        self.source = run
        self._changed = asyncio.Event()

    def push(self, page: Page) -> None:
        if page.end is not None:
            self._changed.set()

    def close(self) -> None:
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """Let the caller read the run itself, and meet the error, if it has anything to do with that."""
        del error
        self._changed.set()

    async def changed(self) -> None:
        """Wait until the run has ended, continued as another one, or is gone."""
        await self._changed.wait()
        self._changed.clear()


def page_of(news: Followed, after: int) -> Page:
    """Return the news of a run, which were asked for after this number, as a page."""
    end: End | None = None
    if news.gone:
        end = Gone()
    elif news.status in FINAL:
        end = Ended(news.status, news.present or news.run)
    seq = news.entries[-1].seq if news.entries else after
    return Page(news.entries, seq, news.more, end)
