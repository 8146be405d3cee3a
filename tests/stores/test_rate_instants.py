"""Rates with a moving clock: a claim is counted at the instant of its lease."""

from __future__ import annotations

import asyncio
import random

import pytest

from holdfast.records import ANY, SECOND, Ask, NewRun
from holdfast.world import uuid7
from tests.laws.stores import MAKERS

TYPE = "shop.order.v1"
RATE = 7


class MovingClock:
    """A clock that moves on with every read, as time does while a claim chooses runs."""

    def __init__(self):
        self.now, self._dice = 1_700_000_000 * SECOND, random.Random(7)

    def __call__(self):
        self.now += self._dice.randrange(40_000)
        return self.now


@pytest.mark.spec("LIMIT-2")
@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_no_span_of_one_period_holds_more_leases_than_the_rate(kind, tmp_path):
    """By the instants that the trail shows, wherever the span begins."""
    store = MAKERS[kind](MovingClock(), tmp_path)

    async def play():
        await store.open()
        await store.limit("type", TYPE, rate=(RATE, 1.0))
        await store.start([NewRun(id=uuid7(n, n), type=TYPE) for n in range(150)])
        for _ in range(400):
            await store.claim(Ask(worker="w", types=(TYPE,), limit=3))
        rows = [row.at for row in await store.trail(None, ANY, limit=1000) if row.type == "leased"]
        await store.close()
        return sorted(rows)

    leased = asyncio.run(play())
    assert len(leased) > 5 * RATE
    spans = [(after - before).total_seconds() for before, after in zip(leased, leased[RATE:], strict=False)]
    assert min(spans) >= 1.0
