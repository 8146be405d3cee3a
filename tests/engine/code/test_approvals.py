"""Gates in code workflows: a person decides, the decision is recorded, and the code continues with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest

import holdfast as hf
from holdfast import ANY, Conflict, IllegalMove, Status, UnknownRun, UsageError
from holdfast.records import moment
from tests.engine.kit import keys, trail, until


@dataclass
class Order:
    id: str
    total: float
    due: datetime


def ordering(app, **gate):
    @app.workflow("shop.order.v1")
    async def order(ctx, amount: int | None) -> list:
        decision = await ctx.approval("big-order", ask=f"Ship for {amount}?", data={"amount": amount}, **gate)
        return [decision.approved, decision.by, decision.comment, decision.timed_out]

    return order


@pytest.mark.spec("FLOW-6", "APPR-1", "APPR-2", "APPR-6")
async def test_a_gate_parks_the_run_until_a_person_approves(app):
    """The decision, its time and the person are the step's output. No worker executes the gate."""
    order = ordering(app)
    async with app.worker() as worker:
        run = await app.start(order, 2000)
        await until(app, run, Status.WAITING)
        assert worker.busy == 0
        (gate,) = await app.approvals()
        assert (gate.run, gate.step, gate.ask, gate.data) == (
            run.id,
            "big-order",
            "Ship for 2000?",
            {"amount": 2000},
        )
        decided = await app.approve(run.id, by="ada", comment="fine")
        assert await run.result(10) == [True, "ada", "fine", False]
    assert not decided.repeated
    assert decided.decision.at == moment((await app.steps(run.id))[0].finished_at)
    assert await app.approvals() == []
    assert [one for one in await trail(app, run) if one.startswith("appro")] == [
        "approval_opened",
        "approved",
    ]


@pytest.mark.spec("APPR-4")
async def test_a_rejection_is_returned_to_the_code_and_is_no_error(app):
    order = ordering(app)
    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await run.reject(by="bob")
        assert await run.result(10) == [False, "bob", "", False]


@pytest.mark.spec("APPR-8")
@pytest.mark.parametrize("verdict", ["reject", "approve"])
async def test_a_gate_past_its_timeout_takes_its_default_decision(app, verdict):
    order = ordering(app, timeout=30, on_timeout=verdict)
    async with app.worker():
        run = await app.start(order)
        assert await run.result(60) == [verdict == "approve", "", "", True]


async def test_a_decision_is_the_same_in_every_later_execution(app):
    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        decision = await ctx.approval("gate", ask="?")
        seen.append(decision)
        await ctx.sleep(60)
        return decision.by

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.approve(run.id, "gate", by="ada", comment="ok")
        assert await run.result(100) == "ada"
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert seen[0].at.tzinfo is UTC


