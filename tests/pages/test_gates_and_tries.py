"""Open gates, the current step of a plan, and failed tries on the page of one run, without a browser."""

from __future__ import annotations

import asyncio
import re

import holdfast as hf
from holdfast.records import Scope
from tests.http.kit import READ


def test_a_long_plan_shows_its_open_gate_and_the_current_step(visit):
    app, kit = visit.kit.app, visit.kit
    steps = [hf.Approval("GATE", ask="Go on?") if n == 30 else hf.Task(f"S{n}") for n in range(120)]
    plan = app.plan("shop.longplan.v1", steps)
    for number in [*range(30), *range(31, 120)]:
        plan.task(f"S{number}")(_nothing)
    run = kit.run(app.start, "shop.longplan.v1", None).id
    kit.work(run)
    page = visit.text(f"/runs/{run}")
    assert "Decision at gate GATE" in page
    assert "Go on?" in page
    assert re.search(r'<li class="current"><a[^>]*>GATE</a>', page)
    assert "Steps 11 to 50 of 120." in page


async def _nothing(task):
    return None


def test_all_open_gates_of_a_run_are_shown(keyed_visit):
    app, kit = keyed_visit.kit.app, keyed_visit.kit

    @app.workflow("shop.gates.v1")
    async def gates(ctx):
        await asyncio.gather(*(ctx.approval(f"gate {n}", ask=f"May {n}?") for n in range(12)))

    run = kit.run(app.start, gates).id
    kit.work(run)
    keyed_visit.sign_in(Scope.RUNS_READ, Scope.APPROVALS_DECIDE)
    page = keyed_visit.text(f"/runs/{run}")
    assert len(re.findall(r"May \d+\?", page)) == 10  # who may decide may read the question
    assert "2 more gates of this run are open" in page


def test_tries_that_failed_outside_of_a_step_are_bars_of_the_run(keyed_visit):
    app, kit = keyed_visit.kit.app, keyed_visit.kit

    @app.workflow("shop.flaky.v1", retry=hf.Backoff.fixed(0.05, attempts=3))
    async def flaky(ctx):
        await ctx.step("first", lambda: 1)
        raise ValueError("no")

    run = kit.run(app.start, flaky).id
    kit.work(run)
    for scopes in (READ, (Scope.RUNS_READ,)):  # a delay is no value of a user
        keyed_visit.sign_in(*scopes)
        page = keyed_visit.text(f"/runs/{run}")
        assert re.findall(r"try \d failed|the last try failed", page) == [
            "try 1 failed", "try 2 failed", "the last try failed",
        ]  # fmt: skip
        assert page.count("50 ms until the next try") == 2
        assert page.count("t-bar t-failed") == 3
    kit.run(app.retry, run)
    assert keyed_visit.text(f"/runs/{run}").count("t-bar t-failed") == 2  # the retry of a person is no try
