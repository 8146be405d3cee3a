"""The driver of a store in tests: its verbs without await, and a clock that the test turns."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections import Counter
from random import Random
from typing import get_args
from uuid import UUID

import msgspec

from holdfast.lifecycle import Move, Status, StepKind, StepStatus
from holdfast.records import (
    ANY,
    DEFAULT_TENANT,
    SECOND,
    Ask,
    Claim,
    Decided,
    Definition,
    Emitted,
    Error,
    Item,
    Lease,
    NewEvent,
    NewRun,
    PlanStep,
    Running,
    RunningStep,
    Step,
    StepWrite,
    TrailEntry,
    Verdict,
    moment,
)
from holdfast.records.moves import BeginPlan, HolderMove

from .replay import replayed

TYPE = "shop.order.v1"
EPOCH = 1_700_000_000 * SECOND
MINUTE = EPOCH - EPOCH % (60 * SECOND)  # the start of the minute of EPOCH
LEASE = 30.0


class Clock:
    """A clock that stands still until a test turns it."""

    def __init__(self, now=EPOCH):
        self.now = now

    def __call__(self):
        return self.now

    def turn(self, seconds):
        self.now += round(seconds * SECOND)


def noise(size):
    """Return JSON text of about this size that no codec compresses."""
    return f'"{b64encode(Random(size).randbytes(size * 3 // 4)).decode()}"'


def done(key, output="1", **fields):
    return StepWrite(key=key, output=output, **fields)


def broken(key, kind="boom", **fields):
    return StepWrite(key=key, status=StepStatus.FAILED, error=error(kind), **fields)


def backing_off(key, **fields):
    return StepWrite(key=key, status=StepStatus.READY, error=error("boom"), **fields)


def sleep(key="nap", seconds=60.0, **fields):
    fields = {"delay_seconds": seconds, **fields}
    return StepWrite(key=key, kind=StepKind.SLEEP, status=StepStatus.WAITING, **fields)


def listen(key="wait", topic="parcel", **fields):
    return StepWrite(key=key, kind=StepKind.EVENT, status=StepStatus.WAITING, topic=topic, **fields)


def ask(key="gate", **fields):
    fields = {"ask": '{"ask":"Ship it?","data":{"n":1}}', **fields}
    return StepWrite(key=key, kind=StepKind.APPROVAL, status=StepStatus.WAITING, **fields)


def call(key, run, type=TYPE, status=StepStatus.WAITING, **fields):
    """Return a step that starts a child run and waits for it."""
    child = NewRun(id=run, type=type, **fields)
    return StepWrite(key=key, kind=StepKind.CHILD, status=status, child=child)


# Steps of plans, for `publish`.


def task(name, **fields):
    return PlanStep(name=name, **fields)


def gate(name, seconds=None, **fields):
    return PlanStep(name=name, kind=StepKind.APPROVAL, timeout_seconds=seconds, **fields)


def hear(name, topic="parcel", seconds=None):
    return PlanStep(name=name, kind=StepKind.EVENT, topic=topic, timeout_seconds=seconds)


def nap(name, seconds=60.0):
    return PlanStep(name=name, kind=StepKind.SLEEP, timeout_seconds=seconds)


def error(kind="boom", step=None):
    return msgspec.json.encode(Error(kind=kind, message="it broke", step=step)).decode()


MOVES = {one.verb: one for one in get_args(HolderMove) if one is not BeginPlan}
BLAMED = {"error": error(), "last_error": "it broke"}
USUAL = {
    Move.COMPLETE: {"result": '"done"'},
    Move.FAIL: {**BLAMED, "kind": "fatal"},
    Move.RETRY: {**BLAMED, "delay_seconds": 0.0},
}


def item(verb, *steps, **fields) -> Item:
    """Return an item, from fields of its move and fields of all items; the usual ones are filled in."""
    kind = BeginPlan if "plan" in fields else MOVES[verb]
    own = {name: fields.pop(name) for name in kind.__struct_fields__ if name in fields}
    return Item(move=kind(**{**USUAL.get(verb, {}), **own}), **{"steps": steps, **fields})


class StoreDriver:
    """The verbs of a store, with the usual arguments filled in."""

    def __init__(self, store, clock):
        self.store, self.clock = store, clock
        self._loop = asyncio.new_event_loop()
        self._ids = 0
        self._numbers = Counter()
        try:
            self.run(store.open())
        except BaseException:
            self._loop.close()
            raise

    def run(self, coroutine):
        return self._loop.run_until_complete(coroutine)

    def close(self):
        try:
            self.run(self.store.close())
        finally:
            self._loop.close()

    def id(self) -> UUID:
        """Return a new id, greater than all before it."""
        self._ids += 1
        return UUID(int=(0x018BCFE5 << 96) | (7 << 76) | (2 << 62) | self._ids)

    # Producers and workers.

    def start(self, type=TYPE, **fields) -> UUID:
        new = NewRun(type=type, **{"id": self.id(), **fields})
        answer = self.start_many([new])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer.id

    def start_many(self, runs):
        return self.run(self.store.start(runs))

    def publish(self, *steps, type=TYPE, **fields):
        """Publish a plan, or without steps a code workflow; a name alone is a task."""
        rows = tuple(task(step) if isinstance(step, str) else step for step in steps)
        kind = "plan" if rows else "code"
        self.run(self.store.publish([Definition(**{"type": type, "kind": kind, "steps": rows, **fields})]))

    def plan(self, *steps, **fields) -> UUID:
        """Start a run of this plan."""
        self.publish(*steps)
        return self.start(**fields)

    def begun(self, *steps, **fields) -> Claim:
        """Start a run of this plan, and claim it."""
        return self.take(self.plan(*steps, **fields))

    def claim(self, limit=100, worker="w1", types=(TYPE,), lease=LEASE, **fields) -> list[Claim]:
        ask = Ask(worker=worker, types=types, limit=limit, lease_seconds=lease, **fields)
        return self.run(self.store.claim(ask))

    def take(self, run=None, worker="w1", **fields) -> Claim:
        """Claim the only claimable run."""
        (claim,) = self.claim(worker=worker, **fields)
        assert run is None or claim.id == run
        return claim

    def held(self, worker="w1", **fields) -> Claim:
        """Start a run, and claim it."""
        return self.take(self.start(**fields), worker)

    def item(self, claim, move, *steps, **fields) -> Item:
        """Return the next item of this holder."""
        self._numbers[claim.id, claim.fence] += 1
        number = self._numbers[claim.id, claim.fence]
        standard = {"run": claim.id, "fence": claim.fence, "number": number, "lease_seconds": LEASE}
        return item(move, *steps, **{**standard, **fields})

    def send(self, *items) -> list[Verdict]:
        return self.run(self.store.commit(items))

    def commit(self, claim, move, *steps, **fields) -> Verdict:
        return self.send(self.item(claim, move, *steps, **fields))[0]

    def checkpoint(self, claim, *steps, **fields):
        return self.commit(claim, Move.CHECKPOINT, *(steps or (done("first"),)), **fields)

    def advance(self, claim, step="A", **fields):
        """Commit success of the current step of a plan; None: only the other fields of the item."""
        steps = () if step is None else (step if isinstance(step, StepWrite) else done(step),)
        return self.commit(claim, Move.ADVANCE, *steps, **fields)

    def park(self, claim, *steps, **fields):
        return self.commit(claim, Move.PARK, *(steps or (listen(),)), **fields)

    def complete(self, claim, *steps, **fields):
        return self.commit(claim, Move.COMPLETE, *steps, **fields)

    def fail(self, claim, *steps, kind="fatal", step=None, **fields):
        wrong = {"error": error(kind, step), "kind": kind}
        return self.commit(claim, Move.FAIL, *steps, **{**wrong, **fields})

    def retry(self, claim, *steps, delay=60.0, **fields):
        return self.commit(claim, Move.RETRY, *steps, **{"delay_seconds": delay, **fields})

    def release(self, claim, *steps, **fields):
        return self.commit(claim, Move.RELEASE, *steps, **fields)

    def renew(self, *leases, worker="w1", lease=LEASE):
        named = [
            one if isinstance(one, Lease) else Lease(run=one.id, fence=one.fence)
            for one in leases
        ]  # fmt: skip
        return self.store.renew(worker, named, lease)

    def lease_states(self, *claims):
        return self.run(self.store.lease_states([(one.id, one.fence) for one in claims]))

    def show_running(self, claim, *steps, worker="w1", **fields):
        """Show steps of a held run: (name, attempt), which began now. Return whether it was written."""
        shown = tuple(
            RunningStep(step=name, attempt=attempt, started_at=moment(self.clock.now))
            for name, attempt in steps
        )
        row = Running(run=claim.id, steps=shown, **{"fence": claim.fence, **fields})
        return self.run(self.store.show_running(worker, [row]))[0]

    def running(self, run):
        """Return the steps that the run shows as running: name and attempt."""
        return [(one.step, one.attempt) for one in self.get(run).running]

    def emit(self, topic="parcel", payload="null", id=None, **fields) -> Emitted:
        self._ids += 1
        event = NewEvent(topic=topic, payload=payload, id=id or f"e{self._ids}", **fields)
        return self.run(self.store.emit(event))

    # Keepers and people.

    def tick(self, **fields):
        return self.run(self.store.tick(**fields))

    def deliver(self, **fields):
        return self.run(self.store.deliver(**fields))

    def cancel(self, run, tenant=ANY, **fields):
        return self.run(self.store.cancel(run, tenant, **fields))

    def pause(self, run, tenant=ANY, **fields):
        return self.run(self.store.pause(run, tenant, **fields))

    def resume(self, run, tenant=ANY, **fields):
        return self.run(self.store.resume(run, tenant, **fields))

    def rewind(self, run, step, tenant=ANY, **fields):
        return self.run(self.store.rewind(run, step, tenant, **fields))

    def retry_run(self, run, tenant=ANY, **fields):
        return self.run(self.store.retry_run(run, tenant, **fields))

    def set_priority(self, run, priority, tenant=ANY, **fields):
        return self.run(self.store.set_priority(run, priority, tenant, **fields))

    def append_step(self, run, name, tenant=ANY, **fields) -> Step:
        return self.run(self.store.append_step(run, name, tenant, **fields))

    def approve(self, run, step=None, tenant=ANY, **fields) -> Decided:
        return self.run(self.store.decide(run, step, approved=True, tenant=tenant, **fields))

    def reject(self, run, step=None, tenant=ANY, **fields) -> Decided:
        return self.run(self.store.decide(run, step, approved=False, tenant=tenant, **fields))

    def delete(self, run, tenant=ANY, **fields):
        return self.run(self.store.delete(run, tenant, **fields))

    def restore(self, run, tenant=ANY, **fields):
        return self.run(self.store.restore(run, tenant, **fields))

    def purge(self, **fields):
        return self.run(self.store.purge(**fields))

    # Reads.

    def get(self, run, tenant=ANY, **fields):
        return self.run(self.store.get(run, tenant, **fields))

    def status(self, run) -> Status:
        return self.get(run).status

    def steps(self, run, tenant=ANY, **fields) -> list[Step]:
        return self.run(self.store.steps(run, tenant, **fields))

    def step(self, run, key) -> Step:
        (step,) = [step for step in self.steps(run) if step.key == key]
        return step

    def shape(self, run) -> list[tuple[str, str]]:
        """Return each step with its status, in order."""
        return [(step.key, step.status.value) for step in self.steps(run)]

    def approvals(self, tenant=DEFAULT_TENANT, **fields):
        return self.run(self.store.approvals(tenant, **fields))

    def trail(self, run=None, tenant=ANY, **fields) -> list[TrailEntry]:
        return self.run(self.store.trail(run, tenant, **fields))

    def told(self, run, since=0) -> list[str]:
        """Return the types of the trail's rows, from number `since` on."""
        return [entry.type for entry in self.trail(run)][since:]

    def last(self, run, type):
        """Return the data of the newest row of that type."""
        return [entry.data for entry in self.trail(run) if entry.type == type][-1]

    def due(self, types=(TYPE,), **fields):
        return self.run(self.store.due(types, **fields))

    def stats(self):
        return self.run(self.store.stats())

    def counts(self, tenant=ANY):
        return self.run(self.store.counts(tenant))

    def rates(self, tenant=ANY, since=EPOCH, **fields):
        """Return happenings per minute: the minutes since EPOCH, type, what and number."""
        found = self.run(self.store.rates(tenant, since, **fields))
        return [((one.minute - MINUTE) // (60 * SECOND), one.type, one.what, one.number) for one in found]

    def scale(self, tenant=ANY, **fields):
        return self.run(self.store.scale(tenant, **fields))

    def recount(self, **fields):
        return list(self.run(self.store.recount(**fields)))

    def snapshot(self, run):
        """Return everything that can be read of a run: an equal snapshot later means that nothing changed."""
        return self.get(run), tuple(self.steps(run)), tuple(self.trail(run))

    def everything(self):
        """Return everything that the trail and the counts say about the store."""
        stats = self.stats()
        return tuple(self.trail(limit=100_000)), stats.by_status, stats.undelivered

    def assert_replayed(self, run):
        """Check that the replayed trail gives the present status of the run and of each step."""
        status, steps = replayed(self.trail(run))
        assert status == self.status(run)
        assert steps == {step.key: step.status for step in self.steps(run)}
