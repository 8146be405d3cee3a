"""The outbox: messages that runs have sent, and webhooks that receive them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta

from holdfast.arguments import BIG_MAX
from holdfast.engine.app.outbox import WebhookShown
from holdfast.http.call import Call, Page
from holdfast.http.operation import Body, Path, operation
from holdfast.records import MessageStatus, OutboxFilter, Scope
from holdfast.shown.data import message_data
from holdfast.shown.shapes import MessageData, Shape

from .fields import Name, NamePath, OneTenant, Paged
from .schedules import Removed

TAG = "Outbox"


class OutboxQuery(Paged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of a list of messages."""

    status: Annotated[tuple[MessageStatus, ...], Meta(max_length=10)] = ()
    sink: Name | None = None
    run: UUID | None = None
    id: Name | None = None
    after: Annotated[int, Meta(ge=0, le=BIG_MAX, description="Instead of a cursor: behind this seq.")] = 0


class UnservedQuery(OneTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """sink: the sinks in question, may be repeated."""

    sink: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=50)]


class Unserved(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """Sinks for which there is neither a webhook nor a function in a live worker."""

    items: tuple[str, ...]


class MessagePath(Path, frozen=True, kw_only=True):
    """A message by its id."""

    message: Name


class SetWebhook(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A URL that receives messages. allow_private: also addresses of your own network, and without TLS."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    secret: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    allow_private: bool = False


class Webhooks(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """All webhooks, by name."""

    items: tuple[WebhookShown, ...]


class WebhookSecret(Shape, frozen=True, kw_only=True, omit_defaults=True):
    """The secret that the receiver needs, if one was made here. It is shown once."""

    name: str
    secret: str | None


@operation("GET", "/outbox", tag=TAG, scope=Scope.RUNS_READ)
async def outbox(call: Call, query: OutboxQuery) -> Page[MessageData]:
    """List messages, in the order in which they were sent."""
    client = call.client(query.tenant)
    after = call.after(query.cursor, query)
    where = OutboxFilter(
        statuses=query.status, sink=query.sink, run=query.run, id=query.id, tenant=call.scope
    )
    found = await client.outbox(where, query.limit, query.after if after is None else after[0])
    return call.page(
        [call.shown(message_data(one)) for one in found], (found[-1].seq,) if found else None, query
    )


@operation("GET", "/outbox/unserved", tag=TAG, scope=Scope.RUNS_READ)
async def unserved(call: Call, query: UnservedQuery) -> Unserved:
    """Say which of these sinks have messages that nobody can deliver now."""
    return Unserved(items=tuple(await call.client(query.tenant).unserved(query.sink)))


@operation("POST", "/outbox/{message}/resend", tag=TAG, scope=Scope.RUNS_WRITE)
async def resend(call: Call, path: MessagePath, query: OneTenant) -> MessageData:
    """Send a dead message again."""
    call.target = path.message
    return call.shown(message_data(await call.client(query.tenant).resend(path.message)))


@operation("GET", "/sinks", tag=TAG, scope=Scope.OPERATOR)
async def webhooks(call: Call) -> Webhooks:
    """List the webhooks of the store, with their secrets masked."""
    return Webhooks(items=tuple(await call.api.client.webhooks()))


@operation("PUT", "/sinks/{name}", tag=TAG, scope=Scope.OPERATOR)
async def webhook(call: Call, path: NamePath, body: SetWebhook) -> WebhookSecret:
    """Create a webhook, or change its URL or secret. The same request again changes nothing."""
    call.target = path.name
    secret = await call.api.client.webhook(
        path.name, body.url, secret=body.secret, allow_private=body.allow_private
    )
    return WebhookSecret(name=path.name, secret=secret)


@operation("DELETE", "/sinks/{name}", tag=TAG, scope=Scope.OPERATOR)
async def remove_webhook(call: Call, path: NamePath) -> Removed:
    """Remove a webhook. Its messages wait for a new sink of that name."""
    call.target = path.name
    return Removed(removed=await call.api.client.remove_webhook(path.name))
