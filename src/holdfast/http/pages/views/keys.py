"""API keys of a tenant: list, create, rotate, revoke. A secret is shown once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.http.pages.page import ANSWERS, Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.records import Scope

LIMIT = 50
LIFETIMES = {"30 days": 30, "90 days": 90, "a year": 365}
OVERLAPS = {"a day": 86400, "an hour": 3600, "not at all": 0}


@page("/keys", title="Keys", scope=(Scope.ADMIN, Scope.OPERATOR), menu="Keys")
async def keys(call: PageCall) -> Shown:
    """Show the keys of the tenant."""
    found = await call.ask("keys", query={"limit": LIMIT, "cursor": call.one("cursor")})
    ends = {words: (call.now + timedelta(days=days)).isoformat() for words, days in LIFETIMES.items()}
    given = [one for one in Scope if call.actor.has(one) and one is not Scope.OPERATOR]
    data = {"keys": found.items, "next": found.next, "limit": LIMIT, "ends": ends, "scopes": given}
    return Shown("keys.html", {**data, "overlaps": OVERLAPS})


def _secret(answer: Any, back: str) -> Shown:
    return Shown(
        "secret.html", {"key": answer.key, "secret": answer.secret, "back": back}, title="A new secret"
    )


ANSWERS["create_key"] = ANSWERS["rotate_key"] = _secret
