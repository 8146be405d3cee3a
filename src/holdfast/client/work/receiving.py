"""Answers of the server as records of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.client.refusals import Problem
from holdfast.contract import START
from holdfast.errors import TooLarge, Unavailable, UsageError
from holdfast.http.problems import Code
from holdfast.lifecycle import Status, StepStatus
from holdfast.records import (
    SECOND,
    Answer,
    Claim,
    Held,
    HeldRecord,
    Instant,
    Item,
    Json,
    LeaseState,
    Loaded,
    Step,
    Verdict,
)
from holdfast.wire.answers import (
    CANCELLED,
    HELD,
    PAUSED,
    UNREADABLE,
    ItemApplied,
    Leased,
    LeaseNews,
    LoadedPage,
    RecordedStep,
    RunRecord,
    StateNews,
    Stray,
)
from holdfast.wire.values import Value, instant_of, optional_seconds, units_of

from .book import Entry

STATES: Mapping[str, Answer] = {
    HELD: Answer.APPLIED,
    CANCELLED: Answer.CANCELLED,
    UNREADABLE: Answer.SEALED,
}
LOST = Verdict(answer=Answer.LOST, status=Status.LEASED)
BUSY = Verdict(answer=Answer.BUSY, status=Status.LEASED)
STARTED = "started"  # the status in the row of a child that was started and is not awaited


class ItemAnswer(ItemApplied, frozen=True, kw_only=True):
    """The answer to one item of a batch. problem: it was not applied."""

    problem: Problem | UnsetType = UNSET


class BatchAnswer(msgspec.Struct, frozen=True):
    """The answers to the items of a batch, in their order."""

    items: tuple[ItemAnswer, ...]


def entry_of(lease: Leased, worker: str, since: float) -> Entry:
    """Return a new lease for the book. since: when it began, by the clock of this process."""
    at = lease.claimed_at
    return Entry(
        run=lease.run,
        fence=lease.fence,
        token=lease.token,
        worker=worker,
        tenant=lease.tenant,
        claimed_at=at,
        created_at=_at(lease.created_ms, at),
        since=since,
        used_at=since,
    )


def entry_of_stray(stray: Stray, worker: str, now: float) -> Entry:
    """Return a lease whose claim was not answered. Its times are not known, and not needed."""
    return Entry(
        run=stray.run,
        fence=stray.fence,
        token=stray.token,
        worker=worker,
        tenant="",
        claimed_at=0,
        created_at=0,
        since=now,
        used_at=now,
        is_stray=True,
    )


def claim_of(lease: Leased, lease_seconds: float) -> Claim:
    """Return a claimed run. Its times are those of the store's clock."""
    at = lease.claimed_at
    return Claim(
        id=lease.run,
        type=lease.type,
        tenant=lease.tenant,
        params=_text(lease.params),
        fence=lease.fence,
        attempt=lease.attempt,
        crashes=lease.crashes,
        max_attempts=lease.max_attempts,
        created_at=_at(lease.created_ms, at),
        lease_until=at + int(lease_seconds * SECOND),
        steps=steps_of(lease.steps, at),
        logs=lease.logs,
        timeout_at=instant_of(lease.timeout_ms, at),
        kind=lease.kind,
        parent=lease.parent,
        cost=units_of(lease.cost),
        budget=_units(lease.budget),
        account=lease.account,
        left=_units(lease.left),
        labels_json=_labels(lease.labels),
        run_at=_at(lease.due_ms, at),
        trace=lease.trace,
        unread=lease.unread,
    )


def steps_of(steps: Iterable[RecordedStep], at: Instant) -> tuple[Step, ...]:
    """Return recorded steps. at: when the lease was claimed."""
    return tuple([_step(one, at) for one in steps])


def _step(one: RecordedStep, at: Instant) -> Step:
    return Step(
        seq=one.seq,
        key=one.key,
        kind=one.kind,
        status=one.status,
        attempts=one.attempts,
        output=_optional(one.output),
        error_json=_optional(one.error),
        cost=units_of(one.cost),
        topic=one.topic,
        due_at=instant_of(one.due_ms, at),
        fence=one.fence,
        started_at=instant_of(one.started_ms, at),
        finished_at=instant_of(one.finished_ms, at),
        max_attempts=one.max_attempts,
        timeout_seconds=optional_seconds(one.timeout_ms),
        ask=_optional(one.ask),
        digest=one.digest,
        child=one.child,
        wake=_optional(one.wake),
        waits=one.waits,
    )


