"""Messages of the outbox: rows, their queues, and the sets that lead to them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from holdfast.records import Instant, Json, MessageStatus, Outbound

from .indexes import Entries
from .names import Names
from .snapshot import Command, Snapshot


class MessageRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A message, without its number and its payload, which are fields of their own."""

    id: str
    tenant: str
    run: UUID
    sink: str
    next_at: Instant
    created_at: Instant
    step: str | None = None
    key: str | None = None
    status: MessageStatus = MessageStatus.PENDING
    attempts: int = 0
    fence: int = 0
    held_by: str | None = None
    error: Json | None = None
    tried_at: Instant | None = None
    sent_at: Instant | None = None


_ROW = msgspec.json.Decoder(MessageRow)


def message_row(text: str) -> MessageRow:
    return _ROW.decode(text)


def message_key(names: Names, id: str) -> str:
    return names.of("message", id)


def line_of(names: Names, row: MessageRow) -> str | None:
    """Return the queue of messages with the same key."""
    return None if row.key is None else names.of("line", row.tenant, row.sink, row.key)


def _look(line: str) -> Command:
    """Return the command that reads the first messages of a line."""
    return ("ZRANGE", line, 0, 1)


def _entries(names: Names, row: MessageRow, *, first: bool) -> Entries:
    found: Entries = {}
    if row.status is MessageStatus.PENDING:
        found[names.of("outbox:pending", row.sink), row.id] = row.created_at
        found[names("outbox:owed", str(row.run)), row.id] = 0
        if first:
            found[names.of("outbox:due", row.sink), row.id] = row.next_at
    if row.status is MessageStatus.DEAD:
        found[names.of("outbox:dead", row.sink), row.id] = 0
    return found


class Post:
    """The messages that one verb reads and changes."""

    def __init__(self, snapshot: Snapshot, now: Instant) -> None:
        self._snapshot, self._names, self._now = snapshot, snapshot.names, now
        self._rows: dict[str, MessageRow | None] = {}
        # As the sets have it: the row, and if it is first.
        self._stored: dict[str, tuple[MessageRow, bool]] = {}
        self._lines: dict[str, list[str]] = {}  # the first messages of a line

    def row(self, id: str) -> MessageRow | None:
        """Return a message."""
        if id not in self._rows:
            text = self._snapshot.guarded("HGET", message_key(self._names, id), "row")
            row = self._rows[id] = None if text is None else message_row(text)
            if row is not None:
                self._stored[id] = msgspec.structs.replace(row), self.is_first(row)
        return self._rows[id]

    def prefetch(self, ids: Sequence[str]) -> None:
        """Read these messages in one round trip."""
        new = [id for id in ids if id not in self._rows]
        found = self._snapshot.all([("HGET", message_key(self._names, id), "row") for id in new])
        decoded = [message_row(text) for text in found if text is not None]
        lines = [line for row in decoded if (line := line_of(self._names, row)) and line not in self._lines]
        self._snapshot.all(map(_look, lines))

    def _line(self, line: str) -> list[str]:
        if line not in self._lines:
            self._lines[line] = list(self._snapshot.guarded(*_look(line)))
        return self._lines[line]

    def is_first(self, row: MessageRow) -> bool:
        """Return True when a message waits for no other: it is pending, and has no key or is first of its
        queue."""
        if row.status is not MessageStatus.PENDING:
            return False
        line = line_of(self._names, row)
        return line is None or self._line(line)[:1] == [row.id]

    def put(self, messages: Sequence[Outbound], tenant: str, run: UUID) -> None:
        """Add messages, as a part of the sender's commit. A known id changes nothing."""
        names = self._names
        keyed = [(one.sink, one.key) for one in messages if one.key is not None]
        lines = dict.fromkeys(names.of("line", tenant, sink, key) for sink, key in keyed)
        self._snapshot.all([
            *(("HGET", message_key(names, one.id), "row") for one in messages if one.id not in self._rows),
            *map(_look, lines),
        ])  # fmt: skip
        for new in messages:
            if self.row(new.id) is None:
                row = MessageRow(
                    id=new.id, tenant=tenant, run=run, step=new.step, sink=new.sink, key=new.key,
                    next_at=self._now, created_at=self._now,
                )  # fmt: skip
                self._rows[new.id] = row
                self._snapshot.do("HSET", message_key(self._names, row.id), "payload", new.payload)
                self.enter(row)
                self.save(row)

    def adopt(self, row: MessageRow) -> None:
        """Know a message that has come from another store."""
        self._rows[row.id] = row

    def enter(self, row: MessageRow) -> None:
        """Give a pending message the next number, behind all others."""
        names, line = self._names, line_of(self._names, row)
        sets = [names("outbox"), names("outbox:run", str(row.run))] + ([] if line is None else [line])
        self._snapshot.number("message", message_key(names, row.id), "seq", row.id, *sets)
        self._snapshot.do_once("ZADD", names("sinks"), 0, row.sink)
        if line is not None and len(known := self._line(line)) < 2:
            known.append(row.id)

    def leave(self, row: MessageRow) -> None:
        """Remove a message from its queue: it is not pending any more. The next one is due at once."""
        line = line_of(self._names, row)
        if line is None:
            return
        known = self._line(line)
        self._snapshot.do("ZREM", line, row.id)
        if row.id not in known:
            return
        following = self.row(known[1]) if len(known) > 1 and known[0] == row.id else None
        known.remove(row.id)
        if following is not None:
            following.next_at = self._now
            self.save(following)

    def save(self, row: MessageRow) -> None:
        """Write a message that has changed."""
        first = self.is_first(row)
        old = self._stored.get(row.id)
        before = {} if old is None else _entries(self._names, old[0], first=old[1])
        self._move(before, _entries(self._names, row, first=first))
        self._stored[row.id] = msgspec.structs.replace(row), first
        text = msgspec.json.encode(row).decode()
        self._snapshot.do("HSET", message_key(self._names, row.id), "row", text)

    def _move(self, before: Entries, after: Entries) -> None:
        """Write the difference. One verb may move a message twice, so the order of these changes counts."""
        for entry in before:
            if entry not in after:
                self._snapshot.do("ZREM", *entry)
        for (key, member), score in after.items():
            if before.get((key, member)) != score:
                self._snapshot.do("ZADD", key, score, member)
