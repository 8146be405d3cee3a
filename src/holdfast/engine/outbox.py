"""What anyone may ask of the outbox: look at messages, send one again, name the addresses they go to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.arguments import (
    BIG_MAX,
    check_id,
    check_limit,
    check_name,
    check_sought,
    check_whole,
    plain_text,
)
from holdfast.clipped import clipped
from holdfast.codec import MARK, unwrapped
from holdfast.contract import Store
from holdfast.errors import BadValue, Conflict, UsageError
from holdfast.records import OutboxFilter, OutboxMessage, Tenant, Webhook, moment
from holdfast.records.reading import UNREADABLE
from holdfast.sealing.envelope import reason

from .posting import check_url, place
from .signing import check_secret, make_secret, masked
from .sinks import Sinks, Target
from .whose import tenant_of

TAKES_MAX = 10  # times that others may be quicker
SECRETS_MAX = 2  # that sign at once: the newest, and the one before it until the receiver has changed over


class WebhookShown(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook for people: of its URL and its secrets no more is shown than tells them apart."""

    name: str
    url: str
    secrets: tuple[str, ...]
    allow_private: bool
    created_at: datetime
    updated_at: datetime


class Outgoing:
    """The verbs of the outbox; a part of `Client`."""

    store: Store
    tenant: Tenant
    sinks: Sinks = {}  # noqa: RUF012 - an app has its own, and nobody adds to this one

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> Sequence[OutboxMessage]:
        """Messages, in the order in which they were sent; `after` is the last seq of the page before.

        A page holds fewer than `limit` where payloads are large: only an empty one is the end.
        """
        if where is not None and not isinstance(where, OutboxFilter):
            raise UsageError(f"outbox({clipped(where)}): give a filter, as in OutboxFilter(sink='mail')")
        where = where or OutboxFilter()
        sink, id_ = check_sought(sink=where.sink, id=where.id)
        tenant = tenant_of(self.tenant, where.tenant)
        where = msgspec.structs.replace(where, sink=sink, tenant=tenant, id=id_)
        if where.run is not None:
            check_id(where.run)
        limit, after = check_limit(limit), check_whole("after", after, 0, BIG_MAX)
        await self.store.open()
        return await self.store.outbox(where, limit, after)

    async def resend(self, id: str) -> OutboxMessage:
        """Send a message again that is dead or sent; one that backs off is tried now."""
        await self.store.open()
        return await self.store.resend(check_name("message id", id), self.tenant)

    async def webhook(
        self, name: str, url: str, secret: str | None = None, *, allow_private: bool = False
    ) -> str | None:
        """Have messages to `name` posted to `url`, signed. Kept in the store; the same again changes nothing.

        Answers the secret if one was made here, for the receiver: it is never shown again. Another secret
        than before: both sign, until there is a third. `allow_private`: also to addresses of your own
        network, and without TLS.
        """
        name = check_name("sink", name)
        if name in self.sinks:
            raise UsageError(f"{name!r} is a function of this app (@app.sink): give the webhook another name")
        url, secret = plain_text(url), plain_text(secret)
        check_url(url, allow_private=allow_private)
        if secret is not None:
            check_secret(secret)
        await self.store.open()
        for _ in range(TAKES_MAX):
            is_kept, made = await self._put(name, url, secret, allow_private=allow_private)
            if is_kept:
                return made
        raise Conflict(f"webhook {name!r} is being changed by others all the time: say it again")

    async def _put(
        self, name: str, url: str, secret: str | None, *, allow_private: bool
    ) -> tuple[bool, str | None]:
        """Whether it is as was said, and the secret if one was made; not, if another was quicker."""
        known = {one.name: one for one in await self.store.webhooks()}.get(name)
        before = () if known is None else _target(known).secrets
        made = None if secret is not None or before else make_secret()
        wanted = (made or before[0]) if secret is None else check_secret(secret)
        secrets = (wanted, *(one for one in before if one != wanted))[:SECRETS_MAX]
        target = msgspec.json.encode(Target(url, secrets)).decode()
        if known is not None and (known.target, known.allow_private) == (target, allow_private):
            return True, None
        rev = 0 if known is None else known.rev
        put = Webhook(name=name, target=target, allow_private=allow_private, rev=rev)
        return await self.store.put_webhook(put), made

    async def webhooks(self) -> list[WebhookShown]:
        """All webhooks, by name."""
        await self.store.open()
        return [_shown(one) for one in await self.store.webhooks()]

    async def remove_webhook(self, name: str) -> bool:
        """Whether there was one; messages to it stay until there is a sink of that name."""
        name = check_name("sink", name)
        await self.store.open()
        return await self.store.remove_webhook(name)


def _target(webhook: Webhook) -> Target:
    if webhook.target.startswith(MARK):
        raise reason(webhook.target, f"the address of webhook {webhook.name!r}")
    try:
        return unwrapped(webhook.target, Target, "its address")
    except BadValue:  # somebody has spoilt it: to name it again mends it, and hides no other
        return Target(UNREADABLE, ())


def _shown(webhook: Webhook) -> WebhookShown:
    shut = webhook.target.startswith(MARK)
    target = Target("(sealed)", ()) if shut else _target(webhook)
    shut = shut or target.url == UNREADABLE
    return WebhookShown(
        name=webhook.name,
        url=target.url if shut else place(target.url),
        secrets=tuple(masked(one) for one in target.secrets),
        allow_private=webhook.allow_private,
        created_at=moment(webhook.created_at),
        updated_at=moment(webhook.updated_at),
    )
