"""Stores and bounds so small that little data counts as much."""

from __future__ import annotations

import msgspec

from holdfast.engine.worker import loading
from holdfast.engine.worker.worker import Worker
from holdfast.testing.faulty import Faulty

BIG = "x" * 300_000


class SmallPages(Faulty):
    """A store whose claims and pages bring at most 1,000 bytes of values."""

    async def claim(self, ask):
        return await self.inner.claim(msgspec.structs.replace(ask, bytes=min(ask.bytes, 1000)))

    async def load(self, lease, after=-1, bytes=0):
        self.pages = getattr(self, "pages", 0) + 1
        return await self.inner.load(lease, after, 1000)


def lower_memory_bounds(monkeypatch):
    """Lower the bounds so far that one run of these tests fills a worker."""
    for name, value in {"HELD_BYTES": 1000, "PEEK_BYTES": 500, "LARGE_MIN": 1}.items():
        monkeypatch.setattr(loading, name, value)


def worker(app, store=None, **options):
    return Worker(store or app.store, app.world, app.workflows, **options)
