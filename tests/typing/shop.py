"""Workflows and functions of the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import holdfast as hf

app = hf.App("memory://")


@dataclass
class Order:
    sku: str
    count: int = 1


@dataclass
class Receipt:
    total: float


class Line(TypedDict):
    sku: str


# -- workflows -------------------------------------------------------------------------------------


@app.workflow("typed.nothing.v1")
async def nothing(ctx: hf.Context) -> str:
    return ctx.type


@app.workflow("typed.order.v1", timeout=5, retry=hf.Backoff.exponential(attempts=3))
async def order(ctx: hf.Context, order: Order) -> Receipt:
    return Receipt(order.count)


@app.workflow("typed.counted.v1")
async def counted(ctx: hf.Context, count: int = 3) -> list[int]:
    return [count]


@app.workflow("typed.maybe.v1")
async def maybe(ctx: hf.Context, order: Order | None) -> None:
    return None


@app.workflow("typed.lines.v1")
async def lines(ctx: hf.Context, lines: list[Line]) -> dict[str, Any]:
    return {"lines": lines}


@app.workflow("typed.weights.v1")
def weights(ctx: hf.SyncContext, weights: list[float]) -> float:
    return sum(weights)


@app.workflow("typed.sync.v1")
def sync_nothing(ctx: hf.SyncContext) -> int:
    return ctx.max_attempts


@app.workflow("typed.sync_counted.v1")
def sync_counted(ctx: hf.SyncContext, count: int = 3) -> bool:
    return count > 1


fulfil = app.plan("typed.fulfil.v1", [hf.Task("SHIP")], params=Order)
untyped = app.plan("typed.untyped.v1", [hf.Task("SHIP")])


@fulfil.task("SHIP")
async def ship(task: hf.PlanTask) -> dict[str, str]:
    return {"type": task.type, **task.labels}


# -- functions of steps --------------------------------------------------------------------------------


async def charge(order: Order, note: str = "", *, currency: str = "CHF") -> Receipt:
    return Receipt(order.count)


def price(sku: str) -> float:
    return len(sku)


async def price_later(sku: str) -> float:
    return len(sku)


async def ask(messages: list[dict[str, Any]], model: str = "small") -> str:
    return model


async def of_line(line: Line) -> int:
    return len(line)


def total(prices: Sequence[float], rates: Mapping[str, object]) -> float:
    return sum(prices)


def fetch(url: str, timeout: float = 3) -> bytes:
    return url.encode()


def clock() -> int | None:
    return None


class Api:
    async def get(self, url: str, **query: Any) -> bytes:
        return url.encode()