@pytest.mark.spec("APPR-2", "FLOW-9")
async def test_gates_events_and_sleeps_can_be_awaited_together(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        one, two, event, _ = await asyncio.gather(
            ctx.approval("legal", ask="legal?"),
            ctx.approval("money", ask="money?"),
            ctx.await_event("paid"),
            ctx.sleep(5),
        )
        return [one.by, two.by, event.payload]

    async with app.worker():
        run = await app.start(order)
        found = await until(app, run, Status.WAITING)
        assert {step.key for step in found.waiting_on} == {"legal", "money", "event:paid", "sleep"}
        assert [one.step for one in await app.approvals()] == ["legal", "money"]
        await asyncio.sleep(6)
        await app.approve(run.id, "money", by="m")
        await app.emit("paid", 7)
        await asyncio.sleep(1)
        await app.approve(run.id, "legal", by="l")
        assert await run.result(10) == ["l", "m", 7]


@pytest.mark.spec("APPR-2")
async def test_a_gate_can_be_decided_while_another_branch_runs(app):
    """The run learns the decision at its next boundary, without parking."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        gate, slow = await asyncio.gather(
            ctx.approval("gate", ask="?"), ctx.step("slow", asyncio.sleep, 20, "s")
        )
        return [gate.by, slow]

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(5)
        assert (await run.get()).status is Status.LEASED
        await app.approve(run.id, by="ada")
        assert await run.result(60) == ["ada", "s"]
    assert (await trail(app, run)).count("leased") == 1


@pytest.mark.spec("APPR-3", "APPR-9")
async def test_a_repeated_decision_gets_the_same_answer_and_the_opposite_is_refused(app):
    order = ordering(app)
    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        first = await app.approve(run.id, by="ada")
        again = await app.approve(run.id, by="bob", comment="me too")
        assert again.repeated
        assert again.decision == first.decision
        with pytest.raises(Conflict, match="approved"):
            await app.reject(run.id)
        await run.result(10)
        assert (await app.approve(run.id)).decision.by == "ada"
    with pytest.raises(Conflict, match="big-order"):
        await app.approve(run.id, "other")
    with pytest.raises(UnknownRun):
        await app.approve(uuid4())


@pytest.mark.spec("APPR-9")
async def test_a_gate_can_be_decided_without_its_name_only_if_it_is_the_only_gate(app):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        return [(await ctx.approval(name, ask="?")).approved for name in ("first", "second")]

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.approve(run.id)
        await until(app, run, Status.WAITING)
        with pytest.raises(Conflict, match="'first', 'second'"):
            await app.approve(run.id)
        await app.reject(run.id, "second")
        assert await run.result(10) == [True, False]


@pytest.mark.spec("APPR-6")
async def test_a_decision_can_be_bound_to_the_text_that_was_shown(app):
    order = ordering(app)
    async with app.worker():
        run, other = await app.start(order, 5), await app.start(order, 6)
        await until(app, other, Status.WAITING)
        mine, others = await app.approvals()
        with pytest.raises(Conflict, match="digest"):
            await app.approve(run.id, digest=others.digest)
        await app.approve(run.id, digest=mine.digest)
        assert (await run.result(10))[0] is True


@pytest.mark.spec("APPR-5")
async def test_a_cancelled_run_has_no_gate_to_decide(app):
    order = ordering(app)
    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.cancel(run.id)
        with pytest.raises(IllegalMove, match="cancelled"):
            await app.approve(run.id)
    assert await app.approvals() == []


@pytest.mark.spec("APPR-7")
async def test_open_gates_are_listed_over_all_runs_of_a_tenant_in_pages(app):
    order = ordering(app)
    async with app.worker():
        runs = [await app.start(order, n) for n in range(5)]
        other = await app.start(order, tenant="acme")
        await until(app, other, Status.WAITING)
        await until(app, runs[-1], Status.WAITING)
        first = await app.approvals(limit=3)
        rest = await app.approvals(limit=3, after=first[-1])
        assert [one.run for one in (*first, *rest)] == [run.id for run in runs]
        assert [one.run for one in await app.approvals("acme")] == [other.id]
        assert len(await app.approvals(ANY)) == 6


async def test_a_gate_of_a_branch_that_lost_a_race_is_given_up(app):
    """A decision would have no effect any more, so the gate is no longer listed."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        gate = asyncio.ensure_future(ctx.approval("gate", ask="?"))
        event = asyncio.ensure_future(ctx.await_event("enough"))
        await asyncio.wait([gate, event], return_when=asyncio.FIRST_COMPLETED)
        gate.cancel()
        await ctx.sleep(60)
        return "went on"

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.emit("enough")
        await asyncio.sleep(1)
        assert await app.approvals() == []
        with pytest.raises(IllegalMove, match="not decided"):
            await app.approve(run.id)
        assert await run.result(200) == "went on"


async def test_sync_workflows_can_wait_at_gates(app):
    @app.workflow("shop.order.v1")
    def order(ctx: hf.SyncContext) -> str:
        return ctx.approval("gate", ask="?", timeout=hf.days(1)).by

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        await app.approve(run.id, by="ada")
        assert await run.result(10) == "ada"


async def test_a_gate_can_show_a_value_of_any_type_and_readers_get_its_data(app):
    at = datetime(2026, 1, 2, tzinfo=UTC)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return (await ctx.approval("gate", ask="?", data={"order": Order("a", 1.5, at)})).approved

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        (gate,) = await app.approvals()
        assert gate.data == {"order": {"id": "a", "total": 1.5, "due": "2026-01-02T00:00:00Z"}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ask": 5}, "give text; other values go into data="),
        ({"ask": "?", "on_timeout": "maybe"}, "'reject' or 'approve'"),
        ({"ask": "?", "data": {"x": float("nan")}}, r"data\.x is nan"),
        ({"ask": "?", "data": object()}, "object"),
        ({"ask": "?", "timeout": "soon"}, "is not a duration"),
    ],
)
async def test_a_bad_question_is_refused_in_one_line(app, options, message):
    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.approval("gate", **options)

    async with app.worker():
        run = await app.start(order)
        with pytest.raises(hf.RunFailed, match=message):
            await run.result(10)
    assert await keys(app, run) == []


@pytest.mark.parametrize("options", [{"by": 5}, {"comment": "\0"}, {"comment": "x" * 20_000}])
async def test_by_and_comment_of_a_decision_must_be_text(app, options):
    with pytest.raises(UsageError):
        await app.approve(uuid4(), **options)


async def test_a_gate_keeps_its_first_text_after_a_change_of_the_code(app):
    """The digest stays that of the text which the person saw."""
    asked = ["first"]

    @app.workflow("shop.order.v1")
    async def order(ctx):
        _, gate = await asyncio.gather(ctx.sleep(5), ctx.approval("gate", ask=asked[0]))
        return gate.approved

    async with app.worker():
        run = await app.start(order)
        await until(app, run, Status.WAITING)
        (before,) = await app.approvals()
        asked[0] = "second"
        await asyncio.sleep(10)
        (after,) = await app.approvals()
        assert msgspec.to_builtins(after) == msgspec.to_builtins(before)
        await app.approve(run.id, digest=before.digest)
        assert await run.result(10) is True
