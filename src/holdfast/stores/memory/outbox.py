"""The outbox: messages in queues by tenant, sink and key. Relays take the first message of each queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.bounds import page, text_bytes
from holdfast.contract import DUE_COUNTED, GIVE_UP_SECONDS
from holdfast.errors import UnknownMessage, UsageError
from holdfast.machine.durations import micros
from holdfast.machine.relocating import refuse_moved_message
from holdfast.records import (
    Backlog,
    Instant,
    Json,
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
from holdfast.stores.run_filter import inside, matches_message

if TYPE_CHECKING:
    from .rows import State

ANSWERS = ("sent", "failed", "dead", "released")
_ALL = OutboxFilter()

Line = tuple[str, str, str]  # tenant, sink, key


@dataclass(slots=True, kw_only=True)
class MessageRow:
    """A message. Its position in the queue is looked up, never stored."""

    seq: int
    id: str
    tenant: str
    run: UUID
    step: str | None
    sink: str
    key: str | None
    payload: Json
    next_at: Instant
    created_at: Instant
    status: MessageStatus = MessageStatus.PENDING
    attempts: int = 0
    fence: int = 0
    held_by: str | None = None
    error: Json | None = None
    tried_at: Instant | None = None
    sent_at: Instant | None = None

    @property
    def line(self) -> Line | None:
        return None if self.key is None else (self.tenant, self.sink, self.key)


@dataclass(slots=True)
class Post:
    """All messages by id, all webhooks by name, and the pending messages by queue, in the order of seq."""

    messages: dict[str, MessageRow] = field(default_factory=dict)
    webhooks: dict[str, Webhook] = field(default_factory=dict)
    seq: int = 0
    loose: dict[int, MessageRow] = field(default_factory=dict)  # pending messages without a key
    lines: dict[Line, dict[int, MessageRow]] = field(default_factory=dict)
    owed: Counter[UUID] = field(default_factory=Counter)  # the number of pending messages, by run

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    def enter(self, row: MessageRow) -> None:
        """Add a pending message, with the next seq."""
        self.owed[row.run] += 1
        (self.loose if row.line is None else self.lines.setdefault(row.line, {}))[row.seq] = row

    def leave(self, row: MessageRow) -> None:
        """Remove a message from its queue: it is not pending any more."""
        self.owed[row.run] -= 1
        if not self.owed[row.run]:
            del self.owed[row.run]
        del (self.loose if row.line is None else self.lines[row.line])[row.seq]
        if row.line is not None and not self.lines[row.line]:
            del self.lines[row.line]

    def first_of(self, line: Line | None) -> MessageRow | None:
        return None if line is None else next(iter(self.lines.get(line, {}).values()), None)

    def is_first(self, row: MessageRow) -> bool:
        """Return True when a message waits for no other: it is pending, and has no key or is first of its
        queue."""
        is_pending = row.status is MessageStatus.PENDING
        return is_pending and (row.line is None or self.first_of(row.line) is row)

    def first(self) -> list[MessageRow]:
        return [*self.loose.values(), *(next(iter(line.values())) for line in self.lines.values())]

    def remove_of(self, runs: Iterable[UUID]) -> None:
        """Remove all messages of these runs."""
        gone = set(runs)
        self.messages = {id_: row for id_, row in self.messages.items() if row.run not in gone}

    def holds(self, run: UUID) -> bool:
        """Return True when a message of this run is pending. Then the run is not removed."""
        return run in self.owed


def put(post: Post, messages: Sequence[Outbound], tenant: str, run: UUID, now: Instant) -> None:
    """Add messages, as a part of the sender's commit. A known id changes nothing."""
    for new in messages:
        if new.id not in post.messages:
            post.messages[new.id] = row = MessageRow(
                seq=post.next_seq(), id=new.id, tenant=tenant, run=run, step=new.step, sink=new.sink,
                key=new.key, payload=new.payload, next_at=now, created_at=now,
            )  # fmt: skip
            post.enter(row)


def relay(post: Post, ask: RelayAsk, now: Instant) -> list[Parcel]:
    due = [row for row in post.first() if row.next_at <= now and _is_for(post, row, ask)]
    turns = Counter(ask.taken)
    placed: list[tuple[int, Instant, int, MessageRow]] = []
    for row in sorted(due, key=lambda row: (row.next_at, row.seq)):
        turns[row.sink] += 1
        if turns[row.sink] <= ask.bounds.get(row.sink, ask.each):
            placed.append((turns[row.sink], row.next_at, row.seq, row))
    placed.sort(key=lambda one: one[:3])
    chosen = page((row for *_, row in placed), lambda row: text_bytes(row.payload), ask.limit, ask.bytes)
    return [_take(post, ask, row, now) for row in chosen]


