"""Verbs about held runs: each names its lease by the token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES
from holdfast.bounds import page as page_of
from holdfast.contract import START, TRANSACTION_SECONDS, OwnEngine
from holdfast.errors import CannotOpen, NotAllowed, TooLarge, UnknownRun, UsageError
from holdfast.lifecycle import Status
from holdfast.records import (
    Answer,
    Held,
    HeldRecord,
    Item,
    Lease,
    LeaseState,
    Loaded,
    Renewal,
    Running,
    Step,
    Tenant,
    Verdict,
)
from holdfast.records.moves import RELEASE
from holdfast.records.shown import without_large
from holdfast.records.sizes import shown_step_bytes
from holdfast.wire import requests
from holdfast.wire.answers import Heartbeat, LoadedPage, Shown, States
from holdfast.world import World

from . import receiving, sending
from .book import Book, Entry
from .link import Gone, Link
from .verbs import ClientVerbs

RENEW_SHARE = 1 / 3  # of a lease: the longest time for one heartbeat, with its retries
BODY_BYTES = requests.BODY_BYTES - 1024  # of the items of one batch
LAST_SEQ = 2**31 - 1
_LOST = LeaseState(answer=Answer.LOST)

Encoded = tuple[int, Entry, bytes]  # the place of an item in its batch, its lease, and its JSON


class HoldVerbs(ClientVerbs):
    """The verbs of a worker about the runs that it holds; a part of `RemoteStore`."""

    world: World
    link: Link

    def __init__(self) -> None:
        self.book = Book()

    # -- reads ---------------------------------------------------------------------------------

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        """Read one page of a large run."""
        held = self.book.find(lease.run, lease.fence)
        if held is None:
            return Loaded(answer=Answer.LOST)
        body = requests.LoadRequest(
            run=lease.run, fence=lease.fence, token=held.token, after=after, bytes=bytes
        )
        try:
            page = await self.link.ask("load", body, LoadedPage)
        except Gone as gone:
            return Loaded(answer=Answer.CANCELLED if gone.is_cancelled else Answer.LOST)
        except NotAllowed:
            return Loaded(answer=Answer.LOST)
        except CannotOpen as error:
            return Loaded(answer=Answer.SEALED, reason=str(error))
        return receiving.loaded_of(page, after, held.claimed_at)

    async def held_record(self, lease: Lease) -> HeldRecord | None:
        """Read the fields of a held run by its lease."""
        held = self.book.find(lease.run, lease.fence)
        if held is None:
            return None
        body = requests.LoadRequest(
            run=lease.run, fence=lease.fence, token=held.token, after=LAST_SEQ, record=True
        )
        try:
            page = await self.link.ask("load", body, LoadedPage)
        except (Gone, NotAllowed):
            return None
        return None if page.record is None else receiving.record_of(page.record)

    async def steps(
        self,
        run: UUID,
        tenant: Tenant,
        *,
        largest: int | None = None,
        after: int | None = None,
        before: int | None = None,
        bytes: int | None = None,
    ) -> Sequence[Step]:
        """Read the steps of a run; those of a held run by its lease. A page from the end, or of other `bytes`
        than usual, is made here from all steps.
        """
        if before is not None or bytes is not None:
            every = await self.steps(run, tenant, largest=largest)
            asked = [one for one in every if one.seq > (START if after is None else after)]
            if before is not None:
                asked = [one for one in reversed(every) if one.seq < before]
            return page_of(asked, shown_step_bytes, len(asked), bytes)
        held = self.book.of_run(run)
        found = None if held is None or after is not None else await self._held_steps(held)
        if found is not None:
            return found if largest is None else [without_large(one, largest) for one in found]
        try:
            return await self._of(tenant).steps(run, largest=largest, after=after)
        except NotAllowed:
            if held is None:
                raise
            raise UnknownRun(run) from None  # its lease has ended, and the key shows nothing else

    async def _held_steps(self, held: Entry) -> list[Step] | None:
        lease, found = Lease(run=held.run, fence=held.fence), list[Step]()
        while True:
            page = await self.load(lease, found[-1].seq if found else START)
            if page.answer is not Answer.APPLIED:
                return None
            found += page.steps
            if not page.more:
                return found

    # -- writes --------------------------------------------------------------------------------

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        """Send items, in as few requests as fit. Items of leases that are not held here are lost.

        Leases that have ended are forgotten when all items are answered: if one of them is refused, or not
        answered, the engine sends all of them again.
        """
        now = self.world.monotonic()
        sent: list[Encoded] = []
        verdicts = [receiving.LOST] * len(batch)
        for place, item in enumerate(batch):
            held = self.book.find(item.run, item.fence)
            if held is not None:
                held.used_at, held.opens = now, item.known is not None
                sent.append((place, held, msgspec.json.encode(sending.batch_item(item, held))))
        try:
            # An item that was answered `busy` is sent again alone: nothing else waits for it here.
            if busy := max([0.0, *(held.busy_until - now for _, held, _ in sent)]):
                await asyncio.sleep(busy)
            for part in _parts(sent):
                await self._send(batch, part, verdicts)
        except NotAllowed:
            pass  # nothing can be written: the leases expire, and the claim loop says why
        for place, held, _ in sent:
            if _has_ended(verdicts[place]):
                self.book.drop(*held.name)
        return verdicts

    async def _send(self, batch: Sequence[Item], part: Sequence[Encoded], verdicts: list[Verdict]) -> None:
        body = b'{"items":[' + b",".join([text for _, _, text in part]) + b"]}"
        answer = await self.link.ask("batch", body, receiving.BatchAnswer)
        for (place, held, _), one in zip(part, answer.items, strict=True):
            verdict = receiving.verdict_of(batch[place], one, held.claimed_at)
            verdicts[place] = verdict
            if verdict.answer is Answer.BUSY:
                held.busy_until = self.world.monotonic() + receiving.pause_of(one)

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        """Refuse: the database is not reached from here."""
        raise UsageError(
            "ctx.transaction needs a worker at the store itself: this one works over HTTP, and has no "
            "transaction of the store; write with ctx.step and ctx.idempotency_key"
        )

    # -- leases --------------------------------------------------------------------------------

    def renew(self, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
        """Send a heartbeat, from the thread of the worker that renews."""
        now = self.world.monotonic()
        found = [self.book.find(one.run, one.fence) for one in leases]
        self.book.prune(worker, {(one.run, one.fence) for one in leases}, now, lease_seconds)
        named = [(lease, held) for lease, held in zip(leases, found, strict=True) if held is not None]
        for lease, held in named:
            held.used_at, held.opens = now, lease.known is not None
        body = requests.HeartbeatRequest(
            worker=worker,
            lease_ms=round(lease_seconds * 1000, 3),
            leases=tuple([sending.renewed(lease, held) for lease, held in named]),
        )
        try:
            answer = self.link.ask_blocking("heartbeat", body, Heartbeat, RENEW_SHARE * lease_seconds)
        except NotAllowed:
            return Renewal(held=tuple([Held(answer=Answer.LOST)] * len(leases)))
        return self._renewal(worker, found, answer)

    async def strays(self, worker: str) -> Sequence[tuple[UUID, int]]:
        """Return runs that are leased to a worker, although it holds none."""
        body = requests.HeartbeatRequest(worker=worker, leases=())
        answer = await self.link.ask("heartbeat", body, Heartbeat)
        return self._renewal(worker, (), answer).strays

    def _renewal(self, worker: str, found: Sequence[Entry | None], answer: Heartbeat) -> Renewal:
        news = iter(answer.leases)
        held = [
            Held(answer=Answer.LOST) if one is None else receiving.held_of(next(news), one.claimed_at)
            for one in found
        ]
        for one, news_of in zip(found, held, strict=True):
            if one is not None:
                self._note(one, news_of.answer)
        strays, now = list[tuple[UUID, int]](), self.world.monotonic()
        for stray in answer.strays:
            known = self.book.add_unknown(receiving.entry_of_stray(stray, worker, now))
            if known.name not in self.book.ahead:  # else an open claim has just brought it
                strays.append(known.name)
        return Renewal(held=tuple(held), strays=tuple(strays))

    def _note(self, held: Entry, answer: Answer) -> None:
        """Forget a lease that has ended: nothing can be written under it any more."""
        if answer in {Answer.CANCELLED, Answer.LOST}:
            self.book.drop(*held.name)

    async def lease_states(self, leases: Sequence[tuple[UUID, int]]) -> list[LeaseState]:
        """Read whether leases still hold."""
        found = [self.book.find(*one) for one in leases]
        held = [one for one in found if one is not None]
        states = iter(await self.states(held, 0.0) if held else ())
        answers = [_LOST if one is None else next(states) for one in found]
        for one, state in zip(found, answers, strict=True):
            if one is not None:
                one.is_paused = state.pause_asked
                self._note(one, state.answer)
        return answers

    async def states(self, held: Sequence[Entry], wait_seconds: float) -> list[LeaseState]:
        """Read whether leases still hold; wait so long for a change."""
        asked = [
            requests.StateOf(run=one.run, fence=one.fence, token=one.token, pause=one.is_paused)
            for one in held
        ]
        body = requests.StatesRequest(leases=tuple(asked), wait_ms=round(wait_seconds * 1000, 3))
        try:
            answer = await self.link.ask("states", body, States, wait=wait_seconds)
        except NotAllowed:
            if wait_seconds:
                raise
            return [_LOST] * len(held)
        return [receiving.state_of(one) for one in answer.leases]

    async def show_running(self, worker: str, rows: Sequence[Running]) -> list[bool]:
        """Show people the steps that are executed now."""
        found = [self.book.find(one.run, one.fence) for one in rows]
        named = [(row, held) for row, held in zip(rows, found, strict=True) if held is not None]
        if not named:
            return [False] * len(rows)
        body = requests.RunningRequest(
            worker=worker, runs=tuple([sending.running(row, held) for row, held in named])
        )
        try:
            written = iter((await self.link.ask("running", body, Shown)).written)
        except NotAllowed:
            return [False] * len(rows)
        return [one is not None and next(written) for one in found]


def release(run: UUID, fence: int) -> Item:
    """Return the item that gives back a run which nobody executes."""
    return Item(run=run, fence=fence, number=1, move=RELEASE)


def _has_ended(verdict: Verdict) -> bool:
    """Return True when the lease of an item has ended with it."""
    if verdict.answer in {Answer.BUSY, Answer.SEALED}:
        return False
    return verdict.answer is not Answer.APPLIED or verdict.status is not Status.LEASED


def _parts(sent: Sequence[Encoded]) -> list[list[Encoded]]:
    """Cut items into requests. TooLarge for an item that no request can hold."""
    parts: list[list[Encoded]] = []
    size = BODY_BYTES
    for one in sent:
        length = len(one[2]) + 1
        if length > BODY_BYTES:
            raise TooLarge(
                f"over HTTP one commit of a run has at most {BODY_BYTES:,} bytes, and this one has "
                f"{length:,}: record, send and log less, or in several steps"
            )
        size += length
        if size > BODY_BYTES or len(parts[-1]) >= requests.ITEMS_MAX:
            parts.append([])
            size = length
        parts[-1].append(one)
    return parts
