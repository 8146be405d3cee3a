"""Isolation of apps: during a rehearsal no step reaches the real store of an app."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.testing import Rehearsal


@pytest.fixture
def file(tmp_path):
    return tmp_path / "prod.db"


@pytest.fixture
def app(file):
    """An app whose steps call the app itself, as in production."""
    app = hf.App(f"sqlite:///{file}")

    @app.workflow("a.child.v1")
    async def child(ctx: hf.Context, n: int) -> int:
        return n + 1

    async def begin(n):
        await app.emit("begun", n)
        return str((await app.start(child, n)).id)

    def begin_sync(n):
        app.sync.emit("begun", n)
        return str(app.sync.start(child, n).id)

    @app.workflow("a.parent.v1")
    async def parent(ctx: hf.Context, n: int) -> str:
        return await ctx.step("begin", begin, n)

    @app.workflow("a.sync_step.v1")
    async def sync_step(ctx: hf.Context, n: int) -> str:
        return await ctx.step("begin", begin_sync, n)

    @app.workflow("a.sync_body.v1")
    def body(ctx, n: int) -> str:
        return ctx.step("begin", begin_sync, n)

    return app


@pytest.mark.spec("TEST-1")
@pytest.mark.parametrize("name", ["a.parent.v1", "a.sync_step.v1", "a.sync_body.v1"])
def test_a_step_that_calls_its_app_reaches_the_rehearsal_and_not_the_real_store(rehearsal, app, file, name):
    stage = rehearsal(app)
    run = stage.start(name, 1)
    assert [str(one.id) for one in stage.runs("a.child.%")] == [run.result()]
    assert [one.result() for one in stage.runs("a.child.%")] == [2]
    assert not file.exists()


@pytest.mark.slow
@pytest.mark.spec("TEST-2")
def test_an_exploration_of_a_single_workflow_leaves_its_apps_store_alone(explore, app, file):
    """`explore` finds the app of a workflow by itself."""
    assert explore(app.workflows["a.sync_step.v1"], 1, compare=lambda _: None, check=False).plays > 20
    assert not file.exists()


def test_the_app_gets_back_its_store_also_after_an_exception(app):
    had = app.store, app.world, app.sync
    with pytest.raises(ZeroDivisionError), Rehearsal(app):
        1 // (app.store is had[0])
    assert (app.store, app.world, app.sync) == had
    with pytest.raises(RuntimeError, match="no store"), Rehearsal(app, store=lambda _: Unopened()):
        pass
    assert (app.store, app.world, app.sync) == had


class Unopened:
    async def open(self):
        raise RuntimeError("no store")

    async def close(self):
        pass


def test_an_app_that_is_not_rehearsed_is_refused_in_the_rehearsal(rehearsal, app, tmp_path):
    other = hf.App(f"sqlite:///{tmp_path}/other.db", name="billing")

    async def bill():
        await other.emit("bill")

    @app.workflow("a.bill.v1")
    async def billed(ctx: hf.Context) -> None:
        await ctx.step("bill", bill)

    told = r"app 'billing' is not part of this rehearsal.* Rehearsal\(app, other\)"
    with pytest.raises(hf.RunFailed, match=told):
        rehearsal(billed).start(billed).result()
    assert not (tmp_path / "other.db").exists()


def test_an_app_with_a_codec_works_in_a_rehearsal(rehearsal, tmp_path):
    app = hf.App(f"sqlite:///{tmp_path}/sealed.db", codec=hf.Encrypt({"k1": bytes(32)}))

    @app.workflow("a.sealed.v1")
    async def sealed(ctx: hf.Context) -> str:
        async def tell():
            await app.emit("told", "secret", run=ctx.run_id)

        await ctx.step("tell", tell)
        return (await ctx.await_event("told")).payload

    assert rehearsal(sealed).start(sealed).result() == "secret"


@pytest.mark.parametrize("sync", [True, False])
def test_sync_code_in_a_rehearsal_cannot_wait_and_is_told_so(rehearsal, app, sync):
    def wait():
        return app.sync.start("a.child.v1", 1).result()

    async def body(ctx: hf.Context) -> int:
        return await ctx.step("wait", wait)

    named = app.workflow("a.wait.v1")((lambda _: wait()) if sync else body)
    with pytest.raises(hf.RunFailed, match=r"app\.sync cannot wait in a rehearsal"):
        rehearsal(app).start(named).result()
    assert app.sync.start("a.child.v1", 1).result() == 2  # but the test can


def test_a_crashed_worker_sends_nothing_to_its_app(rehearsal, app):
    told = []

    async def die_and_tell():
        told.append("once more")
        if len(told) == 1:
            stage.crash()
        await app.emit("told")

    @app.workflow("a.tell.v1")
    async def tell(ctx: hf.Context) -> int:
        await ctx.step("tell", die_and_tell)
        await ctx.await_event("told")
        return (await ctx.await_event("told", timeout=60)).payload

    stage = rehearsal(app)
    with pytest.raises(hf.RunFailed, match="no event"):
        stage.start(tell).result()
    assert len(told) == 2


def test_an_app_is_in_one_rehearsal_at_a_time(rehearsal, app):
    rehearsal(app)
    with pytest.raises(hf.UsageError, match="in another rehearsal already"):
        rehearsal(app.workflows["a.child.v1"])


def test_no_hook_of_the_app_is_called_in_a_rehearsal(rehearsal, app):
    rung = []
    app.on("run.succeeded")(rung.append)
    assert rehearsal(app).start("a.child.v1", 1).result() == 2
    assert rung == []
