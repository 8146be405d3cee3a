"""The approvals inbox: open gates, decisions, and signed links to one gate."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

from holdfast.http.call import PAGE_MAX
from holdfast.http.gate_links import LINK_SECONDS, GateLink, link_path, read_link
from holdfast.http.pages.page import SAID, Shown, page
from holdfast.http.pages.pagecall import PageCall
from holdfast.http.problems import Code, Refusal
from holdfast.records import Scope

LIMIT = 20
CALLS = 5  # pages of open gates of one run that are looked through for one of them
SCOPES = (Scope.APPROVALS_DECIDE, Scope.RUNS_READ)


@page("/approvals", title="Approvals", scope=SCOPES, menu="Approvals", live=True)
async def approvals(call: PageCall) -> Shown:
    """Show the open gates, the oldest run first."""
    found = await call.ask("approvals", query={"limit": LIMIT, "cursor": call.one("cursor")})
    return Shown("approvals.html", {"gates": found.items, "next": found.next, "limit": LIMIT})


@page("/approvals/link", title="Link to a gate", scope=SCOPES)
async def link(call: PageCall) -> Shown:
    """Make a signed link to a gate as it is now. It gives no right to whoever opens it."""
    gate = await _gate(call, _run(call), call.one("step") or "", call.tenant)
    if gate is None:
        raise Refusal(Code.NOT_FOUND, "this gate is not open any more")
    word = call.one("for") if call.one("for") in LINK_SECONDS else "a day"
    until = call.now + timedelta(seconds=LINK_SECONDS[word or ""])
    facts = GateLink(gate.tenant, gate.run, gate.step, gate.digest, until)
    target = f"{quote(call.place.root)}{link_path(call.api.signing.cursors, facts)}"
    data = {"gate": gate, "until": until, "word": word, "words": list(LINK_SECONDS), "target": target}
    return Shown("approval_link.html", data)


@page("/approvals/gate", title="A gate", scope=SCOPES)
async def gate(call: PageCall) -> Shown:
    """Show the gate of a signed link. Only the form on it decides."""
    facts = await read_link(call.api.signing, call.one("link") or "", call.now)
    tenant = call.tenant or call.actor.tenant
    if facts.tenant != tenant:
        raise Refusal(Code.NOT_FOUND, "this link is for another tenant than your key")
    found = await _gate(call, facts.run, facts.step, call.tenant)
    changed = found is not None and found.digest != facts.digest
    return Shown("approval_gate.html", {"facts": facts, "gate": found, "changed": changed})


async def _gate(call: PageCall, run: UUID, step: str, tenant: str | None) -> Any:
    """Return an open gate; None if it is not open. The list is sorted by run, so it begins at this one."""
    last = {"after_run": str(UUID(int=max(0, run.int - 1))), "after_step": "-"}
    for _ in range(CALLS):
        found = (await call.ask("approvals", query={"limit": PAGE_MAX, "tenant": tenant, **last})).items
        for one in found:
            if (one.run, one.step) == (run, step):
                return one
        if not found or found[-1].run != run:
            break
        last = {"after_run": str(run), "after_step": found[-1].step}
    return None


def _run(call: PageCall) -> UUID:
    try:
        return UUID(call.one("run") or "")
    except ValueError:
        raise Refusal(Code.NOT_FOUND, "the address names no run") from None


def _decided(answer: Any) -> str:
    word = "approved" if answer.approved else "rejected"
    if answer.repeated:
        return f"gate {answer.step} was {word} before by {answer.by or 'nobody'}; nothing changed"
    return f"gate {answer.step} is {word}"


SAID["approve"] = SAID["reject"] = _decided
