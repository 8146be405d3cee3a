"""Batches of workers in any language: what their runs have done. Each item is answered on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.errors import HoldfastError, StoreError
from holdfast.escaping import escaped
from holdfast.http.call import Call
from holdfast.http.operation import operation
from holdfast.http.problems import Code, Problem, Refusal, refusal_of
from holdfast.records import Answer, Item, Run, Scope, Verdict
from holdfast.wire import nulls, requests
from holdfast.wire.answers import Answered, ItemApplied
from holdfast.wire.items import Origin, UnknownOperation, item_of, names_to_resolve
from holdfast.wire.requests import BatchItem
from holdfast.wire.writing import applied

from .fields import OneTenant
from .leases import lost, origin_of
from .workers import TAG, Protocol, begin

REFUSED = "refused"
BUSY_SECONDS = 0.1
_ONE_ITEM = "a batch has at most one item of a run: send the next one after the answer"
_TAKEN = "another item was applied under this seq: send that one again, or this one under the next seq"

Made = tuple[Item, Origin]


class ItemAnswer(ItemApplied, frozen=True, kw_only=True):
    """The answer to one item of a batch. problem: it was not applied, and nothing of it was written."""

    problem: Problem | UnsetType = UNSET


class BatchAnswer(Answered, frozen=True, kw_only=True):
    """The answers to the items of a batch, in their order. drain: this server is stopping."""

    items: tuple[ItemAnswer, ...]
    drain: bool


class _Named(msgspec.Struct):
    """The part of an item that its answer repeats, whatever else is wrong with it."""

    run: Any = None
    seq: Any = 0


@operation(
    "POST",
    "/leases/batch",
    tag=TAG,
    scope=Scope.WORK,
    audited=False,
    body_bytes=requests.BODY_BYTES,
    part="worker",
)
async def batch(call: Call, query: OneTenant, headers: Protocol, body: requests.RawBatch) -> BatchAnswer:
    """Write what runs have done: checkpoint, park, complete, fail, retry, release, advance or begin.

    Each item has the fence and the token of its lease, and `seq`, which counts the items of the lease. The
    same fence and seq again is answered as the first time, and changes nothing. A lost lease is the problem
    `lease-lost`, with status 409, of that item alone.
    """
    begin(call, query, headers)
    items = [_decoded(one) for one in body.items]
    answers: list[Made | Refusal] = await _made(call, items)
    given = [one for one in answers if not isinstance(one, Refusal)]
    outcomes = iter(await _committed(call, given))
    found = [
        _refused(call, raw, one)
        if isinstance(one, Refusal)
        else _answer(call, raw, item, one, next(outcomes))
        for raw, item, one in zip(body.items, items, answers, strict=True)
    ]
    return BatchAnswer(items=tuple(found), drain=call.api.stopping)


async def _committed(call: Call, given: Sequence[Made]) -> list[Verdict | HoldfastError]:
    """Commit the items. If the store has not answered for one of them, the worker sends all of them again:
    those that were applied are answered as the first time.
    """
    outcomes = await call.api.work.commits.commit([(item, origin.has_parent) for item, origin in given])
    for one in outcomes:
        if isinstance(one, StoreError):
            raise one
    return outcomes


def _decoded(raw: msgspec.Raw) -> BatchItem | Refusal:
    try:
        found: BatchItem = nulls.read(raw, BatchItem)
    except msgspec.ValidationError as error:
        return Refusal(Code.BAD_VALUE, escaped(str(error), 500))
    return found


async def _made(call: Call, items: Sequence[BatchItem | Refusal]) -> list[Made | Refusal]:
    """Return the records of the items, or the refusals of those that are wrong."""
    seen: set[tuple[UUID, int]] = set()
    checked = [await _checked(call, one, seen) for one in items]
    good = [one for one in checked if not isinstance(one, Refusal)]
    published: tuple[str, ...] = ()
    if any(names_to_resolve(one) for one, _ in good):
        published = tuple([one.type for one in await call.api.store.definitions()])
    records = [await _record(call, *one) for one in good]
    made = iter(await _in_turn(call, good, published, records))
    return [one if isinstance(one, Refusal) else next(made) for one in checked]


async def _checked(
    call: Call, item: BatchItem | Refusal, seen: set[tuple[UUID, int]]
) -> tuple[BatchItem, Origin] | Refusal:
    """Return an item with the facts of its lease; refuse one that its worker does not hold."""
    if isinstance(item, Refusal):
        return item
    origin = await origin_of(call, item)
    if origin is None:
        return lost()
    # A worker may have held the run before, under another fence: that item is refused on its own.
    if (item.run, item.fence) in seen:
        return Refusal(Code.BAD_VALUE, _ONE_ITEM)
    seen.add((item.run, item.fence))
    if call.api.work.numbers.is_taken(item):
        return Refusal(Code.CONFLICT, _TAKEN)
    return item, origin


async def _record(call: Call, item: BatchItem, origin: Origin) -> Run | None:
    """Return the run itself, if the item needs it: the next run of a chain takes over its options."""
    if item.continue_as is None:
        return None
    return await call.api.store.get(item.run, origin.tenant)


async def _in_turn(
    call: Call,
    items: Sequence[tuple[BatchItem, Origin]],
    published: Sequence[str],
    records: Sequence[Run | None],
) -> list[Made | Refusal]:
    """Make the records; those of a large batch in a thread."""

    def all_of_them() -> list[Made | Refusal]:
        return [
            _one(call, item, origin, published, record)
            for (item, origin), record in zip(items, records, strict=True)
        ]

    return await call.api.bodies.apart(call.request.size, all_of_them)


def _one(
    call: Call, item: BatchItem, origin: Origin, published: Sequence[str], record: Run | None
) -> Made | Refusal:
    if item.continue_as is not None and record is None:
        return lost()  # deleted: the run was taken from its worker
    try:
        return item_of(item, origin, call.api.world, published, record), origin
    except UnknownOperation as error:
        return Refusal(Code.UNKNOWN_OPERATION, str(error))
    except HoldfastError as error:
        return refusal_of(error)


def _answer(
    call: Call, raw: msgspec.Raw, sent: BatchItem | Refusal, made: Made, outcome: Verdict | HoldfastError
) -> ItemAnswer:
    item, origin = made
    if isinstance(outcome, HoldfastError):
        return _refused(call, raw, refusal_of(outcome))
    match outcome.answer:
        case Answer.APPLIED | Answer.PAUSED:
            assert isinstance(sent, BatchItem)
            call.api.work.numbers.applied(sent)
            return ItemAnswer(**applied(item, outcome, origin.claimed_at))
        case Answer.BUSY:
            return _refused(call, raw, Refusal(Code.RUN_BUSY, retry_after_seconds=BUSY_SECONDS))
        case Answer.SEALED:
            return _refused(call, raw, Refusal(Code.UNREADABLE, outcome.reason))
        case _:
            return _refused(call, raw, lost(is_cancelled=outcome.answer is Answer.CANCELLED))


def _refused(call: Call, raw: msgspec.Raw, refusal: Refusal) -> ItemAnswer:
    run, seq = _named(raw)
    problem = refusal.problem(call.id, call.api.problems_page(call.request))
    return ItemAnswer(run=run, seq=seq, answer=REFUSED, problem=problem)


def _named(raw: msgspec.Raw) -> tuple[UUID | None, int]:
    """Return the run and the number of an item, as far as they can be read."""
    try:
        found = msgspec.json.decode(raw, type=_Named)
        run = UUID(found.run) if isinstance(found.run, str) else None
    except (msgspec.DecodeError, ValueError):
        return None, 0
    return run, found.seq if type(found.seq) is int else 0
