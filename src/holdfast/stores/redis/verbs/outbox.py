"""The verbs of the outbox. Relays take the first message of each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.bounds import BATCH_BYTES, page, text_bytes
from holdfast.contract import DUE_COUNTED, GIVE_UP_SECONDS
from holdfast.errors import UnknownMessage, UsageError
from holdfast.machine.durations import micros
from holdfast.machine.relocating import refuse_moved_message
from holdfast.records import (
    Backlog,
    Instant,
    MessageStatus,
    OutboxFilter,
    OutboxMessage,
    Parcel,
    RelayAsk,
    Relayed,
    Tenant,
    Webhook,
    moment,
    tenant_name,
)
from holdfast.records.sizes import message_bytes
from holdfast.stores.redis.core import Core
from holdfast.stores.redis.messages import MessageRow, Post, line_of, message_key, message_row
from holdfast.stores.redis.snapshot import Snapshot
from holdfast.stores.run_filter import inside, matches_message

ANSWERS = ("sent", "failed", "dead", "released")
PAGE = 200  # messages that are read at once
_ALL = OutboxFilter()
_WEBHOOK = msgspec.json.Decoder(Webhook)


class OutboxVerbs(Core):
    """The verbs of the outbox, as a mixin of the store."""

    async def relay(self, ask: RelayAsk) -> list[Parcel]:
        return await self._change(lambda snapshot: relay(snapshot, ask))

    async def relayed(self, answers: Sequence[Relayed]) -> list[bool]:
        for answer in answers:  # bad answers are refused before the first write
            micros(answer.delay_seconds)
            if answer.answer not in ANSWERS:
                raise UsageError(f"{answer.answer!r} is no answer of a relay: {', '.join(ANSWERS)}")

        def relayed(snapshot: Snapshot) -> list[bool]:
            post = Post(snapshot, snapshot.now)
            post.prefetch([answer.id for answer in answers])
            snapshot.is_news = True
            return [_answered(post, answer, snapshot.now) for answer in answers]

        return await self._change(relayed)

    async def relay_at(
        self, sinks: Sequence[str], *, tenants: Sequence[str] | None = None, webhooks: bool = True
    ) -> Instant | None:
        return await self._read(lambda snapshot: relay_at(snapshot, sinks, tenants, webhooks=webhooks))

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> list[OutboxMessage]:
        where = inside(where or _ALL)
        found: list[OutboxMessage] = []
        key = self._names("outbox") if where.run is None else self._names("outbox:run", str(where.run))
        while len(found) < limit and sum(map(message_bytes, found)) < BATCH_BYTES:
            (members,) = await self._connections.ask(
                [("ZRANGEBYSCORE", key, f"({after}", "+inf", "WITHSCORES", "LIMIT", 0, PAGE)]
            )
            if not members:
                break
            found += await self._messages([id for id, _ in members], where)
            after = int(members[-1][1])
        return page(found, message_bytes, limit)

    async def _messages(self, ids: Sequence[str], where: OutboxFilter) -> list[OutboxMessage]:
        asked = [("HMGET", message_key(self._names, id), "row", "seq", "payload") for id in ids]
        read = [
            (row, int(seq), payload)
            for text, seq, payload in await self._connections.ask(asked)
            if text is not None and matches_message(row := message_row(text), where)
        ]
        lines = [line_of(self._names, row) for row, _, _ in read]
        heads = {line: None for line in lines if line is not None}
        firsts = await self._connections.ask([("ZRANGE", line, 0, 0) for line in heads]) if heads else []
        first_of = dict(zip(heads, firsts, strict=True))
        return [
            shown(row, seq, payload, first=line is None or first_of[line] == [row.id])
            for (row, seq, payload), line in zip(read, lines, strict=True)
        ]

    async def resend(self, id: str, tenant: Tenant) -> OutboxMessage:
        def resend(snapshot: Snapshot) -> None:
            post, now = Post(snapshot, snapshot.now), snapshot.now
            row = post.row(id)
            if row is None or tenant_name(tenant) not in {None, row.tenant}:
                raise UnknownMessage(id)
            refuse_moved_message(id, row.error)
            if row.status is not MessageStatus.PENDING:
                row.status, row.next_at = MessageStatus.PENDING, now
                row.attempts, row.tried_at, row.sent_at = 0, None, None
                post.enter(row)
                post.save(row)
            elif row.held_by is None and post.is_first(row):
                row.next_at = now
                post.save(row)
            snapshot.is_news = True

        await self._change(resend)
        return (await self._messages([id], inside(OutboxFilter(tenant=tenant))))[0]

    async def backlog(self) -> list[Backlog]:
        def backlog(snapshot: Snapshot) -> list[Backlog]:
            names, found = snapshot.names, []
            for sink in snapshot.read("ZRANGE", names("sinks"), 0, -1):
                pending, dead, oldest = snapshot.all([
                    ("ZCARD", names.of("outbox:pending", sink)), ("ZCARD", names.of("outbox:dead", sink)),
                    ("ZRANGE", names.of("outbox:pending", sink), 0, 0, "WITHSCORES"),
                ])  # fmt: skip
                pending, dead = min(pending, DUE_COUNTED), min(dead, DUE_COUNTED)
                if pending or dead:
                    at = int(oldest[0][1]) if oldest else None
                    found.append(Backlog(sink=sink, pending=pending, dead=dead, oldest_at=at))
            return sorted(found, key=lambda one: one.sink)

        return await self._read(backlog)

    async def webhooks(self) -> list[Webhook]:
        (texts,) = await self._connections.ask([("HGETALL", self._names("webhooks"))])
        return sorted(map(_WEBHOOK.decode, texts.values()), key=lambda one: one.name)

    async def put_webhook(self, webhook: Webhook) -> bool:
        def put(snapshot: Snapshot) -> bool:
            key, now = snapshot.names("webhooks"), snapshot.now
            text = snapshot.guarded("HGET", key, webhook.name)
            known = None if text is None else _WEBHOOK.decode(text)
            if webhook.rev != (0 if known is None else known.rev):
                return False
            made = msgspec.structs.replace(
                webhook,
                rev=webhook.rev + 1,
                created_at=now if known is None else known.created_at,
                updated_at=now,
            )
            snapshot.do("HSET", key, webhook.name, msgspec.json.encode(made).decode())
            snapshot.is_news = True
            return True

        return await self._change(put)

    async def remove_webhook(self, name: str) -> bool:
        def remove(snapshot: Snapshot) -> bool:
            key = snapshot.names("webhooks")
            if snapshot.guarded("HGET", key, name) is None:
                return False
            snapshot.do("HDEL", key, name)
            return True

        return await self._change(remove)


def _sinks(snapshot: Snapshot, ask: RelayAsk) -> tuple[list[str], dict[str, Webhook]]:
    """Return the sinks that a relay serves, and those of them that are webhooks."""
    hooks: dict[str, Webhook] = {}
    if ask.webhooks:
        texts = snapshot.read("HGETALL", snapshot.names("webhooks")).values()
        hooks = {hook.name: hook for hook in map(_WEBHOOK.decode, texts) if hook.name not in ask.sinks}
    return [*dict.fromkeys((*ask.sinks, *hooks))], hooks


def _first_of(snapshot: Snapshot, ask: RelayAsk, sink: str, limit: int) -> list[MessageRow]:
    """Return the first messages of a sink, first due first, that the relay may have."""
    names, found, at, size = snapshot.names, list[MessageRow](), 0, min(max(limit, 1), PAGE)
    tenants = ask.tenants if sink in ask.sinks else None
    while len(found) < limit:
        ids = snapshot.read("ZRANGE", names.of("outbox:due", sink), at, at + size - 1)
        found += _pending(snapshot, ids, tenants)
        if len(ids) < size:
            break
        at, size = at + size, min(2 * size, PAGE)
    return found


def _pending(snapshot: Snapshot, ids: Sequence[str], tenants: Sequence[str] | None) -> list[MessageRow]:
    """Return those of the messages that are pending: the set was read before the rows."""
    texts = snapshot.all([("HGET", message_key(snapshot.names, id), "row") for id in ids])
    rows = [message_row(text) for text in texts if text is not None]
    rows = [row for row in rows if row.status is MessageStatus.PENDING]
    return [row for row in rows if tenants is None or row.tenant in tenants]


def _due_first(snapshot: Snapshot, ask: RelayAsk, sink: str) -> list[MessageRow]:
    """Return the first due messages of a sink that the relay may have, and some more.

    The set has messages of the same instant in the order of their ids: a page of those that are due with the
    last one is read, too. Their numbers say which of them are first.
    """
    found = _first_of(snapshot, ask, sink, ask.limit)
    if found and len(found) >= ask.limit and (last := found[-1].next_at) <= snapshot.now:
        key, known = snapshot.names.of("outbox:due", sink), {row.id for row in found}
        ids = snapshot.read("ZRANGEBYSCORE", key, last, last, "LIMIT", 0, PAGE)
        more = [id for id in ids if id not in known]
        found += _pending(snapshot, more, ask.tenants if sink in ask.sinks else None)
    return [row for row in found if row.next_at <= snapshot.now]


def relay_at(
    snapshot: Snapshot, sinks: Sequence[str], tenants: Sequence[str] | None, *, webhooks: bool
) -> Instant | None:
    """Return when a relay may next find something."""
    names = None if tenants is None else tuple(tenants)
    ask = RelayAsk(relay="", sinks=tuple(sinks), tenants=names, webhooks=webhooks)
    found = snapshot.each(_sinks(snapshot, ask)[0], lambda sink: _first_of(snapshot, ask, sink, 1))
    return min((row.next_at for first in found for row in first), default=None)


def relay(snapshot: Snapshot, ask: RelayAsk) -> list[Parcel]:
    """Take the first messages of queues that are due."""
    now, names = snapshot.now, snapshot.names
    sinks, hooks = _sinks(snapshot, ask)
    turns = Counter(ask.taken)
    due = [
        row for first in snapshot.each(sinks, lambda sink: _due_first(snapshot, ask, sink)) for row in first
    ]
    seqs = snapshot.all([("HGET", message_key(names, row.id), "seq") for row in due])
    placed: list[tuple[int, Instant, int, MessageRow]] = []
    for row, seq in sorted(zip(due, map(int, seqs), strict=True), key=lambda one: (one[0].next_at, one[1])):
        turns[row.sink] += 1
        if turns[row.sink] <= ask.bounds.get(row.sink, ask.each):
            placed.append((turns[row.sink], row.next_at, seq, row))
    placed.sort(key=lambda one: one[:3])
    ids = [row.id for *_, row in placed[: min(ask.limit, 100)]]
    payloads = dict(
        zip(ids, snapshot.all([("HGET", message_key(names, id), "payload") for id in ids]), strict=True)
    )
    chosen = page(ids, lambda id: text_bytes(payloads[id]), ask.limit, ask.bytes)
    post = Post(snapshot, now)
    post.prefetch(chosen)
    chosen = [id for id in chosen if (known := post.row(id)) is not None and post.is_first(known)]
    runs = {row.id: row.run for *_, row in placed}
    found = snapshot.all([("HGET", names.run(runs[id]), "trace") for id in chosen])
    traces = dict(zip(chosen, found, strict=True))
    parcels = []
    for id in chosen:
        taken = post.row(id)
        assert taken is not None
        taken.fence, taken.attempts, taken.held_by = taken.fence + 1, taken.attempts + 1, ask.relay
        taken.next_at = now + micros(ask.lease_seconds)
        taken.tried_at = now if taken.tried_at is None else taken.tried_at
        post.save(taken)
        parcels.append(
            Parcel(
                id=id, fence=taken.fence, tenant=taken.tenant, run=taken.run, sink=taken.sink, key=taken.key,
                payload=payloads[id], attempt=taken.attempts, created_at=taken.created_at,
                webhook=hooks.get(taken.sink), trace=traces[id] or "",
            )
        )  # fmt: skip
    return parcels


def _answered(post: Post, answer: Relayed, now: Instant) -> bool:
    row = post.row(answer.id)
    if row is None or row.held_by is None or row.fence != answer.fence:
        return False
    row.held_by, row.error = None, answer.error
    match answer.answer:
        case "sent":
            row.sent_at, row.status = now, MessageStatus.SENT
        case "failed" if not _has_been_tried_enough(row, now):
            row.next_at = now + micros(answer.delay_seconds)
        case "released":
            row.next_at, row.attempts = now + micros(answer.delay_seconds), row.attempts - 1
            row.tried_at = row.tried_at if row.attempts else None
        case _:
            row.status = MessageStatus.DEAD
    if row.status is not MessageStatus.PENDING:
        post.leave(row)
    post.save(row)
    return True


def _has_been_tried_enough(row: MessageRow, now: Instant) -> bool:
    return row.tried_at is not None and row.tried_at + micros(GIVE_UP_SECONDS) <= now


def shown(row: MessageRow, seq: int, payload: str, *, first: bool) -> OutboxMessage:
    """Return a message as callers see it."""
    is_first = first and row.status is MessageStatus.PENDING
    return OutboxMessage(
        seq=seq, id=row.id, tenant=row.tenant, run=row.run, step=row.step, sink=row.sink, key=row.key,
        payload_json=payload, status=row.status, attempts=row.attempts, held_by=row.held_by,
        next_at=moment(row.next_at) if is_first else None, error_json=row.error,
        created_at=moment(row.created_at), tried_at=None if row.tried_at is None else moment(row.tried_at),
        sent_at=None if row.sent_at is None else moment(row.sent_at),
    )  # fmt: skip
