"""The workflows of `holdfast demo --fill`: orders, refunds, imports and invoices of a shop, and an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, TypedDict

from holdfast import App, Approval, Backoff, ChildFailed, Context, Delivery, Fatal, PlanTask, Task

Pace = Callable[[float], Awaitable[object]]  # lets seconds pass
CARRIERS = ("DHL", "UPS", "GLS")


class Order(TypedDict, total=False):
    """An order. eur: its value; trouble: what goes wrong on the way."""

    order: int
    eur: float
    customer: str
    express: bool
    carrier: Literal["DHL", "UPS", "GLS"]
    trouble: str


class Refund(TypedDict):
    """A refund of an order."""

    order: int
    eur: float
    trouble: str


class Invoice(TypedDict):
    """An invoice to be booked."""

    number: str
    eur: float


def shop(app: App, passes: Pace = asyncio.sleep) -> App:
    """Add the workflows to an app. passes: how the time of a step passes."""
    _orders(app, passes)
    _refunds(app, passes)
    _imports(app, passes)
    _stock(app, passes)
    _research(app, passes)
    _invoices(app, passes)

    @app.sink("mail")
    async def mail(message: Delivery) -> None:
        """Send a mail; one address is refused for good."""
        if "leslie@" in str(message.payload):
            raise Fatal("550 no such mailbox")

    return app


def _orders(app: App, passes: Pace) -> None:
    @app.workflow("shop.order.v2", retry=Backoff.fixed(0.2, attempts=4))
    async def order(ctx: Context, order: Order) -> dict[str, object]:
        """Reserve, charge, perhaps ask a person, pack, wait for the courier, thank."""
        tried = {"charge": 0}

        async def reserve() -> str:
            await passes(0.4)
            return f"shelf {'ABCD'[order['order'] % 4]}{order['order'] % 9 + 1}"

        async def charge() -> dict[str, object]:
            tried["charge"] += 1
            await passes(1.3)
            ctx.cost(0.25)
            if order.get("trouble") == "declined":
                raise Fatal(f"card declined for customer {order['customer']}")
            if order.get("trouble") == "bank" or (order.get("trouble") == "flaky" and tried["charge"] == 1):
                raise ConnectionError("bank.example: no answer within 10 s")
            return {"charged": order["eur"], "receipt": f"R-{order['order']}"}

        async def pack(shelf: str) -> str:
            await passes(4.5)
            return f"parcel from {shelf}"

        shelf = await ctx.step("reserve", reserve)
        ctx.log("reserved", shelf=shelf, order=order["order"])
        await ctx.step("charge", charge, retry=Backoff.fixed(0.2, attempts=3))
        if order["eur"] > 900 and not await released(ctx, order):
            return {"order": order["order"], "released": False}
        parcel = await ctx.step("pack", pack, shelf)
        ctx.progress(3, 5, "packed")
        if not order.get("express"):
            await ctx.sleep(1800)  # until the next tour
        courier = await ctx.await_event(f"picked-up:{order['order']}")
        if order.get("trouble") == "flaky":
            ctx.send("warehouse", {"order": order["order"]})  # no worker delivers to it
        ctx.send("mail", {"to": f"{order['customer']}@example.org", "text": f"{parcel} is on its way"})
        return {"order": order["order"], "parcel": parcel, "courier": courier.payload}


async def released(ctx: Context, order: Order) -> bool:
    """Ask a person whether an expensive order may be shipped."""
    asked = {"order": order["order"], "customer": order["customer"], "eur": order["eur"]}
    question = f"Ship goods for {order['eur']:.2f} EUR?"
    decision = await ctx.approval("release", ask=question, data=asked)
    if not decision.approved:
        ctx.log("not released", level="warning", by=decision.by)
    return decision.approved


def _refunds(app: App, passes: Pace) -> None:
    @app.workflow("shop.refund.v1", retry=Backoff.fixed(0.2, attempts=3))
    async def refund(ctx: Context, refund: Refund) -> float:
        """Check the order, pay the money back."""

        async def check() -> bool:
            await passes(0.2)
            return True

        async def pay() -> float:
            await passes(2.0)
            if refund["trouble"] == "bank":
                raise ConnectionError("bank.example: no answer within 10 s")
            if refund["trouble"] == "account":
                raise Fatal("the account of the customer is closed")
            return refund["eur"]

        await ctx.step("check", check)
        return await ctx.step("pay back", pay)


def _imports(app: App, passes: Pace) -> None:
    @app.workflow("shop.import-page.v1", retry=Backoff.fixed(0.2, attempts=2))
    async def import_page(ctx: Context, page: int) -> int:
        """Read one page of the supplier's catalogue."""

        async def read() -> int:
            await passes(0.8)
            if page == 13:
                raise ValueError("row 402: the price 'n/a' is not a number")
            return 40 + page

        return await ctx.step("read", read)

    @app.workflow("shop.import.v1")
    async def import_all(ctx: Context, pages: list[int]) -> dict[str, int]:
        """Read all pages, each in a child run."""

        async def one(page: int) -> int | None:
            try:
                return await ctx.call(import_page, page, key=f"page {page}", labels={"page": str(page)})
            except ChildFailed:
                ctx.log("page left out", level="warning", page=page)
                return None

        rows = await asyncio.gather(*(one(page) for page in pages))
        return {"rows": sum(row or 0 for row in rows), "failed": rows.count(None)}


def _stock(app: App, passes: Pace) -> None:
    @app.workflow("shop.count-shelves.v1")
    async def count_shelves(ctx: Context, shelves: int) -> int:
        """Count each shelf in a step of its own."""

        async def count(shelf: int) -> int:
            await passes(0.12)
            return shelf * 7 % 40

        return sum(await ctx.map("shelf", count, range(1, shelves + 1), limit=4))

    @app.workflow("shop.watch-stock.v1")
    async def watch(ctx: Context, day: int) -> int:
        """Count the stock; go on with the next day as a new run of the chain."""

        async def count() -> int:
            await passes(0.5)
            return 900 + day

        await ctx.step("count", count)
        if day < 4:
            ctx.continue_as(day + 1)
        await ctx.await_event("stock.closed")
        return day


def _research(app: App, passes: Pace) -> None:
    @app.workflow("agent.research.v1", budget=1.0)
    async def research(ctx: Context, question: str) -> str:
        """Plan, search, read and answer; each call of the model has a cost."""

        async def think(what: str) -> str:
            await passes(6.0)
            ctx.cost(0.3)
            return f"{what}: {question}"

        for number, what in enumerate(("plan", "search", "read", "compare", "answer"), 1):
            ctx.progress(number - 1, 5, what)
            await ctx.step(what, think, what)
        return "42"


def _invoices(app: App, passes: Pace) -> None:
    gate = Approval("RELEASE", ask="Book this invoice?", timeout=2 * 86400)
    invoice = app.plan(
        "shop.invoice.v1", [Task("VALIDATE"), gate, Task("BOOK"), Task("ARCHIVE")], params=Invoice
    )

    @invoice.task("VALIDATE")
    async def validate(task: PlanTask) -> dict[str, object]:
        await passes(0.6)
        if task.params["eur"] <= 0:
            raise Fatal(f"invoice {task.params['number']}: the sum is not positive")
        return {"number": task.params["number"], "vat": round(task.params["eur"] * 0.19, 2)}

    @invoice.task("BOOK")
    async def book(task: PlanTask) -> str:
        await passes(1.1)
        return f"booked {task.params['number']}"

    @invoice.task("ARCHIVE")
    async def archive(task: PlanTask) -> str:
        await passes(0.3)
        return f"archived {task.params['number']}"


app = shop(App())
