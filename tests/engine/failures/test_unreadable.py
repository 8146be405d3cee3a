"""Stored values that cannot be read: the run fails with a clear error, in one execution."""

from __future__ import annotations

import asyncio
import logging
from uuid import uuid4

import msgspec
import pytest

from holdfast import App, Backoff, BadValue, ChildFailed, Status, StepFailed, Waiting
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import NewEvent, NewRun
from tests.engine.kit import outcome, until
from tests.engine.plans.plan_helpers import ship

DEEP = "[" * 1000 + "]" * 1000
DEEPER = '{"a":' * 20_000 + "1" + "}" * 20_000
UNREADABLE = {
    "deep": DEEP,
    "deeper": DEEPER,
    "cut": '{"a": ',
    "too many digits": "9" * 5000,
    "1e400": "1e400",
}


class Spoilt:
    """A store that returns steps with an overwritten field."""

    def __init__(self, store, **fields):
        self._store, self._fields = store, fields

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def claim(self, ask):
        return [
            msgspec.structs.replace(one, steps=tuple(map(self._spoilt, one.steps)))
            for one in await self._store.claim(ask)
        ]

    def _spoilt(self, step):
        return step if step.status is StepStatus.WAITING else msgspec.structs.replace(step, **self._fields)


async def planted(store, run):
    """Write a run with any params into the store, past its checks: a store refuses text that is no JSON."""
    await type(store).start.__wrapped__(store, [run])


async def executions(app, run):
    return len(await app.trail(run.id, types=("leased",)))


def assert_one_line(caplog):
    """Nothing is logged but that the run has failed: no traceback of the engine."""
    (line,) = caplog.records
    assert (line.name, line.levelname, line.exc_info) == ("holdfast.run", "ERROR", None)


@pytest.mark.spec("FLOW-17")
@pytest.mark.parametrize("params", UNREADABLE.values(), ids=UNREADABLE)
async def test_params_that_cannot_be_read_fail_the_run_at_once_and_no_other(app, params, caplog):
    @app.workflow("a.b.v1", retry=Backoff.fixed(1, attempts=5))
    async def work(ctx, params=None):
        return params

    await app.store.open()
    bad = NewRun(id=uuid4(), type="a.b.v1", params=params)
    await planted(app.store, bad)
    good = await app.start(work, 7)
    with caplog.at_level(logging.ERROR):
        async with app.worker():
            assert await outcome(app, bad) == ("failed", "encoding")
            assert await good.result(60) == 7
    assert_one_line(caplog)
    assert await executions(app, bad) == 1
    assert "params of a.b.v1" in (await app.get(bad.id)).last_error


@pytest.mark.spec("FLOW-17")
@pytest.mark.parametrize("payload", [DEEP, "[" * 65 + "]" * 65], ids=["deep", "65 levels"])
@pytest.mark.parametrize("before", [True, False])
async def test_an_event_that_cannot_be_read_fails_its_waiters_with_a_clear_word(app, before, payload):
    seen = []

    @app.workflow("a.b.v1")
    async def work(ctx):
        try:
            await ctx.await_event("paid")
        except BadValue as error:
            seen.append(str(error))
            raise

    run = await app.start(work)
    async with app.worker():
        if not before:
            await until(app, run, Status.WAITING)
        await app.store.emit(NewEvent(topic="paid", payload=payload, id="x"))
        assert await outcome(app, run) == ("failed", "encoding")
    (said,) = seen
    assert "the event of step 'event:paid' is nested deeper than 64 levels" in said


@pytest.mark.spec("FLOW-17")
async def test_a_plan_whose_task_is_called_for_an_event_that_cannot_be_read_fails(app, caplog):
    plan = ship(app, lambda _: Waiting("carrier"))
    run = await app.start(plan)
    with caplog.at_level(logging.ERROR):
        async with app.worker():
            await until(app, run, Status.WAITING)
            await app.store.emit(NewEvent(topic="carrier", payload=DEEP, id="x"))
            assert await outcome(app, run) == ("failed", "encoding")
    assert_one_line(caplog)
    assert "the event that called step 'SHIP'" in (await app.get(run.id)).last_error


RECORDED = {
    "result": ({"output": DEEP}, BadValue),
    "no JSON": ({"output": "{"}, BadValue),
    "error": ({"status": StepStatus.FAILED, "error_json": DEEP}, StepFailed),
    "event": ({"kind": StepKind.EVENT, "output": "[]"}, BadValue),
    "event's time": (
        {"kind": StepKind.EVENT, "output": '{"id": "", "topic": "", "at": 9e18, "payload": 1}'},
        BadValue,
    ),
    "decision": ({"kind": StepKind.APPROVAL, "output": "7"}, BadValue),
    "child": ({"kind": StepKind.CHILD, "output": "{}["}, BadValue),
    "child's result": (
        {
            "kind": StepKind.CHILD,
            "output": f'{{"run": "{"0" * 32}", "status": "succeeded", "result": {DEEP}}}',
        },
        BadValue,
    ),
    "child's error": (
        {
            "kind": StepKind.CHILD,
            "status": StepStatus.FAILED,
            "output": f'{{"run": "{"0" * 32}", "status": "failed", "error": [[[1]]]}}',
        },
        ChildFailed,
    ),
}


@pytest.mark.spec("FLOW-17")
@pytest.mark.parametrize(("fields", "wanted"), RECORDED.values(), ids=RECORDED)
async def test_an_unreadable_record_is_a_typed_error(store, world, fields, wanted, caplog):
    seen = []

    def define(app, asked):
        @app.workflow("a.child.v1")
        async def child(ctx):
            return 1

        @app.workflow("a.b.v1", retry=Backoff.fixed(1, attempts=5))
        async def work(ctx):
            try:
                await asked(ctx, child)
            except Exception as error:
                seen.append(error)
                raise
            await ctx.sleep(60)

        return app

    async def of_kind(ctx, child):
        match fields.get("kind"):
            case StepKind.EVENT:
                await ctx.await_event("t", key="it")
            case StepKind.APPROVAL:
                await ctx.approval("it", ask="?")
            case StepKind.CHILD:
                await ctx.call(child, key="it")
            case _:
                await ctx.step("it", int)

    app = define(App(store, world=world), lambda ctx, _: ctx.step("it", int))
    run = await app.start("a.b.v1")
    async with app.worker():
        await until(app, run, Status.WAITING)
    spoilt = define(App(Spoilt(store, **fields), world=world), of_kind)
    await asyncio.sleep(100)
    with caplog.at_level(logging.ERROR):
        async with spoilt.worker():
            status, kind = await outcome(app, run)
    assert status == "failed"
    assert isinstance(seen[0], wanted), seen[0]
    assert kind == {BadValue: "encoding", ChildFailed: "child_failed", StepFailed: "encoding"}[wanted]
    assert len(seen) == 1
    assert len((await app.get(run.id)).last_error) <= 500
    assert_one_line(caplog)
