"""Cost of a run in one segment on SQLite: a claim and a commit, and few statements."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App
from holdfast.stores.sqlite import SqliteStore

WRITES = ("insert", "update", "delete")


def worked(path, mode, steps=5, runs=1):
    """Let a worker execute runs of `steps` steps. Return the commits, and the statements that wrote."""
    store = SqliteStore(str(path))
    app = App(store, name="test")
    wrote = []

    @app.workflow("shop.order.v1", checkpoint=mode, refresh=60)  # none on a slow machine either
    async def order(ctx):
        for n in range(steps):
            await ctx.step(f"s{n}", asyncio.sleep, 0)

    def trace(_cursor, sql, _bindings):
        if sql.startswith(WRITES):
            wrote.append(sql)
        return True

    async def main():
        started = [await app.start(order) for _ in range(runs)]
        async with app.worker(keeper=False, slots=1):
            commits = store._transactor.commits  # without an await: the worker has not claimed yet
            store._transactor.db.connection.exec_trace = trace
            for run in started:
                await run.result(10)
            store._transactor.db.connection.exec_trace = None
            commits = store._transactor.commits - commits
        await app.close()
        return commits

    return asyncio.run(main()), wrote


@pytest.mark.spec("FLOW-13")
def test_a_segment_costs_one_claim_and_one_commit_however_many_steps(tmp_path):
    """Claim and commit, each with a handful of statements; one commit a step otherwise."""
    few, many = worked(tmp_path / "a", "segment", 5), worked(tmp_path / "b", "segment", 50)
    assert (few[0], many[0]) == (2, 2)
    assert len(few[1]) == len(many[1]) <= 9
    assert worked(tmp_path / "c", "step", 5)[0] == 2 + 5


@pytest.mark.spec("FLOW-13")
def test_the_next_claim_shares_the_commit_that_ends_the_run_before(tmp_path):
    """Ten runs, one after the other in one slot: fewer than two commits each."""
    commits, _ = worked(tmp_path / "a", "segment", runs=10)
    assert commits < 20
