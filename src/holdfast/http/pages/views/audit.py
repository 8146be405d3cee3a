"""The audit log: who did what, and what was refused."""

from __future__ import annotations

from holdfast.http.operation import all_operations
from holdfast.http.pages.page import Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.records import Scope

LIMIT = 50


@page("/audit", title="Audit", scope=(Scope.ADMIN, Scope.OPERATOR), menu="Audit")
async def audit(call: PageCall) -> Shown:
    """Show acts and refusals, newest first."""
    chosen = {name: call.one(name) or "" for name in ("action", "key", "since", "until")}
    query = {
        "limit": LIMIT,
        "cursor": call.one("cursor"),
        "action": call.all("action"),
        "key": call.all("key"),
    }
    found = await call.ask("audit", query=query)
    actions = sorted(one.id for one in all_operations().values() if one.method != "GET")
    data = {"entries": found.items, "next": found.next, "limit": LIMIT, "chosen": chosen, "actions": actions}
    return Shown("audit.html", data)
