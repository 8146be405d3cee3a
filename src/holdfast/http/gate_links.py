"""Signed links to one gate: they name tenant, run, gate and digest, and expire.

A link gives no right: who opens it has to sign in, and needs the scope to decide. It is signed so that nobody
can make one that shows another gate than it says, and so that it ends.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from holdfast.records import instant, moment

from .cursors import Cursors
from .problems import Code, Refusal

if TYPE_CHECKING:
    from .signing import Signing

LIST = "link to a gate"  # no list of the API has this name, so no cursor is a link
LINK_SECONDS = {"an hour": 3600, "a day": 86400, "7 days": 7 * 86400, "30 days": 30 * 86400}


class GateLink(NamedTuple):
    """The facts in a link. digest: of the question and data that it was made for; None: the gate has none."""

    tenant: str
    run: UUID
    step: str
    digest: str | None
    until: datetime


def make_link(cursors: Cursors, link: GateLink) -> str:
    """Return the signed text of a link."""
    facts = (link.tenant, str(link.run), link.step, link.digest, instant(link.until))
    return cursors.make(LIST, "", None, facts)


def link_path(cursors: Cursors, link: GateLink) -> str:
    """Return the path of a signed link, below the address of the server. The tenant is in it too: an operator
    of another tenant has to name it.
    """
    return f"/ui/approvals/gate?{urlencode({'link': make_link(cursors, link), 'tenant': link.tenant})}"


async def read_link(signing: Signing, text: str, now: datetime) -> GateLink:
    """Return the facts of a link; Refusal for one that was not signed here, or has expired."""
    try:
        facts = await signing.place(text, LIST)
    except Refusal:
        raise Refusal(Code.NOT_FOUND, "this link was not made here, or its signing key is gone") from None
    tenant, run, step, digest, until = facts
    if instant(now) >= until:
        raise Refusal(Code.NOT_FOUND, "this link has expired: open the approvals inbox")
    return GateLink(tenant, UUID(run), step, digest, moment(until))