def _is_for(post: Post, row: MessageRow, ask: RelayAsk) -> bool:
    if row.sink in ask.sinks:
        return ask.tenants is None or row.tenant in ask.tenants
    return ask.webhooks and row.sink in post.webhooks


def _take(post: Post, ask: RelayAsk, row: MessageRow, now: Instant) -> Parcel:
    row.fence, row.attempts, row.held_by = row.fence + 1, row.attempts + 1, ask.relay
    row.next_at = now + micros(ask.lease_seconds)
    row.tried_at = now if row.tried_at is None else row.tried_at
    return Parcel(
        id=row.id, fence=row.fence, tenant=row.tenant, run=row.run, sink=row.sink, key=row.key,
        payload=row.payload, attempt=row.attempts, created_at=row.created_at,
        webhook=None if row.sink in ask.sinks else post.webhooks[row.sink],
    )  # fmt: skip


def relayed(post: Post, answers: Sequence[Relayed], now: Instant) -> list[bool]:
    refuse_bad(answers)
    return [_answered(post, answer, now) for answer in answers]


def refuse_bad(answers: Sequence[Relayed]) -> None:
    """Refuse bad answers before the first write: all answers are one commit."""
    for answer in answers:
        micros(answer.delay_seconds)
        if answer.answer not in ANSWERS:
            raise UsageError(f"{answer.answer!r} is no answer of a relay: {', '.join(ANSWERS)}")


def _answered(post: Post, answer: Relayed, now: Instant) -> bool:
    row = post.messages.get(answer.id)
    if row is None or row.held_by is None or row.fence != answer.fence:
        return False
    row.held_by, row.error = None, answer.error
    match answer.answer:
        case "sent":
            row.sent_at = now
            _leave(post, row, MessageStatus.SENT, now)
        case "failed" if not _has_been_tried_enough(row, now):
            row.next_at = now + micros(answer.delay_seconds)
        case "released":
            row.next_at, row.attempts = now + micros(answer.delay_seconds), row.attempts - 1
            row.tried_at = row.tried_at if row.attempts else None
        case _:
            _leave(post, row, MessageStatus.DEAD, now)
    return True


def _has_been_tried_enough(row: MessageRow, now: Instant) -> bool:
    return row.tried_at is not None and row.tried_at + micros(GIVE_UP_SECONDS) <= now


def _leave(post: Post, row: MessageRow, status: MessageStatus, now: Instant) -> None:
    """End a message. The next one of its queue is due at once, whatever time it was sent at."""
    row.status = status
    post.leave(row)
    following = post.first_of(row.line)
    if following is not None:
        following.next_at = now


def relay_at(
    post: Post, sinks: Sequence[str], tenants: Sequence[str] | None, *, webhooks: bool
) -> Instant | None:
    names = None if tenants is None else tuple(tenants)
    ask = RelayAsk(relay="", sinks=tuple(sinks), tenants=names, webhooks=webhooks)
    return min((row.next_at for row in post.first() if _is_for(post, row, ask)), default=None)


def outbox(post: Post, where: OutboxFilter, limit: int, after: int) -> list[OutboxMessage]:
    rows = sorted(post.messages.values(), key=lambda row: row.seq)
    found = (row for row in rows if row.seq > after and matches_message(row, where))
    return page((_shown(row, post.is_first(row)) for row in found), message_bytes, limit)


def _shown(row: MessageRow, first: bool) -> OutboxMessage:  # noqa: FBT001 - private, and clear where it is called
    return OutboxMessage(
        seq=row.seq, id=row.id, tenant=row.tenant, run=row.run, step=row.step, sink=row.sink, key=row.key,
        payload_json=row.payload, status=row.status, attempts=row.attempts, held_by=row.held_by,
        next_at=moment(row.next_at) if first else None, error_json=row.error,
        created_at=moment(row.created_at), tried_at=None if row.tried_at is None else moment(row.tried_at),
        sent_at=None if row.sent_at is None else moment(row.sent_at),
    )  # fmt: skip


