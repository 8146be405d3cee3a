"""How the outbox fares: what its sinks are owed, and which of them nobody has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from uuid import UUID

from holdfast.escaping import escaped
from holdfast.records import SECOND, Backlog, Finding, MessageStatus, OutboxFilter, OutboxMessage
from holdfast.sealing.envelope import OURS
from holdfast.store import Store

from .explain import Explanation

LAG_SECONDS = 60.0
SHOWN = 5  # sinks that a finding names
PENDING_MAX = 1000  # messages that are looked at, the oldest
WHY_MAX = 200


async def unserved(store: Store) -> list[Backlog]:
    """Sinks with messages that no live worker has a function for, and no webhook is called like."""
    owed = [one for one in await store.backlog() if one.pending]
    if not owed:
        return []
    known = {one.name for one in await store.webhooks()}
    known |= {name for worker in (await store.stats()).workers for name in worker.sinks}
    return [one for one in owed if one.sink not in known]


def nobody_has(sink: str) -> str:
    """What is wrong with a sink that is unserved."""
    return f"no live worker has a function sink {_quoted(sink)}, and no webhook of that name"


async def with_messages(store: Store, run: UUID, told: Explanation) -> Explanation:
    """What is said of a run that has ended, and of its messages that have not arrived."""
    where = OutboxFilter(run=run, tenant=None, statuses=(MessageStatus.PENDING, MessageStatus.DEAD))
    left = await store.outbox(where, SHOWN)
    if not left:
        return told
    nobodys = {one.sink for one in await unserved(store)}
    said = [f"{escaped(one.id)} to {_quoted(one.sink)} {_fate(one, nobodys)}" for one in left]
    data = {**told.data, "messages": [{"id": one.id, "sink": one.sink, "status": one.status} for one in left]}
    return Explanation(told.reason, f"{told.text} Not delivered: {'; '.join(said)}.", data)


def _fate(one: OutboxMessage, nobodys: set[str]) -> str:
    if one.status is MessageStatus.DEAD:
        because = f" ({why(one)})" if one.error is not None else ""
        return f"is a dead letter{because}: `holdfast outbox resend {escaped(one.id)}` sends it again"
    if one.sink in nobodys:
        return f"waits, {nobody_has(one.sink)}"
    if one.next_at is None:
        return f"waits behind another message of its key {_quoted(one.key)}"
    if one.error is None:
        return "waits for its first try"
    return f"failed ({why(one)}) and is tried again at {one.next_at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def why(one: OutboxMessage) -> str:
    """What its last try has failed of, in one line; empty: it has not."""
    error = one.error
    parts = () if error is None else (error.type or error.kind, error.message)
    return escaped(": ".join(part for part in parts if part).replace("\n", " "), WHY_MAX)


async def findings(store: Store) -> list[Finding]:
    """What a check-up says of it."""
    owed = await store.backlog()
    if not owed:
        return [Finding(level="ok", what="every message is delivered")]
    nobodys = {one.sink for one in await unserved(store)}
    served = [one for one in owed if one.pending and one.sink not in nobodys]
    return [
        *[_unserved(one) for one in owed if one.sink in nobodys][:SHOWN],
        _lag(served, await store.now()),
        *(await _shut(store)),
        *(await _dead(store, owed)),
    ]


def _unserved(one: Backlog) -> Finding:
    return Finding(
        level="warning",
        what=f"{_messages(one.pending)} to {_quoted(one.sink)} wait{'s' * (one.pending == 1)}: "
        f"{nobody_has(one.sink)}",
        mend=f"start a worker whose app has @app.sink({_quoted(one.sink)}), or "
        f"`holdfast sink add {escaped(one.sink)} URL`",
    )


def _lag(served: list[Backlog], now: int) -> Finding:
    late = [one for one in served if one.oldest_at is not None and _age(one, now) > LAG_SECONDS]
    if not late:
        return Finding(level="ok", what=f"no message has waited longer than {LAG_SECONDS:g} s for its sink")
    named = ", ".join(
        f"{escaped(one.sink)} ({one.pending:,}, {_age(one, now):,.0f} s)" for one in late[:SHOWN]
    )
    return Finding(
        level="warning",
        what=f"messages wait for their sinks: {named}",
        mend="`holdfast outbox ls` says why; `holdfast outbox resend ID` does not wait for the next try",
    )


def _age(one: Backlog, now: int) -> float:
    return (now - (one.oldest_at or now)) / SECOND


async def _shut(store: Store) -> list[Finding]:
    """What relays have given back because they could not open it, of the oldest that wait."""
    oldest = await store.outbox(OutboxFilter(statuses=(MessageStatus.PENDING,), tenant=None), PENDING_MAX)
    shut = [one for one in oldest if one.error is not None and one.error.kind == OURS]
    if not shut:
        return []
    first = shut[0]
    why = "" if first.error is None else first.error.message
    more = f", and {len(shut) - 1:,} more" if len(shut) > 1 else ""
    return [
        Finding(
            level="error",
            what=f"message {escaped(first.id)} to {_quoted(first.sink)} cannot be opened where it was tried: "
            f"{escaped(why)}{more}",
            mend="give every worker the codec and the keys, or the sink to those that have them; "
            "`holdfast outbox ls` says which messages and why",
            runs=tuple(dict.fromkeys(one.run for one in shut[:SHOWN])),
        )
    ]


async def _dead(store: Store, owed: Sequence[Backlog]) -> list[Finding]:
    count = sum(one.dead for one in owed)
    if not count:
        return []
    newest = await store.outbox(OutboxFilter(statuses=(MessageStatus.DEAD,), tenant=None), SHOWN)
    dead = [one for one in owed if one.dead]
    sinks = ", ".join(f"{escaped(one.sink)} ({one.dead:,})" for one in dead[:SHOWN])
    sinks += f" and {len(dead) - SHOWN:,} more sinks" if len(dead) > SHOWN else ""
    return [
        Finding(
            level="warning",
            what=f"{count:,} dead letter{'s' * (count != 1)}, which are not tried any more: {sinks}",
            mend="`holdfast outbox ls --status dead` says why; `holdfast outbox resend ID` sends one again",
            runs=tuple(dict.fromkeys(one.run for one in newest)),
        )
    ]


def _quoted(name: str | None) -> str:
    return f"'{escaped(name)}'"


def _messages(count: int) -> str:
    return f"{count:,} message{'s' * (count != 1)}"
