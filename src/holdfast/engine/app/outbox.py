"""The verbs of the outbox: list messages, resend one, set and remove webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.arguments import (
    BIG_MAX,
    check_id,
    check_limit,
    check_list,
    check_name,
    check_sought,
    check_whole,
    check_words,
    exact_text,
)
from holdfast.clipped import clipped
from holdfast.codec import MARK, unwrapped
from holdfast.contract import Store
from holdfast.engine.outbox.health import unserved
from holdfast.engine.outbox.http_post import check_url, shown_url
from holdfast.engine.outbox.signing import check_secret, make_secret, masked
from holdfast.engine.outbox.sinks import Sinks, WebhookTarget
from holdfast.errors import BadValue, Conflict, UsageError
from holdfast.records import ANY, MessageStatus, OutboxFilter, OutboxMessage, Tenant, Webhook, moment
from holdfast.records.unreadable import UNREADABLE
from holdfast.sealing.envelope import reason

from .tenant_scope import tenant_of

TAKES_MAX = 10  # tries, in case another process changes the webhook at the same time
# secrets that sign at the same time: the newest, and the one before it until the receiver has changed over
SECRETS_MAX = 2


class WebhookShown(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as people see it: URL and secrets are cut to what tells two of them apart."""

    name: str
    url: str
    secrets: tuple[str, ...]
    allow_private: bool
    created_at: datetime
    updated_at: datetime


class OutboxVerbs:
    """The verbs of the outbox; a part of `StoreClient`."""

    store: Store
    tenant: Tenant
    sinks: Sinks = {}  # noqa: RUF012 - an app has its own, and nobody adds to this one

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> Sequence[OutboxMessage]:
        """Return messages in the order in which they were sent; `after` is the last seq of the page before.

        A page may hold fewer than `limit` messages when payloads are large: only an empty page is the end.
        """
        if where is not None and not isinstance(where, OutboxFilter):
            raise UsageError(f"outbox({clipped(where)}): give a filter, as in OutboxFilter(sink='mail')")
        where = where or OutboxFilter()
        sink, id_ = check_sought(sink=where.sink, id=where.id)
        tenant = tenant_of(self.tenant, where.tenant)
        statuses = check_words("statuses", MessageStatus, where.statuses)
        run = None if where.run is None else check_id(where.run)
        where = msgspec.structs.replace(where, sink=sink, tenant=tenant, id=id_, statuses=statuses, run=run)
        limit, after = check_limit(limit), check_whole("after", after, 0, BIG_MAX)
        await self.store.open()
        return await self.store.outbox(where, limit, after)

    async def resend(self, id: str) -> OutboxMessage:
        """Send a dead or sent message again; a message that waits for its next try is sent now."""
        await self.store.open()
        return await self.store.resend(check_name("message id", id), self.tenant)

    async def unserved(self, sinks: Sequence[str]) -> list[str]:
        """Return those of these sinks that have messages, but neither a webhook nor a function in a live
        worker.
        """
        named = {check_name("sink", one) for one in check_list("sinks", sinks)}
        await self.store.open()
        found = [one.sink for one in await unserved(self.store) if one.sink in named]
        return found if self.tenant is ANY else [one for one in found if await self._has_pending(one)]

    async def _has_pending(self, sink: str) -> bool:
        """Return True when the tenant itself has a message for this sink: others must not be told of."""
        where = OutboxFilter(sink=sink, statuses=(MessageStatus.PENDING,), tenant=self.tenant)
        return bool(await self.store.outbox(where, 1, 0))

    async def webhook(
        self, name: str, url: str, secret: str | None = None, *, allow_private: bool = False
    ) -> str | None:
        """Post messages to `name` to `url`, signed. The webhook is kept in the store. The same call again
        changes nothing; another URL or secret changes it.

        Returns the secret for the receiver if one was made here: it is never shown again. When the secret
        changes, the old and the new one sign until there is a third. `allow_private`: also allow addresses of
        your own network, and without TLS.
        """
        name = check_name("sink", name)
        if name in self.sinks:
            raise UsageError(f"{name!r} is a function of this app (@app.sink): give the webhook another name")
        url, secret = exact_text(url), exact_text(secret)
        check_url(url, allow_private=allow_private)
        if secret is not None:
            check_secret(secret)
        await self.store.open()
        for _ in range(TAKES_MAX):
            is_kept, made = await self._put(name, url, secret, allow_private=allow_private)
            if is_kept:
                return made
        raise Conflict(f"webhook {name!r} is being changed by others at the same time: try again")

    async def _put(
        self, name: str, url: str, secret: str | None, *, allow_private: bool
    ) -> tuple[bool, str | None]:
        """Store the webhook once. Return False when another process changed it first; and a new secret, if
        any.
        """
        known = {one.name: one for one in await self.store.webhooks()}.get(name)
        before = () if known is None else _target(known).secrets
        made = None if secret is not None or before else make_secret()
        wanted = (made or before[0]) if secret is None else check_secret(secret)
        secrets = (wanted, *(one for one in before if one != wanted))[:SECRETS_MAX]
        target = msgspec.json.encode(WebhookTarget(url, secrets)).decode()
        if known is not None and (known.target, known.allow_private) == (target, allow_private):
            return True, None
        rev = 0 if known is None else known.rev
        put = Webhook(name=name, target=target, allow_private=allow_private, rev=rev)
        return await self.store.put_webhook(put), made

    async def webhooks(self) -> list[WebhookShown]:
        """Return all webhooks, by name."""
        await self.store.open()
        return [_shown(one) for one in await self.store.webhooks()]

    async def remove_webhook(self, name: str) -> bool:
        """Remove a webhook. Return True when there was one. Its messages wait for a new sink of that name."""
        name = check_name("sink", name)
        await self.store.open()
        return await self.store.remove_webhook(name)


def _target(webhook: Webhook) -> WebhookTarget:
    if webhook.target.startswith(MARK):
        raise reason(webhook.target, f"the address of webhook {webhook.name!r}")
    try:
        return unwrapped(webhook.target, WebhookTarget, "its address")
    # the row was damaged: setting the webhook again mends it, and the others are still listed
    except BadValue:
        return WebhookTarget(UNREADABLE, ())


def _shown(webhook: Webhook) -> WebhookShown:
    shut = webhook.target.startswith(MARK)
    target = WebhookTarget("(sealed)", ()) if shut else _target(webhook)
    shut = shut or target.url == UNREADABLE
    return WebhookShown(
        name=webhook.name,
        url=target.url if shut else shown_url(target.url),
        secrets=tuple(masked(one) for one in target.secrets),
        allow_private=webhook.allow_private,
        created_at=moment(webhook.created_at),
        updated_at=moment(webhook.updated_at),
    )