def loaded_of(page: LoadedPage, after: int, at: Instant) -> Loaded:
    """Return one page of a large run."""
    first = after == START
    return Loaded(
        answer=Answer.APPLIED,
        params=_text(page.params) if first else None,
        labels_json=_labels(page.labels) if first else None,
        steps=steps_of(page.steps, at),
        more=page.more,
    )


def record_of(record: RunRecord) -> HeldRecord:
    """Return the fields of a held run."""
    error = _text(record.error)
    return HeldRecord(
        priority=record.priority,
        limit_key=record.limit_key,
        timeout_seconds=optional_seconds(record.timeout_ms),
        ttl_seconds=optional_seconds(record.ttl_ms),
        budget_units=_units(record.budget),
        parent_step=record.parent_step,
        error_json=None if error == "null" else error,
        last_error=record.last_error,
    )


def held_of(news: LeaseNews, at: Instant) -> Held:
    """Return the news of a heartbeat about one lease."""
    return Held(
        answer=STATES.get(news.state, Answer.LOST),
        reason=news.reason,
        renewed=news.renewed,
        pause_asked=news.pause,
        settled=steps_of(news.settled, at),
        more=news.more,
    )


def state_of(news: StateNews) -> LeaseState:
    """Return the state of one lease."""
    return LeaseState(answer=STATES.get(news.state, Answer.LOST), pause_asked=news.pause)


def verdict_of(item: Item, answer: ItemAnswer, at: Instant) -> Verdict:
    """Return the verdict about one item. UsageError: the item is wrong. Unavailable: send it again."""
    if isinstance(answer.problem, Problem):
        return _refused(answer.problem)
    kept = [(one.key, _nullable(one.output)) for one in answer.kept]
    return Verdict(
        answer=Answer.PAUSED if answer.answer == PAUSED else Answer.APPLIED,
        status=answer.status or Status.LEASED,
        kept=(*kept, *_named_children(item, answer)),
        settled=steps_of(answer.settled, at),
        seq=answer.known,
        more=answer.more,
        left=_units(answer.left),
    )


def pause_of(answer: ItemAnswer) -> float:
    """Return the seconds for which the server wants to get no item of a busy run."""
    problem = answer.problem
    return (problem.retry_after_seconds or 0.0) if isinstance(problem, Problem) else 0.0


def _named_children(item: Item, answer: ItemAnswer) -> Iterable[tuple[str, Json]]:
    """Yield the rows of children that were only started: the server has made their ids."""
    for one in item.steps:
        if one.child is not None and one.status is StepStatus.SUCCEEDED and one.key in answer.children:
            row = {"run": answer.children[one.key], "status": STARTED}
            yield one.key, msgspec.json.encode(row).decode()


def _refused(problem: Problem) -> Verdict:
    said = problem.detail or problem.title or problem.code
    match problem.code:
        case Code.LEASE_LOST if problem.run_status == Status.CANCELLED:
            return Verdict(answer=Answer.CANCELLED, status=Status.CANCELLED)
        case Code.LEASE_LOST:
            return LOST
        case Code.RUN_BUSY:
            return BUSY
        case Code.UNREADABLE:
            return Verdict(answer=Answer.SEALED, status=Status.LEASED, refused=True, reason=said)
        case Code.TOO_LARGE:
            raise TooLarge(said)
        case Code.STORE_UNAVAILABLE | Code.INTERNAL | Code.SHUTTING_DOWN | Code.SERVER_FULL:
            raise Unavailable(said)
        case _:
            raise UsageError(said)


def _at(ms: float, claimed_at: Instant) -> Instant:
    return claimed_at + round(ms * 1000)


def _units(cost: float | None) -> int | None:
    return None if cost is None else units_of(cost)


def _text(value: Raw) -> Json:
    return bytes(value).decode()


def _optional(value: Value) -> Json | None:
    return None if value is UNSET else _text(value)


def _nullable(value: Raw) -> Json | None:
    text = _text(value)
    return None if text == "null" else text


def _labels(value: Raw) -> Json | None:
    text = _text(value)
    return None if text == "{}" else text
