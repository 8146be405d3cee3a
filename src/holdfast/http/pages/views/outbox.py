"""The outbox: messages that wait, dead letters, and how late each sink is."""

from __future__ import annotations

from typing import Any

from holdfast.http.pages.page import SAID, Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.records import MessageStatus, Scope

LIMIT = 50
SINKS_MAX = 50
UNDELIVERED = [MessageStatus.DEAD.value, MessageStatus.PENDING.value]


@page("/outbox", title="Outbox", scope=Scope.RUNS_READ, menu="Outbox")
async def outbox(call: PageCall) -> Shown:
    """Show messages that are not delivered, the oldest first; or those of a filter."""
    chosen = call.all("status") or UNDELIVERED
    fields = {name: call.one(name) for name in ("sink", "run", "id", "cursor")}
    found = await call.ask("outbox", query={"limit": LIMIT, "status": chosen, **fields})
    waiting = {one.sink for one in found.items if one.status is MessageStatus.PENDING}
    sinks = sorted(waiting)[:SINKS_MAX]
    data = {
        "messages": found.items,
        "next": found.next,
        "limit": LIMIT,
        "chosen": chosen,
        "fields": fields,
        "statuses": [one.value for one in MessageStatus],
        "unserved": (await call.ask("unserved", query={"sink": sinks})).items if sinks else (),
        "backlog": (await call.ask("backlog")).items if call.can("backlog") else None,
        "webhooks": (await call.ask("webhooks")).items if call.can("webhooks") else (),
    }
    return Shown("outbox.html", data)


def _resent(answer: Any) -> str:
    return f"message {answer.id} is {answer.status.value} again"


SAID["resend"] = _resent
