"""Rehearsals and explorations of plans: time passes, handlers are replaced, workers crash."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Rehearsal, explore
from tests.laws.effort import longer


@pytest.fixture
def shop():
    return Shop()


class Shop:
    """A plan that takes a month, and its effects on the outside world."""

    def __init__(self):
        self.seen = []
        self.app = hf.App(MemoryStore())
        self.plan = self.app.plan(
            "shop.fulfil.v1", [hf.Task("CHARGE"), hf.Sleep("MONTH", hf.days(30)), hf.Task("SHIP")], params=int
        )
        self.plan.task("CHARGE")(self.charge)
        self.plan.task("SHIP")(self.ship)

    async def charge(self, task):
        self.seen.append(f"charged {task.params}")
        return task.params

    def ship(self, task):
        self.seen.append("shipped")
        return f"shipped for {task.outputs['CHARGE']}"


@pytest.mark.spec("TEST-1")
@pytest.mark.parametrize("what", ["app", "plan"])
def test_a_plan_is_rehearsed_with_a_clock_that_is_turned(shop, what):
    with Rehearsal(getattr(shop, what)) as stage:
        run = stage.start(shop.plan, 7)
        assert (run.status, shop.seen) == ("waiting", ["charged 7"])
        assert [str(step.status) for step in run.steps().values()] == ["succeeded", "waiting", "pending"]
        stage.advance(days=30)
        assert run.result() == "shipped for 7"
        assert [step.key for step in stage.runs()[0].steps().values()] == ["CHARGE", "MONTH", "SHIP"]


@pytest.mark.spec("TEST-1")
def test_a_handler_is_replaced_by_a_tests_own(shop):
    """The replaced handler is not called, and the answer of the replacement is recorded like its own."""
    replace = {shop.charge: lambda task: task.params * 2, shop.ship: lambda _: hf.Dead("no truck")}
    with Rehearsal(shop.app, replace=replace) as stage:
        run = stage.start(shop.plan, 7)
        assert run.steps()["CHARGE"].output == "14"
        stage.finish(run)
        assert run.get().error.message == "no truck"
    assert shop.seen == []


def test_a_worker_that_dies_inside_a_handler_is_replaced(shop):
    with Rehearsal(shop.app) as stage:
        plan = stage.app.workflows["shop.fulfil.v1"]
        assert plan is not shop.plan, "the stage plays a copy"
        calls = []

        async def charge(task):
            calls.append(task.reason)
            if len(calls) == 1:
                stage.crash()
            return 1

        stage.replace(shop.charge, charge)
        run = stage.start(shop.plan, 7)
        assert run.result() == "shipped for 1"
    assert calls == ["start", "retry"]


@pytest.mark.slow
@pytest.mark.spec("TEST-2")
def test_explore_finds_a_handler_whose_output_tells_how_often_it_was_called(shop):
    """A handler that is cut off before its commit is called again: the outcome of the run must not show
    it.
    """
    memory = {}

    async def charge(task):
        memory["times"] = memory.get("times", 0) + 1
        return memory["times"]

    report = explore(shop.plan, 7, replace={shop.charge: charge}, reset=memory.clear, check=False)
    assert report.findings
    assert "shipped for 2" in str(report)


@pytest.mark.slow
@pytest.mark.spec("TEST-2")
def test_explore_finds_nothing_in_a_good_plan(shop):
    report = explore(shop.plan, 7, reset=shop.seen.clear, observe=lambda: shop.seen)
    assert report.plays > 50


@pytest.mark.slow
@pytest.mark.spec("TEST-2")
@pytest.mark.parametrize("idempotent", [False, True])
def test_explore_speaks_of_handlers_where_there_is_no_body(shop, idempotent):
    """Hints for plans speak of handlers, not of the body of a workflow."""

    async def charge(task):
        shop.seen.append(task.reason)
        return task.attempt

    def twice(task):
        shop.seen.append("shipped")

    replace = {shop.charge: charge, shop.ship: twice}
    watched = {"reset": shop.seen.clear, "observe": lambda: shop.seen, "check": False}
    told = str(explore(shop.plan, 7, replace=replace, idempotent=idempotent, **watched))
    assert "task.reason may be retry" in told
    assert ("task.idempotency_key" in told) is idempotent
    for word in ("body", "ctx."):
        assert word not in told


@pytest.mark.slow
@pytest.mark.spec("TEST-2")
def test_explore_says_how_a_handlers_output_must_be(shop):
    told = str(explore(shop.plan, 7, replace={shop.ship: lambda task: task.attempt}, check=False))
    assert "nothing of the clock, of chance, of task.attempt" in told
    assert "body" not in told


@pytest.mark.slow
@pytest.mark.spec("TEST-1", "TEST-2")
@pytest.mark.parametrize("store", ["memory", *longer("sqlite")])
def test_a_gate_is_waited_for_and_decided_in_every_play(shop, store):
    """A gate opens later when the worker has crashed."""
    plan = shop.app.plan("shop.gated.v1", [hf.Task("CHARGE"), hf.Approval("BOSS"), hf.Task("SHIP")])
    plan.task("CHARGE")(shop.charge)
    plan.task("SHIP")(shop.ship)

    def boss(stage, run):
        while not stage.approvals():
            stage.advance(1)
        stage.approve(run, "BOSS", by="ada")

    report = explore(plan, 7, script=boss, store=store)
    assert report.plays > 30


def test_a_rehearsal_refuses_an_argument_that_is_no_workflow_in_one_line():
    with pytest.raises(hf.UsageError, match="give the decorated function, or a plan"):
        explore(print)
