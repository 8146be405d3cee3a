"""How the outbox fares: what its sinks are owed, and which of them nobody has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from functools import partial
from uuid import UUID

from holdfast.contract import Store
from holdfast.escaping import escaped
from holdfast.records import ANY, SECOND, Backlog, Finding, MessageStatus, OutboxFilter, OutboxMessage
from holdfast.sealing.envelope import OURS

from .explain import Explanation
from .pages import gathered

LAG_SECONDS = 60.0
SHOWN = 5  # sinks that a finding names
PENDING_MAX = 1000  # messages that are looked at, the oldest,
PAGES_MAX = 20  # in so many pages at most: each may hold 8 MiB of payloads
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
    where = OutboxFilter(run=run, tenant=ANY, statuses=(MessageStatus.PENDING, MessageStatus.DEAD))
    left = await _first(store, where)
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
    """The finding about messages that relays have given back because they could not open them."""
    shut, count = await _sealed(store)
    if not shut:
        return []
    first = shut[0]
    why = "" if first.error is None else first.error.message
    more = f", and {count - 1:,} more" if count > 1 else ""
    return [
        Finding(
            level="error",
            what=f"message {escaped(first.id)} to {_quoted(first.sink)} cannot be opened where it was tried: "
            f"{escaped(why)}{more}",
            mend="give every worker the codec and the keys, or the sink to those that have them; "
            "`holdfast outbox ls` says which messages and why",
            runs=tuple(dict.fromkeys(one.run for one in shut)),
        )
    ]


async def _sealed(store: Store) -> tuple[list[OutboxMessage], int]:
    """The first of the oldest pending messages that could not be opened, and how many there are."""
    where = OutboxFilter(statuses=(MessageStatus.PENDING,), tenant=ANY)
    first: list[OutboxMessage] = []
    count, left, after = 0, PENDING_MAX, 0
    for _ in range(PAGES_MAX):
        page = await store.outbox(where, left, after) if left else ()
        if not page:
            break
        found = [one for one in page if one.error is not None and one.error.kind == OURS]
        first += found[: SHOWN - len(first)]
        count, left, after = count + len(found), left - len(page), page[-1].seq
    return first, count


async def _first(store: Store, where: OutboxFilter) -> list[OutboxMessage]:
    """The oldest messages, as many as are named."""
    return await gathered(partial(store.outbox, where), SHOWN, 0, lambda one: one.seq)


async def _dead(store: Store, owed: Sequence[Backlog]) -> list[Finding]:
    count = sum(one.dead for one in owed)
    if not count:
        return []
    oldest = await _first(store, OutboxFilter(statuses=(MessageStatus.DEAD,), tenant=ANY))
    dead = [one for one in owed if one.dead]
    sinks = ", ".join(f"{escaped(one.sink)} ({one.dead:,})" for one in dead[:SHOWN])
    sinks += f" and {len(dead) - SHOWN:,} more sinks" if len(dead) > SHOWN else ""
    return [
        Finding(
            level="warning",
            what=f"{count:,} dead letter{'s' * (count != 1)}, which are not tried any more: {sinks}",
            mend="`holdfast outbox ls --status dead` says why; `holdfast outbox resend ID` sends one again",
            runs=tuple(dict.fromkeys(one.run for one in oldest)),
        )
    ]


def _quoted(name: str | None) -> str:
    return f"'{escaped(name)}'"


def _messages(count: int) -> str:
    return f"{count:,} message{'s' * (count != 1)}"
