"""start, claim, load, commit and the other verbs of holders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import BATCH_BYTES, LARGE_BATCH_BYTES, slices, text_bytes
from holdfast.contract import START, TRANSACTION_SECONDS, OwnEngine
from holdfast.errors import HoldfastError, KeyReused, UsageError
from holdfast.lifecycle import Status
from holdfast.machine import claiming as machine
from holdfast.machine import starting
from holdfast.machine.commit import answer, refuse_foreign, refused
from holdfast.machine.durations import micros
from holdfast.machine.rows import holds, shown
from holdfast.records import (
    Answer,
    Item,
    Lease,
    LeaseState,
    Loaded,
    NewRun,
    Renewal,
    Running,
    Started,
    Verdict,
)
from holdfast.records.moves import starts_of
from holdfast.records.sizes import item_bytes, start_bytes
from holdfast.stores.redis import plain, producing, starts
from holdfast.stores.redis.batches import AT_ONCE, IN_SCRIPT, ROWS, SCRIPT_BYTES, Batch
from holdfast.stores.redis.rows import PUBLISHED, RunRow, definition
from holdfast.stores.redis.snapshot import Command, Snapshot
from holdfast.stores.redis.view import RedisView

from .steps import StepReads

STALE_TRIES = 3  # how often definitions are read again that somebody has changed meanwhile
NO_TRANSACTIONS = (
    "a store in Redis has no transactions that could be shared: use a store such as sqlite:///… or "
    "postgresql://… for ctx.transaction, and for starts and events in a transaction of your own"
)


class QueueVerbs(StepReads):
    """The verbs of starting and holding, as a mixin of the store."""

    _published: starts.Published

    async def start(self, runs: Sequence[NewRun], connection: Any = None) -> list[Started | HoldfastError]:
        if connection is not None:
            raise UsageError(NO_TRANSACTIONS)
        for new in runs:  # bad content is found before the first write
            for seconds in (new.delay_seconds, new.timeout_seconds, new.ttl_seconds):
                micros(seconds or 0.0)
        answers: list[Started | HoldfastError] = []
        for some in slices(runs, start_bytes, LARGE_BATCH_BYTES, AT_ONCE):
            parts = list(slices(some, start_bytes, SCRIPT_BYTES, IN_SCRIPT))
            for part, said in zip(parts, await self._plain_starts(some, parts), strict=True):
                if said is None:
                    answers += await self._change(partial(start, runs=part))
                else:
                    answers += [await self._started(new, one) for new, one in zip(part, said, strict=True)]
        return answers

    async def _plain_starts(
        self, runs: Sequence[NewRun], parts: Sequence[Sequence[NewRun]]
    ) -> list[list[int | str] | None]:
        """Start runs by a script, once for each part, in one round trip. Return what it says about each part;
        None: none of its runs was started, and the machine has to decide."""
        found: list[list[int | str] | None] = [None for _ in parts]
        keys = [(new.tenant, new.key) for new in runs if new.key is not None]
        if len({*keys}) < len(keys) or len({new.id for new in runs}) < len(runs):
            return found
        if not self.fast or not all(map(starts.is_plain, runs)):
            return found
        types, left = [new.type for new in runs], list(range(len(parts)))
        for _ in range(STALE_TRIES):
            await self._learn_published(types)
            if self._published.lacks(types):
                continue
            if not all(starts.is_plain_by(self._published.of(type_)) for type_ in types):
                break
            batches = [self._start_batch(parts[at]) for at in left]
            for at, said in zip(left, await self._run_all("start", batches), strict=True):
                found[at] = None if said[0] == "stale" else said
            left = [at for at in left if found[at] is None]
            if not left:
                break
            self._published.forget()
        return found

    def _start_batch(self, runs: Sequence[NewRun]) -> Batch:
        names = self._names
        batch = self._batch(
            names("timeouts"), names("types"), names("tenants"), each=starts.keys(names, runs)
        )
        starts.call(batch, runs, self._published)
        return batch

    async def _started(self, new: NewRun, said: int | str) -> Started | HoldfastError:
        if said == 1:
            return Started(new.id, created=True)
        if said == 0:
            return (await self._change(partial(start, runs=[new])))[0]
        there, _, digest = str(said).partition(" ")
        if digest == producing.PRODUCED:
            return (await self._change(partial(start, runs=[new])))[0]
        run = UUID(there)
        return Started(run, created=False) if digest == new.digest else KeyReused(new.key or "", run)

    async def _learn_published(self, types: Sequence[str]) -> None:
        known = self._published
        lacking = known.lacks(types)
        if not lacking:
            return
        (epoch, revision), texts = await self._connections.ask([
            ("HMGET", self._names.numbers, "epoch", PUBLISHED),
            ("HMGET", self._names("definitions"), *lacking),
        ])  # fmt: skip
        # The revision is read before the definitions: a definition that comes in between makes it stale.
        found = {type_: definition(text) for type_, text in zip(lacking, texts, strict=True)}
        # A server that has lost writes may give a revision twice, but never an epoch.
        known.learn(f"{epoch or 0}:{revision or 0}", found)

    async def commit(self, batch: Sequence[Item]) -> list[Verdict]:
        if any(len(item.trail) > ROWS for item in batch):
            batch = [await self._logged_ahead(item) for item in batch]
        known = [self._holdings.of(item.run) for item in batch]
        plainly = [
            plain.written(at, item, held)
            for at, (item, held) in enumerate(zip(batch, known, strict=True))
            if self.fast and held is not None and plain.is_plain(item, held)
        ]
        found: dict[int, Verdict] = {}
        if len(plainly) < len(batch):  # items that may raise an error go first: then nothing has been written
            are_plain = {one.place for one in plainly}
            first = [at for at in range(len(batch)) if at not in are_plain]
            found = await self._decided_writes(batch, first, is_first=True)
        if plainly:
            found |= await self._plain_writes(plainly)
        if len(found) < len(batch):
            found |= await self._decided_writes(batch, [at for at in range(len(batch)) if at not in found])
        verdicts = [found[at] for at in range(len(batch))]
        for item, verdict in zip(batch, verdicts, strict=True):
            if verdict.status is not Status.LEASED:
                self._holdings.forget(item.run)
        return verdicts

    async def _logged_ahead(self, item: Item) -> Item:
        """Write log rows of an item that has very many, in short scripts before the item. Return the item
        with the rest of them. The run notes how many there are: an item that is sent again goes on there."""
        written: int | None = 0
        while written is not None and len(item.trail) - written > ROWS:
            self._holdings.forget(item.run)
            written = await self._change(partial(log_ahead, item=item))
        return msgspec.structs.replace(item, trail=item.trail[written or 0 :])

    async def _decided_writes(
        self, batch: Sequence[Item], places: Sequence[int], *, is_first: bool = False
    ) -> dict[int, Verdict]:
        """Let the machine decide about items of a batch. Return the answers by place."""
        found: dict[int, Verdict] = {}
        parts = list(slices([batch[at] for at in places], _weight, LARGE_BATCH_BYTES, IN_SCRIPT))
        if is_first and len(parts) > 1:
            perhaps = [batch[at] for at in places if may_be_foreign(batch[at])]
            await self._read(partial(refuse_bad, batch=perhaps)) if perhaps else None
        begun = 0
        for part in parts:
            for item in part:
                self._holdings.forget(item.run)
            answers, rows = await self._change(partial(commit, batch=part))
            for item, one, row in zip(part, answers, rows, strict=True):
                # A holder whose item is lost may not go on, even if the server has lost few of its writes.
                if row is not None and one.answer is Answer.APPLIED and row.fence == item.fence:
                    self._holdings.learn(item.run, plain.holding_of(self._names, row))
            found.update(zip(places[begun : begun + len(part)], answers, strict=True))
            begun += len(part)
        return found

    async def _plain_writes(self, items: Sequence[plain.Plain]) -> dict[int, Verdict]:
        """Write plain items by a script. Return the answers to those that it has taken, by place."""
        found: dict[int, Verdict] = {}
        for some in plain.parts(items, LARGE_BATCH_BYTES, AT_ONCE):
            parts = list(plain.parts(some, SCRIPT_BYTES, IN_SCRIPT))
            try:
                answers = await self._run_all("hold", list(map(self._hold_batch, parts)))
            except BaseException:  # perhaps they were applied: the machine will see
                for one in some:
                    self._holdings.forget(one.item.run)
                raise
            for part, (said,) in zip(parts, answers, strict=True):
                for one, is_applied in zip(part, said, strict=True):
                    if is_applied:
                        found[one.place] = plain.applied(one)
        return found

    def _hold_batch(self, items: Sequence[plain.Plain]) -> Batch:
        names = self._names
        keys = (key for one in items for key in one.held.keys)
        batch = self._batch(names("leases"), names("ended"), names("owing"), each=keys)
        plain.call(batch, items)
        return batch

    async def transact(
        self,
        item: Item,
        work: Callable[[Any], Any],
        limit_seconds: float = TRANSACTION_SECONDS,
        on: OwnEngine | None = None,
    ) -> Verdict:
        raise UsageError(NO_TRANSACTIONS)

    async def load(self, lease: Lease, after: int = START, bytes: int = BATCH_BYTES) -> Loaded:
        row = await self._read(lambda snapshot: held(snapshot, lease))
        if isinstance(row, Loaded):
            return row
        params, labels = None, None
        if after == START:
            asked = ("HMGET", self._names.run(row.id), "params", "labels")
            ((params, labels),) = await self._connections.ask([asked])
        steps, more = await self._steps_after(row, after, bytes - text_bytes(params) - text_bytes(labels))
        return Loaded(
            answer=Answer.APPLIED,
            params=(params or "null") if after == START else None,
            labels_json=labels,
            steps=tuple(map(shown, steps)),
            more=more,
        )

    async def lease_states(self, leases: Sequence[tuple[UUID, int]]) -> list[LeaseState]:
        def states(snapshot: Snapshot) -> list[LeaseState]:
            view = RedisView(snapshot)
            view.prefetch(run for run, _ in leases)
            return [machine.lease_state(view.run(run), fence, view.now) for run, fence in leases]

        return await self._read(states)

    async def show_running(self, worker: str, rows: Sequence[Running]) -> list[bool]:
        def show(snapshot: Snapshot) -> list[bool]:
            view = RedisView(snapshot)
            view.prefetch(row.run for row in rows)
            written = [machine.show_running(view, view.run(row.run), row) for row in rows]
            view.save()
            return written

        return await self._change(show)


def start(snapshot: Snapshot, runs: Sequence[NewRun]) -> list[Started | HoldfastError]:
    """Record new runs. Return one answer for each, in order."""
    view = RedisView(snapshot)
    snapshot.all(_read_for(view, runs))
    answers = starting.start(view, runs)
    view.save()
    return answers


def _read_for(view: RedisView, runs: Sequence[NewRun]) -> list[Command]:
    """Return the commands that read what starts of these runs need."""
    if not runs:
        return []
    names = view.names
    return [
        *(("HGET", names("definitions"), type) for type in dict.fromkeys(new.type for new in runs)),
        ("HGET", names.numbers, "trail"), ("HGET", names.numbers, "event"),
        *(("GET", names.of("key", new.tenant, new.key)) for new in runs if new.key is not None),
        *view.commands(id for new in runs for id in (new.id, new.parent) if id is not None),
    ]  # fmt: skip


def commit(snapshot: Snapshot, batch: Sequence[Item]) -> tuple[list[Verdict], list[RunRow | None]]:
    """Write the items of holders. Return one verdict for each, in order, and the runs as they are then."""
    view = RedisView(snapshot)
    steps = [(item.run, write.key) for item in batch for write in item.steps]
    started = [new for item in batch for new in starts_of(item)]
    started += [write.child for item in batch for write in item.steps if write.child is not None]
    snapshot.all([
        *view.commands(item.run for item in batch), *view.step_commands(steps), *_read_for(view, started),
        *(("HGETALL", snapshot.names.event(one.tenant, one.id)) for item in batch for one in item.events),
    ])  # fmt: skip
    epoch = snapshot.epoch

    def decide(item: Item) -> Verdict:
        run = view.run(item.run)
        if run is not None and _lacks_writes(run, item, epoch):
            return Verdict(answer=Answer.LOST, status=run.status)
        verdict = answer(view, run, item)
        if run is not None and verdict.answer is Answer.APPLIED and _logged(run, item):
            run.logged = ""
        return verdict

    # An item that raises an error is found before the first change.
    snapshot.each(batch, lambda item: refused(view, view.run(item.run), item))
    verdicts = snapshot.each(batch, decide)
    view.save()
    return verdicts, [view.run(item.run) for item in batch]


def log_ahead(snapshot: Snapshot, item: Item) -> int | None:
    """Write the next log rows of an item, if its holder holds the run. Return how many rows of the item are
    written. None: the item is not applied, or was applied before."""
    view = RedisView(snapshot)
    run = view.run(item.run)
    if run is None or _lacks_writes(run, item, snapshot.epoch) or refused(view, run, item) is not None:
        return None
    written = _logged(run, item)
    machine.begin(view, run, item.started_at)
    for entry in item.trail[written : written + ROWS]:
        view.log(run, entry.type, entry.data)
    written = min(written + ROWS, len(item.trail))
    run.logged = f"{item.fence} {item.number} {written}"
    view.save()
    return written


def _logged(run: RunRow, item: Item) -> int:
    """Return how many log rows of an item were written before the item."""
    fence, number, rows = map(int, run.logged.split(" ")) if run.logged else (0, 0, 0)
    return rows if (fence, number) == (item.fence, item.number) else 0


def _weight(item: Item) -> int:
    """Return the bytes of an item. Each row counts as many, too, because a script takes its time for each."""
    rows = len(item.steps) + len(item.trail) + len(item.events) + len(item.outbox)
    return item_bytes(item) + rows * LARGE_BATCH_BYTES // ROWS


def _lacks_writes(run: RunRow, item: Item, epoch: int) -> bool:
    """Return True when the server has lost earlier items of this holder, or waits that it was told of.

    That is possible only if the server was restarted, or replaced, after the claim (scripts/epoch.lua). The
    holder must not go on: the run would end without the steps that are lost.
    """
    if item.fence > epoch or run.status is not Status.LEASED or run.fence != item.fence:
        return False
    marks = ((run.commit_fence, run.commit_no), (run.item_fence, run.item_no))
    last = max((number for fence, number in marks if fence == item.fence), default=0)
    return item.number > last + 1 or (item.known or 0) > run.seq


def may_be_foreign(item: Item) -> bool:
    """Return True when an item may be for another tenant than its run: it starts a run or sends an event."""
    return bool(item.events or starts_of(item) or any(write.child is not None for write in item.steps))


def refuse_bad(snapshot: Snapshot, batch: Sequence[Item]) -> None:
    """Raise the error of an item that would raise one."""
    view = RedisView(snapshot)
    view.prefetch(item.run for item in batch)
    for item in batch:
        if (run := view.run(item.run)) is not None:
            refuse_foreign(item, run.tenant)


def held(snapshot: Snapshot, lease: Lease) -> RunRow | Loaded:
    """Return the run if the caller holds it; otherwise the answer."""
    view = RedisView(snapshot)
    row = view.run(lease.run)
    return row if row is not None and holds(row, lease.fence, view.now) else Loaded(answer=machine.lost(row))


def renew(snapshot: Snapshot, worker: str, leases: Sequence[Lease], lease_seconds: float) -> Renewal:
    """Extend leases. Also return the runs of this worker that it did not name."""
    view = RedisView(snapshot)
    mine = ("ZRANGE", snapshot.names.of("leased:worker", worker), 0, -1, "WITHSCORES")
    found = snapshot.all([*view.commands(lease.run for lease in leases), mine])[-1]
    named = {(lease.run, lease.fence) for lease in leases}
    strays = sorted({(UUID(id), int(fence)) for id, fence in found} - named)
    until = view.now + micros(lease_seconds)
    held = tuple(
        snapshot.each(leases, lambda lease: machine.renew(view, view.run(lease.run), lease, worker, until))
    )
    view.save()
    return Renewal(held=held, strays=tuple(strays))
