"""The verbs of the outbox: list messages, resend one, set and remove webhooks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.arguments import (
    BIG_MAX,
    check_id,
    check_limit,
    check_list,
    check_name,
    check_sought,
    check_whole,
    exact_text,
)
from holdfast.clipped import clipped
from holdfast.engine.app.outbox import WebhookShown
from holdfast.errors import UsageError
from holdfast.records import OutboxFilter, OutboxMessage
from holdfast.shown.shapes import MessageData

from .base import PAGE_MAX, Base, set_fields
from .records import message_of

SINKS_MAX = 50  # sinks in one question


class Messages(msgspec.Struct, frozen=True):
    """One page of messages."""

    items: tuple[MessageData, ...]


class Webhooks(msgspec.Struct, frozen=True):
    """All webhooks."""

    items: list[WebhookShown]


class Secret(msgspec.Struct, frozen=True):
    """The secret of a new webhook."""

    secret: str | None


class Removed(msgspec.Struct, frozen=True):
    """Whether there was something to remove."""

    removed: bool


class Names(msgspec.Struct, frozen=True):
    """Names of sinks."""

    items: list[str]


class OutboxVerbs(Base):
    """The verbs of the outbox; a part of `Client`."""

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> Sequence[OutboxMessage]:
        """Return messages in the order in which they were sent; `after` is the last seq of the page before.

        A page may hold fewer than `limit` messages, at most 500: only an empty page is the end.
        """
        if where is not None and not isinstance(where, OutboxFilter):
            raise UsageError(f"outbox({clipped(where)}): give a filter, as in OutboxFilter(sink='mail')")
        where = where or OutboxFilter()
        sink, id_ = check_sought(sink=where.sink, id=where.id)
        run = None if where.run is None else str(check_id(where.run))
        sought = {"sink": sink, "id": id_, "run": run}
        query = [
            *self._whose(where.tenant),
            *[("status", one) for one in check_list("statuses", where.statuses)],
            *[(name, value) for name, value in sought.items() if value is not None],
            ("after", str(check_whole("after", after, 0, BIG_MAX))),
        ]
        if not (rows := check_limit(limit)):
            return []
        query.append(("limit", str(min(rows, PAGE_MAX))))
        return [message_of(one) for one in (await self._ask("outbox", Messages, query=query)).items]

    async def resend(self, id: str) -> OutboxMessage:
        """Send a dead or sent message again; a message that waits for its next try is sent now."""
        path = {"message": check_name("message id", id)}
        return message_of(await self._ask("resend", MessageData, path=path, query=self._of_run()))

    async def unserved(self, sinks: Sequence[str]) -> list[str]:
        """Return those of these sinks that have messages, but neither a webhook nor a function in a live
        worker.
        """
        named = [check_name("sink", one) for one in check_list("sinks", sinks)]
        found: list[str] = []
        for n in range(0, len(named), SINKS_MAX):
            query = [("sink", one) for one in named[n : n + SINKS_MAX]]
            found += (await self._ask("unserved", Names, query=query)).items
        return found

    async def webhook(
        self, name: str, url: str, secret: str | None = None, *, allow_private: bool = False
    ) -> str | None:
        """Post messages to `name` to `url`, signed, as `App.webhook` does. Needs a key of an operator.

        Returns the secret for the receiver if the server made one: it is never shown again.
        """
        body = set_fields(url=exact_text(url), secret=exact_text(secret), allow_private=bool(allow_private))
        return (await self._ask("webhook", Secret, path={"name": check_name("sink", name)}, body=body)).secret

    async def webhooks(self) -> list[WebhookShown]:
        """Return all webhooks, by name. Needs a key of an operator."""
        return (await self._ask("webhooks", Webhooks)).items

    async def remove_webhook(self, name: str) -> bool:
        """Remove a webhook. Return True when there was one. Needs a key of an operator.

        False may also mean that a first try has removed it, whose answer was lost.
        """
        path = {"name": check_name("sink", name)}
        return (await self._ask("remove_webhook", Removed, path=path)).removed
