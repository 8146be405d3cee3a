"""The outbox: messages in queues by tenant, sink and key. Relays take the first message of each queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from holdfast.bounds import page
from holdfast.contract import DUE_COUNTED, GIVE_UP_SECONDS
from holdfast.errors import UnknownMessage, UsageError
from holdfast.machine.durations import micros
from holdfast.machine.relocating import refuse_moved_message
from holdfast.records import (
    Backlog,
    Instant,
    MessageStatus,
    Outbound,
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
from holdfast.stores.run_filter import inside

from .connection.database import Database, Row, text
from .sql import statements

if TYPE_CHECKING:
    from .connection.writer import Work

T = TypeVar("T")

_SQL = statements("outbox")
_ANSWERS = ("sent", "failed", "dead", "released")
_ALL = OutboxFilter()


def put(db: Database, now: Instant, run: str, messages: Sequence[Outbound]) -> None:
    for new in messages:
        args = {
            "id": new.id, "run": run, "step": new.step, "sink": new.sink, "key": new.key,
            "payload": new.payload, "now": now,
        }  # fmt: skip
        db.run(_SQL["put"], args)


def due(db: Database, now: Instant, ask: RelayAsk, limit: int) -> list[Row]:
    return db.all(
        _SQL["due"],
        {
            "sinks": text(ask.sinks), "tenants": None if ask.tenants is None else text(ask.tenants),
            "webhooks": ask.webhooks, "taken": _json(ask.taken), "bounds": _json(ask.bounds),
            "each": ask.each, "most": max(0, ask.each, *ask.bounds.values()),
            "limit": max(0, limit), "now": now,
        },
    )  # fmt: skip


def _json(counts: dict[str, int]) -> str:
    return msgspec.json.encode(counts).decode()


def relay(db: Database, now: Instant, ask: RelayAsk) -> list[Parcel]:
    rows = page(due(db, now, ask, ask.limit), lambda row: int(row[7]), ask.limit, ask.bytes)
    taken = {"seqs": text([row[0] for row in rows]), "relay": ask.relay, "now": now}
    db.run(_SQL["take"], {**taken, "until": now + micros(ask.lease_seconds)})
    return [_parcel(db, row) for row in rows]


def _parcel(db: Database, row: Row) -> Parcel:
    payload, trace = db.one(_SQL["payload"], row[:1]) or (None, None)
    return Parcel(
        id=row[1], fence=row[2], tenant=row[3], run=UUID(row[4]), sink=row[5], key=row[6],
        payload=payload or "null", trace=trace or "",
        attempt=row[8], created_at=row[9], webhook=None if row[10] else _webhook(row[11:]),
    )  # fmt: skip


def _webhook(row: Row) -> Webhook:
    name, target, allow_private, rev, created_at, updated_at = row
    return Webhook(
        name=name,
        target=target,
        allow_private=bool(allow_private),
        rev=rev,
        created_at=created_at,
        updated_at=updated_at,
    )


def refuse_bad(answers: Sequence[Relayed]) -> None:
    """Refuse bad answers before they are queued: all answers are one commit."""
    for answer in answers:
        micros(answer.delay_seconds)
        if answer.answer not in _ANSWERS:
            raise UsageError(f"{answer.answer!r} is no answer of a relay: {', '.join(_ANSWERS)}")


def relayed(db: Database, now: Instant, answers: Sequence[Relayed]) -> list[bool]:
    return [_answered(db, now, answer) for answer in answers]


def _answered(db: Database, now: Instant, answer: Relayed) -> bool:
    held = db.one(_SQL["held"], (answer.id, answer.fence))
    if held is None:
        return False
    seq, *queue, tried_at = held
    later = (now + micros(answer.delay_seconds), answer.error, seq)
    match answer.answer:
        case "sent":
            end_message(db, now, seq, queue, (MessageStatus.SENT, answer.error, now))
        case "failed" if tried_at + micros(GIVE_UP_SECONDS) > now:
            db.run(_SQL["back_off"], later)
        case "released":
            db.run(_SQL["release"], later)
        case _:
            end_message(db, now, seq, queue, (MessageStatus.DEAD, answer.error, None))
    return True


def end_message(db: Database, now: Instant, seq: int, queue: list[Any], end: Row) -> None:
    status, error, sent_at = end
    db.run(_SQL["leave"], (str(status), error, sent_at, seq))
    if queue[2] is not None:
        db.run(_SQL["next_of_line"], (now, *queue))


def relay_at(
    db: Database, sinks: Sequence[str], tenants: Sequence[str] | None, *, webhooks: bool
) -> Instant | None:
    of_tenants = None if tenants is None else text(tenants)
    row = db.one(_SQL["next"], {"sinks": text(sinks), "tenants": of_tenants, "webhooks": webhooks})
    return None if row is None else row[0]


def outbox(db: Database, where: OutboxFilter, limit: int, after: int) -> list[OutboxMessage]:
    terms = [("seq > ?", after), *_terms(where)]
    sql = _SQL["list"].replace("$terms", " and ".join(term for term, *_ in terms))
    values = [value for _, *values in terms for value in values]
    return page(map(_shown, db.each(sql, (*values, max(0, limit)))), message_bytes, limit)


def _terms(where: OutboxFilter) -> Iterator[tuple[Any, ...]]:
    if where.id is not None:
        yield "id = ?", where.id
    if where.run is not None:
        yield "run_id = ?", str(where.run)
    if where.tenant is not None:
        yield "tenant = ?", where.tenant
    if where.sink is not None:
        yield "sink = ?", where.sink
    if where.statuses:
        yield ("(" + " or ".join(f"status = '{status.value}'" for status in where.statuses) + ")",)
        if MessageStatus.SENT not in where.statuses:
            yield (_SQL["left"],)


def _shown(row: Row) -> OutboxMessage:
    next_at, tried_at, sent_at = (None if at is None else moment(at) for at in (row[11], row[14], row[15]))
    return OutboxMessage(
        seq=row[0], id=row[1], tenant=row[2], run=UUID(row[3]), step=row[4], sink=row[5], key=row[6],
        payload_json=row[7], status=MessageStatus(row[8]), attempts=row[9], held_by=row[10], next_at=next_at,
        error_json=row[12], created_at=moment(row[13]), tried_at=tried_at, sent_at=sent_at,
    )  # fmt: skip


def resend(db: Database, now: Instant, id_: str, tenant: str | None) -> OutboxMessage:
    where = OutboxFilter(id=id_, tenant=tenant)
    found = outbox(db, where, 1, 0)
    if not found:
        raise UnknownMessage(id_)
    refuse_moved_message(id_, found[0].error_json)
    db.run(_SQL["hurry"], (now, id_))
    db.run(_SQL["resend"], (now, id_))
    return outbox(db, where, 1, 0)[0]


def backlog(db: Database) -> list[Backlog]:
    return [
        Backlog(sink=sink, pending=pending, dead=dead, oldest_at=oldest_at)
        for sink, pending, dead, oldest_at in db.all(_SQL["backlog"], {"most": DUE_COUNTED})
    ]


def put_webhook(db: Database, now: Instant, webhook: Webhook) -> bool:
    args = {
        "name": webhook.name, "target": webhook.target, "allow_private": webhook.allow_private,
        "rev": webhook.rev, "now": now,
    }  # fmt: skip
    db.run(_SQL["change_webhook" if webhook.rev else "make_webhook"], args)
    return db.changes() > 0


def remove_webhook(db: Database, name: str) -> bool:
    db.run(_SQL["remove_webhook"], (name,))
    return db.changes() > 0


class OutboxVerbs:
    """The verbs of the outbox, as a mixin of the store."""

    _clock: Callable[[], Instant]

    if TYPE_CHECKING:

        def _read(self, work: Callable[..., T], *args: Any) -> T: ...

        async def _write(self, work: Work[T], *, news: bool = False, alone: bool = False) -> T: ...

    async def relay(self, ask: RelayAsk) -> list[Parcel]:
        # Read first: a relay with nothing to do takes no lock and writes nothing.
        if not self._read(due, self._clock(), ask, min(1, ask.limit)):
            return []
        return await self._write(lambda db, now: relay(db, now, ask))

    async def relayed(self, answers: Sequence[Relayed]) -> list[bool]:
        refuse_bad(answers)
        if not answers:
            return []
        return await self._write(lambda db, now: relayed(db, now, answers), news=True)

    async def relay_at(
        self, sinks: Sequence[str], *, tenants: Sequence[str] | None = None, webhooks: bool = True
    ) -> Instant | None:
        return self._read(lambda db: relay_at(db, sinks, tenants, webhooks=webhooks))

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> list[OutboxMessage]:
        return self._read(outbox, inside(where or _ALL), limit, after)

    async def resend(self, id: str, tenant: Tenant) -> OutboxMessage:
        return await self._write(lambda db, now: resend(db, now, id, tenant_name(tenant)), news=True)

    async def backlog(self) -> list[Backlog]:
        return self._read(backlog)

    async def webhooks(self) -> list[Webhook]:
        return self._read(lambda db: [_webhook(row) for row in db.all(_SQL["webhooks"])])

    async def put_webhook(self, webhook: Webhook) -> bool:
        return await self._write(lambda db, now: put_webhook(db, now, webhook), news=True)

    async def remove_webhook(self, name: str) -> bool:
        return await self._write(lambda db, _: remove_webhook(db, name))
