"""The web process: it starts and shows orders, decides, and hears the warehouse."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse
from orders import Order, app, place

import holdfast as hf


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await app.publish()  # opens the store: a wrong URL stops the start, not the first request
    # The same call at every start changes nothing. Allow private addresses only for receivers of your own.
    await app.webhook(
        "warehouse", os.environ["WAREHOUSE_URL"], secret=os.environ["WAREHOUSE_SECRET"], allow_private=True
    )
    yield
    await app.close()


web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=202)
async def create(order: Order, idempotency_key: Annotated[str, Header()]) -> dict[str, str]:
    run = await app.start(place, order, key=f"order:{idempotency_key}", labels={"email": order.email})
    return {"run": str(run.id)}


@web.get("/orders/{run}")
async def read(run: UUID) -> dict[str, object]:
    found = await app.known(run)
    return {
        "status": "running" if found.status is hf.Status.LEASED else str(found.status),
        "waits_for": [wait.key for wait in found.waiting_on],
        "result": found.result,
    }


@web.get("/approvals")
async def inbox() -> list[dict[str, object]]:
    return [
        {"run": str(one.run), "question": one.ask, "data": one.data, "digest": one.digest}
        for one in await app.approvals()
    ]


@web.post("/orders/{run}/approval")
async def decide(run: UUID, *, approve: bool, x_user: Annotated[str, Header()]) -> dict[str, object]:
    verb = app.approve if approve else app.reject
    decided = await verb(run, "large-order", by=x_user)
    return {"approved": decided.decision.approved, "by": decided.decision.by, "repeated": decided.repeated}


@web.post("/hooks/shipped", status_code=204)
async def shipped(order: int, parcel: str, webhook_id: Annotated[str, Header()]) -> None:
    """The warehouse may send this twice: the same id has one effect."""
    await app.emit(f"shipped.{order}", {"parcel": parcel}, id=webhook_id)


@web.delete("/orders/{run}")
async def cancel(run: UUID, x_user: Annotated[str, Header()]) -> dict[str, str]:
    return {"status": str((await app.cancel(run, by=x_user)).status)}


@web.exception_handler(hf.UnknownRun)
async def unknown(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "no such order"}, 404)


@web.exception_handler(hf.Conflict)
async def conflict(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409)


@web.exception_handler(hf.Unavailable)
async def unavailable(_request: Request, _error: Exception) -> JSONResponse:
    return JSONResponse({"detail": "try again"}, 503, {"Retry-After": "2"})