def resend(post: Post, id_: str, tenant: str | None, now: Instant) -> OutboxMessage:
    row = post.messages.get(id_)
    if row is None or tenant not in {None, row.tenant}:
        raise UnknownMessage(id_)
    refuse_moved_message(id_, row.error)
    if row.status is not MessageStatus.PENDING:
        row.status, row.seq, row.next_at = MessageStatus.PENDING, post.next_seq(), now
        row.attempts, row.tried_at, row.sent_at = 0, None, None
        post.enter(row)
    elif row.held_by is None and post.is_first(row):
        row.next_at = now
    return _shown(row, post.is_first(row))


def hold(post: Post, run: UUID, error: Json, now: Instant) -> list[str]:
    """Make the pending messages of a run dead. Return their ids, in their order."""
    found = (row for row in post.messages.values() if row.run == run and row.status is MessageStatus.PENDING)
    pending = sorted(found, key=lambda row: row.seq)
    for row in pending:
        row.held_by, row.error, row.fence = None, error, row.fence + 1
        _leave(post, row, MessageStatus.DEAD, now)
    return [row.id for row in pending]


def free(post: Post, run: UUID, ids: Sequence[str], now: Instant) -> None:
    """Make these messages of a run pending again, if they are dead."""
    for id_ in ids:
        row = post.messages.get(id_)
        if row is not None and row.run == run and row.status is MessageStatus.DEAD:
            row.error = None
            resend(post, id_, None, now)


def backlog(post: Post) -> list[Backlog]:
    left = [row for row in post.messages.values() if row.status is not MessageStatus.SENT]
    return [
        _backlog(sink, [row for row in left if row.sink == sink]) for sink in sorted({r.sink for r in left})
    ]


def _backlog(sink: str, rows: list[MessageRow]) -> Backlog:
    pending = [row.created_at for row in rows if row.status is MessageStatus.PENDING]
    return Backlog(
        sink=sink,
        pending=min(len(pending), DUE_COUNTED),
        dead=min(len(rows) - len(pending), DUE_COUNTED),
        oldest_at=min(pending, default=None),
    )


def put_webhook(post: Post, webhook: Webhook, now: Instant) -> bool:
    known = post.webhooks.get(webhook.name)
    if webhook.rev != (0 if known is None else known.rev):
        return False
    created_at = now if known is None else known.created_at
    post.webhooks[webhook.name] = msgspec.structs.replace(
        webhook, rev=webhook.rev + 1, created_at=created_at, updated_at=now
    )
    return True


class OutboxVerbs:
    """The verbs of the outbox, as a mixin of the store."""

    _state: State
    _lock: AbstractContextManager[object]
    _clock: Callable[[], Instant]
    _hint: Callable[[], None]

    async def relay(self, ask: RelayAsk) -> list[Parcel]:
        with self._lock:
            parcels = relay(self._state.post, ask, self._clock())
            runs = self._state.runs
            return [msgspec.structs.replace(one, trace=runs[one.run].trace) for one in parcels]

    async def relayed(self, answers: Sequence[Relayed]) -> list[bool]:
        with self._lock:
            counted = relayed(self._state.post, answers, self._clock())
            self._hint()
            return counted

    async def relay_at(
        self, sinks: Sequence[str], *, tenants: Sequence[str] | None = None, webhooks: bool = True
    ) -> Instant | None:
        with self._lock:
            return relay_at(self._state.post, sinks, tenants, webhooks=webhooks)

    async def outbox(
        self, where: OutboxFilter | None = None, limit: int = 100, after: int = 0
    ) -> list[OutboxMessage]:
        with self._lock:
            return outbox(self._state.post, inside(where or _ALL), limit, after)

    async def resend(self, id: str, tenant: Tenant) -> OutboxMessage:
        with self._lock:
            shown = resend(self._state.post, id, tenant_name(tenant), self._clock())
            self._hint()
            return shown

    async def backlog(self) -> list[Backlog]:
        with self._lock:
            return backlog(self._state.post)

    async def webhooks(self) -> list[Webhook]:
        with self._lock:
            return sorted(self._state.post.webhooks.values(), key=lambda one: one.name)

    async def put_webhook(self, webhook: Webhook) -> bool:
        with self._lock:
            counted = put_webhook(self._state.post, webhook, self._clock())
            self._hint()
            return counted

    async def remove_webhook(self, name: str) -> bool:
        with self._lock:
            return self._state.post.webhooks.pop(name, None) is not None
