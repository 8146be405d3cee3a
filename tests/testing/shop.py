"""A small shop whose effects can be observed; some of its workflows are wrong on purpose."""

from __future__ import annotations

from dataclasses import dataclass

import holdfast as hf


@dataclass
class Receipt:
    """The typed result of a step: a replacement must be recorded as this type."""

    id: str
    cents: int


class NoStore:
    """The app's own store: a rehearsal must not touch it."""

    traits = None  # App looks whether there are any

    def __getattr__(self, name):
        raise AssertionError(f"the app's own store was asked for {name}")


class Shop:
    """The shop: one for each test."""

    def __init__(self):
        self.app = hf.App(NoStore())
        self.seen = []
        self.order = self.app.workflow("shop.order.v1")(self._order)
        self.hasty = self.app.workflow("shop.hasty.v1")(self._hasty)
        self.counter = self.app.workflow("shop.counter.v1")(self._counter)

    async def reserve(self, cents: int) -> str:
        self.seen.append("reserved")
        return f"shelf {cents}"

    async def charge(self, cents: int) -> Receipt:
        self.seen.append(f"charged {cents}")
        return Receipt("r1", cents)

    def ship(self, receipt_id: str) -> str:
        self.seen.append(f"shipped {receipt_id}")
        return "shipped"

    async def _order(self, ctx: hf.Context, cents: int) -> str:
        await ctx.step("reserve", self.reserve, cents)
        receipt = await ctx.step("charge", self.charge, cents)
        await ctx.sleep(days=30)
        note = await ctx.await_event("address", timeout=hf.days(7))
        return f"{await ctx.step('ship', self.ship, receipt.id)} to {note.payload}"

    async def _hasty(self, ctx: hf.Context, cents: int) -> str:
        """Charge in the body instead of a step: the planted bug."""
        shelf = await ctx.step("reserve", self.reserve, cents)
        await self.charge(cents)
        await ctx.step("ship", self.ship, shelf)
        return shelf

    def _counter(self, ctx, cents: int) -> str:
        """Run a sync workflow."""
        ctx.step("reserve", self.reserve, cents)
        ctx.sleep(days=1)
        return ctx.step("ship", self.ship, "here")
