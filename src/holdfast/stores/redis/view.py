"""The machine's view of a snapshot. What moves change is written by `save`, as changes of the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from holdfast.bounds import NEWS_BYTES, text_bytes
from holdfast.lifecycle import FINAL, Status, StepKind, StepStatus
from holdfast.machine.rows import StepRow, shown
from holdfast.machine.settling import COME, has_waited
from holdfast.machine.view import Account, Beginning, Data
from holdfast.records import (
    Definition,
    Json,
    NewEvent,
    NewRun,
    Outbound,
    RunningStep,
    Step,
    Verdict,
)
from holdfast.stores.counting import minute_of

from . import counting, inbox, producing, rows
from .families import Families
from .held import HeldRun, first_due
from .messages import Post
from .rows import EventRow, RunRow, log_number, stored_word, trail_row
from .snapshot import Command, Snapshot


class RedisView(Families):
    """The rows that one verb reads and changes. sees_half_gone: also runs that are partly removed."""

    def __init__(self, snapshot: Snapshot, *, sees_half_gone: bool = False) -> None:
        self.snapshot, self.names = snapshot, snapshot.names
        self.now, self.copied = snapshot.now, 0
        self._runs: dict[UUID, HeldRun | None] = {}
        self._sees_half_gone, self._half_gone = sees_half_gone, set[UUID]()
        self._keys: dict[tuple[str, str], tuple[UUID, str]] = {}
        self._accounts: dict[UUID, Account] = {}
        self._notes: list[tuple[RunRow, str, Data | Json]] = []
        self._by_run: dict[UUID, list[tuple[RunRow, str, Data | Json]]] = {}
        self._events = inbox.Inbox(snapshot, self.now)
        self._post = Post(snapshot, self.now)

    # The run.

    def commands(self, runs: Iterable[UUID]) -> list[Command]:
        """Return the commands that read these runs."""
        return [("HMGET", self.names.run(run), *rows.SMALL_FIELDS) for run in dict.fromkeys(runs)]

    def step_commands(self, steps: Iterable[tuple[UUID, str]]) -> list[Command]:
        """Return the commands that read these steps."""
        return [("HGET", self.names.steps(run), key) for run, key in steps]

    def prefetch(self, runs: Iterable[UUID]) -> None:
        """Read these runs in one round trip."""
        self.snapshot.all(self.commands(run for run in runs if run not in self._runs))

    def run(self, id: UUID) -> RunRow | None:
        if id not in self._runs:
            name = self.names.run(id)
            values = self.snapshot.read("HMGET", name, *rows.SMALL_FIELDS)
            self.snapshot.guard(("HGET", name, "rev"), values[rows.REV])
            row = self.snapshot.decoded(id, partial(rows.decoded, id, values, small=True))
            if row is not None and row.deleted_at == rows.HALF_GONE and not self._sees_half_gone:
                self._half_gone.add(id)
                row = None
            self._runs[id] = None if row is None else HeldRun(self.snapshot, rows.copy(row), row)
        held = self._runs[id]
        return None if held is None else held.row

    def peek(self, id: UUID) -> RunRow | None:
        """Return a run that is only looked at: a change of it meanwhile does not matter. Whoever decides by
        it reads it by `run`."""
        if id in self._runs:
            held = self._runs[id]
            return None if held is None else held.row
        values = self.snapshot.read("HMGET", self.names.run(id), *rows.SMALL_FIELDS)
        return self.snapshot.decoded(id, partial(rows.decoded, id, values, small=True))

    def checked(self, check: Callable[[], bool]) -> bool:
        """Return what a check says. If it says no, nothing depends on the runs that only it has read."""
        before = set(self._runs)
        if check():
            return True
        for id in set(self._runs) - before:
            del self._runs[id]
            self.snapshot.unguard(self.names.run(id))
        return False

    def forget(self, run: RunRow) -> None:
        """Take a run for gone: it is removed by this verb."""
        self._runs[run.id] = None

    def held(self, run: RunRow) -> HeldRun:
        held = self._runs[run.id]
        assert held is not None
        return held

    def owing(self, also: Iterable[UUID] = ()) -> list[RunRow]:
        """Return the runs that owe more than when they were read, and those of `also` that owe something."""
        named, runs = set(also), (held for held in self._runs.values() if held is not None)
        return [
            held.row for held in runs
            if held.row.owes & ~(0 if held.before is None or held.row.id in named else held.before.owes)
        ]  # fmt: skip

    def call_holders(self) -> None:
        self.snapshot.calls_holders = True

    def show_running(self, run: RunRow, steps: Sequence[RunningStep]) -> None:
        run.running = msgspec.json.encode((run.fence, tuple(steps))).decode()

    def keep_trace(self, run: RunRow, trace: str) -> None:
        run.trace = trace

    def go_on_as(self, run: RunRow, first: RunRow, next: UUID) -> None:
        first.present = next

    def changed_since(self, run: RunRow, since: int) -> bool:
        return (run.called_at if run.status is Status.LEASED else run.updated_at) >= since

    # Steps.

    def step(self, run: RunRow, key: str) -> StepRow | None:
        return self.held(run).step(key)

    def put(self, run: RunRow, step: StepRow) -> None:
        self.held(run).put(step)

    def put_all(self, run: RunRow, steps: Sequence[StepRow]) -> None:
        for step in steps:
            self.put(run, msgspec.structs.replace(step))

    def drop(self, run: RunRow, step: StepRow) -> None:
        self.held(run).drop(step.key)

    def highest(self, run: RunRow) -> int:
        return run.seq

    def next_seq(self, run: RunRow) -> int:
        run.seq += 1
        return run.seq

    def current(self, run: RunRow) -> StepRow | None:
        if not run.is_plan:
            return None
        left = (step for step in self.outline(run) if step.status is not StepStatus.SUCCEEDED)
        return next(left, None)

    def at_work(self, run: RunRow) -> StepRow | None:
        return self.current(run)

    def after(self, run: RunRow, seq: int) -> StepRow | None:
        return next((step for step in self.outline(run) if step.seq > seq), None)

    def outline(self, run: RunRow) -> Sequence[StepRow]:
        return self.held(run).all()

    def open_steps(self, run: RunRow) -> Sequence[StepRow]:
        return self.held(run).open_steps()

    def open_waits(self, run: RunRow) -> Sequence[StepRow]:
        return first_due(self.held(run).open_steps())

    def to_look_at(self, run: RunRow) -> Iterable[StepRow]:
        waits = self._without_open_children(run, self.open_waits(run))
        if waits:  # one by one, each would cost a round trip
            self._events.prefetch(run, waits)
            self._prefetch_ends([wait.child for wait in waits if wait.child is not None])
        return waits

    def _without_open_children(self, run: RunRow, waits: Sequence[StepRow]) -> Sequence[StepRow]:
        """Leave out waits for children that have not ended. Their other moves do not matter: a parent of many
        busy children would be decided again and again."""
        key = self.names("children:open", str(run.id))
        children = [wait.child for wait in waits if wait.child is not None and wait.child not in self._runs]
        commands = [("ZSCORE", key, str(child)) for child in children]
        still_open: set[UUID] = set()
        for child, command, score in zip(children, commands, self.snapshot.all(commands), strict=True):
            if score is not None:
                self.snapshot.guard(command, score)
                still_open.add(child)
        return [wait for wait in waits if wait.child not in still_open]

    def _prefetch_ends(self, children: Sequence[UUID]) -> None:
        """Read together what `end_of` needs for several children."""
        self.prefetch(children)
        found = [row for row in map(self.run, children) if row is not None and row.status in FINAL]
        self.snapshot.all([("HGET", self.names.run(row.id), "result") for row in found])

    def gates(self, run: RunRow) -> Sequence[StepRow]:
        steps = (step for step in self.outline(run) if step.kind is StepKind.APPROVAL)
        return [step for step in steps if step.status is not StepStatus.PENDING]

    def last_item(self, run: RunRow) -> tuple[int, int]:
        return run.item_fence, run.item_no

    def wrote(self, run: RunRow, fence: int, number: int) -> bool:
        return run.item_fence == fence and run.item_no >= number

    def overtaken(self, run: RunRow, fence: int) -> bool:
        return run.item_fence > fence

    def has_news(self, run: RunRow, known: int) -> bool:
        return any(self._settled_since(run, known))

    def _settled_since(self, run: RunRow, known: int) -> Iterator[StepRow]:
        held = self.held(run)
        # Waits that were settled by this verb are among the steps that it has read.
        steps = held.all() if run.waits_seq > known else [*held.steps.values()]
        return (step for step in steps if step.seq > known and step.status in COME and has_waited(step))

    def news(self, run: RunRow, known: int) -> tuple[tuple[Step, ...], bool]:
        settled = sorted(self._settled_since(run, known), key=lambda step: step.seq)
        large = sum(map(rows.step_bytes, settled)) > NEWS_BYTES
        return ((), True) if large else (tuple(map(shown, settled)), False)

    def shown(self, run: RunRow, step: StepRow) -> Step | None:
        return None if text_bytes(step.wake) > NEWS_BYTES else shown(step)

    # Events.

    def newest_event(self) -> int:
        return self._events.newest()

    def record(self, event: NewEvent) -> None:
        self._events.record(event, None if event.run is None else self.chain_of(event.run))

    def chain_of(self, run: UUID) -> UUID:
        """Return the id of the run's chain; the given id, if the run is unknown."""
        row = self.run(run)
        return run if row is None else row.chain_id

    def available(self, run: RunRow, wait: StepRow) -> EventRow | None:
        return self._events.available(run, wait)

    def prefetch_events(self, waits: Sequence[tuple[RunRow, StepRow]]) -> None:
        """Read together what waits need whose event has probably come."""
        self._events.prefetch_events(waits)

    def take(self, run: RunRow, event: EventRow, key: str, *, counts: bool) -> None:
        self._events.take(run, event, key, counts=counts)

    def forget_receipts(self, run: RunRow, key: str) -> None:
        self._events.forget_receipts(run, key)

    # Starts, messages, the trail.

    def by_key(self, tenant: str, key: str) -> tuple[UUID, str] | None:
        if (tenant, key) in self._keys:
            return self._keys[tenant, key]
        known = self.snapshot.guarded("GET", self.names.of("key", tenant, key))
        if known is None:
            return None
        run, _, digest = known.partition(" ")
        return UUID(run), producing.known_digest(self.snapshot, run, digest)

    def is_known(self, id: UUID) -> bool:
        return self.run(id) is not None

    def has_parent(self, id: UUID, tenant: str) -> bool:
        parent = self.run(id)
        return parent is not None and parent.deleted_at is None and parent.tenant == tenant

    def open_runs(self, api_key: str, most: int) -> int:
        count: int = self.snapshot.guarded("ZCARD", self.names.of("open:key", api_key))
        return min(most, count)

    def definition(self, type: str) -> Definition | None:
        return rows.definition(self.snapshot.read("HGET", self.names("definitions"), type))

    def insert(self, new: NewRun, begins: Beginning) -> RunRow | None:
        if self.run(new.id) is not None or new.id in self._half_gone:
            return None
        first = None if begins.chain is None else self.run(begins.chain)
        row = RunRow(
            id=new.id, tenant=new.tenant, type=new.type, params=new.params, digest=new.digest, key=new.key,
            priority=new.priority, limit_key=new.limit_key, parent=new.parent, parent_step=new.parent_step,
            labels=new.labels, trace=new.trace, origin=new.origin, created_at=self.now, updated_at=self.now,
            api_key=new.api_key if first is None else first.api_key,
            bytes=text_bytes(new.params) + text_bytes(new.labels), **begins._asdict(),
        )  # fmt: skip
        self._runs[row.id] = HeldRun(self.snapshot, row, None)
        if row.key is not None:
            self._keys[row.tenant, row.key] = row.id, row.digest
            self.snapshot.do("SET", self.names.of("key", row.tenant, row.key), f"{row.id} {row.digest}")
        return row

    def send(self, run: RunRow, messages: Sequence[Outbound]) -> None:
        self._post.put(messages, run.tenant, run.id)

    def newest_note(self) -> int:
        return self.snapshot.counter("trail") + len(self._notes)

    def note(self, run: RunRow, what: str, /, **data: Any) -> Data:
        self._note(run, what, data)
        return data

    def _note(self, run: RunRow, what: str, data: Data | Json) -> None:
        self._notes.append((run, what, data))
        run.updated_at = self.now
        if what in {"leased", "resumed"}:
            run.called_at = self.now

    def log(self, run: RunRow, what: str, data: Json) -> None:
        self._note(run, what, data)
        run.logs = max(run.logs, log_number(what, data))

    def was_added(self, run: RunRow, key: str) -> bool:
        wanted = msgspec.json.encode({"step": key}).decode()
        found = self.snapshot.read("ZRANGE", self.names.trail_of(run.id), 0, -1)
        return any(trail_row(row)[1::2] == ("step_added", wanted) for row in found)

    def answer(self, run: RunRow) -> Verdict | None:
        return rows.verdict(run)

    def answered(self, run: RunRow, verdict: Verdict) -> None:
        run.commit_answer = verdict

    # Saving.

    def save(self, apart: Sequence[RunRow] | None = None) -> None:
        """Put all changes into the snapshot. apart: each of these runs is a group of its own, applied or left
        out."""
        if apart is None:
            for held in self._runs.values():
                if held is not None:
                    held.save()
            self._save_notes(None)
        for run in apart or ():
            held = self.held(run)
            assert held.before is not None
            self.snapshot.new_group()
            self.snapshot.guard(("HGET", self.names.run(run.id), "rev"), held.before.rev)
            held.save()
            self._save_notes(run)
        if self._events.recorded or any(held is not None and held.is_moved for held in self._runs.values()):
            self.snapshot.is_news = True

    def _save_notes(self, of: RunRow | None) -> None:
        if of is not None and not self._by_run:
            for one in self._notes:
                self._by_run.setdefault(one[0].id, []).append(one)
        for run, what, data in self._notes if of is None else self._by_run.get(of.id, ()):
            if of is None or run is of:
                text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
                word = stored_word(what)
                row, note = f"{word} {self.now} {text}", f"{run.id} {word}"
                if not isinstance(data, str) and (what != "cancelled" or "step" not in data):
                    counting.note(self.snapshot, run, what, minute_of(self.now))
                self.snapshot.log("trail", self.names.trail_of(run.id), row, self.names.trail, note)
