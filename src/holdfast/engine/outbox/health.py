"""The health of the outbox: messages that are late or dead, and sinks that no worker serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC
from functools import partial
from uuid import UUID

from holdfast.contract import Store
from holdfast.engine.explain.explanation import Explanation
from holdfast.engine.pages import gathered
from holdfast.escaping import escaped, inline
from holdfast.records import ANY, SECOND, Backlog, Finding, MessageStatus, OutboxFilter, OutboxMessage
from holdfast.sealing.envelope import OURS
from holdfast.transfer.places import is_sent_elsewhere

LAG_SECONDS = 60.0
SHOWN = 5  # sinks that a finding names
PENDING_MAX = 1000  # messages that are read, the oldest
PAGES_MAX = 20  # pages that are read: each may hold 8 MiB of payloads
WHY_MAX = 200


async def unserved(store: Store) -> list[Backlog]:
    """Sinks with messages for which there is no webhook, and no function in a live worker."""
    owed = [one for one in await store.backlog() if one.pending]
    if not owed:
        return []
    known = {one.name for one in await store.webhooks()}
    known |= {name for worker in (await store.stats()).workers for name in worker.sinks}
    return [one for one in owed if one.sink not in known]


def nobody_has(sink: str) -> str:
    """The sentence for an unserved sink."""
    return f"no live worker has a function for sink {_quoted(sink)}, and no webhook has this name"


async def with_messages(store: Store, run: UUID, explanation: Explanation) -> Explanation:
    """The explanation of an ended run, with its messages that are not delivered."""
    where = OutboxFilter(run=run, tenant=ANY, statuses=(MessageStatus.PENDING, MessageStatus.DEAD))
    left = await _first(store, where)
    if not left:
        return explanation
    without_server = {one.sink for one in await unserved(store)}
    fates = [f"message {inline(one.id)} to {_quoted(one.sink)} {_fate(one, without_server)}" for one in left]
    data = {
        **explanation.data,
        "messages": [{"id": one.id, "sink": one.sink, "status": one.status} for one in left],
    }
    return Explanation(explanation.reason, f"{explanation.text} Not delivered: {'; '.join(fates)}.", data)


def _fate(one: OutboxMessage, without_server: set[str]) -> str:
    if is_sent_elsewhere(one):
        return "moved to another store with the run: that store sends it"
    if one.status is MessageStatus.DEAD:
        because = f" ({inline(why(one))})" if one.error is not None else ""
        return f"is a dead letter{because}: `holdfast outbox resend {escaped(one.id)}` sends it again"
    if one.sink in without_server:
        return f"waits: {nobody_has(one.sink)}"
    if one.next_at is None:
        return f"waits for an earlier message with the same key {_quoted(one.key)}"
    if one.error is None:
        return "waits for its first attempt"
    at = f"{one.next_at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return f"failed ({inline(why(one))}); the next attempt is at {at}"


def why(one: OutboxMessage) -> str:
    """The error of the last attempt in one line; empty if there is none."""
    error = one.error
    parts = () if error is None else (error.type or error.kind, error.message)
    return escaped(": ".join(part for part in parts if part).replace("\n", " "), WHY_MAX)


async def findings(store: Store) -> list[Finding]:
    """The findings of `doctor` about the outbox."""
    owed = await store.backlog()
    if not owed:
        return [Finding(level="ok", what="every message is delivered")]
    without_server = {one.sink for one in await unserved(store)}
    served = [one for one in owed if one.pending and one.sink not in without_server]
    return [
        *[_unserved(one) for one in owed if one.sink in without_server][:SHOWN],
        _lag(served, await store.now()),
        *(await _unopenable(store)),
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
        mend="`holdfast outbox ls` says why; `holdfast outbox resend ID` sends a message now",
    )


def _age(one: Backlog, now: int) -> float:
    return (now - (one.oldest_at or now)) / SECOND


async def _unopenable(store: Store) -> list[Finding]:
    """The finding about messages that relays could not decrypt."""
    sealed, count = await _those(store, MessageStatus.PENDING, _is_sealed)
    if not sealed:
        return []
    first = sealed[0]
    why = "" if first.error is None else first.error.message
    more = f", and {count - 1:,} more" if count > 1 else ""
    return [
        Finding(
            level="error",
            what=f"message {escaped(first.id)} to {_quoted(first.sink)} could not be decrypted by a worker: "
            f"{escaped(why)}{more}",
            mend="give every worker the codec and the keys, or the sink to those that have them; "
            "`holdfast outbox ls` says which messages and why",
            runs=tuple(dict.fromkeys(one.run for one in sealed)),
        )
    ]


def _is_sealed(message: OutboxMessage) -> bool:
    return message.error is not None and message.error.kind == OURS


async def _those(
    store: Store, status: MessageStatus, is_one: Callable[[OutboxMessage], bool]
) -> tuple[list[OutboxMessage], int]:
    """Return the oldest messages of a status that are of a kind, and their number."""
    where = OutboxFilter(statuses=(status,), tenant=ANY)
    first: list[OutboxMessage] = []
    count, left, after = 0, PENDING_MAX, 0
    for _ in range(PAGES_MAX):
        page = await store.outbox(where, left, after) if left else ()
        if not page:
            break
        found = [one for one in page if is_one(one)]
        first += found[: SHOWN - len(first)]
        count, left, after = count + len(found), left - len(page), page[-1].seq
    return first, count


async def _first(store: Store, where: OutboxFilter) -> list[OutboxMessage]:
    """Return the oldest messages, as many as a finding names."""
    return await gathered(partial(store.outbox, where), SHOWN, 0, lambda one: one.seq)


async def _dead(store: Store, owed: Sequence[Backlog]) -> list[Finding]:
    """The finding about dead letters. Messages of runs that have moved are none: the other store sends
    them."""
    left = Counter({one.sink: one.dead for one in owed if one.dead})
    oldest: list[OutboxMessage] = []
    where, after, is_all = OutboxFilter(statuses=(MessageStatus.DEAD,), tenant=ANY), 0, not left
    for _ in range(0 if is_all else PAGES_MAX):
        page = await store.outbox(where, PENDING_MAX, after)
        if is_all := not page:
            break
        after = page[-1].seq
        left.subtract(one.sink for one in page if is_sent_elsewhere(one))
        oldest += [one for one in page if not is_sent_elsewhere(one)][: SHOWN - len(oldest)]
    left = +left
    count = left.total()
    if not count or (is_all and not oldest):
        return []
    sinks = ", ".join(f"{escaped(sink)} ({number:,})" for sink, number in list(left.items())[:SHOWN])
    sinks += f" and {len(left) - SHOWN:,} more sinks" if len(left) > SHOWN else ""
    if not oldest:
        what = f"{count:,} more dead messages, which this has not looked at: {sinks}"
        return [Finding(level="ok", what=f"the oldest dead messages have moved to another store; {what}")]
    return [
        Finding(
            level="warning",
            what=f"{'' if is_all else 'up to '}{count:,} dead letter{'s' * (count != 1)}, which "
            f"{'is' if count == 1 else 'are'} not retried any more: {sinks}",
            mend="`holdfast outbox ls --status dead` says why; `holdfast outbox resend ID` sends one again",
            runs=tuple(dict.fromkeys(one.run for one in oldest)),
        )
    ]


def _quoted(name: str | None) -> str:
    return f"'{inline(name)}'"


def _messages(count: int) -> str:
    return f"{count:,} message{'s' * (count != 1)}"
