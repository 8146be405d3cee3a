"""While the curtain is up the apps are on the stage, and no step reaches the store they really have."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.testing import Rehearsal


@pytest.fixture
def file(tmp_path):
    return tmp_path / "prod.db"


@pytest.fixture
def app(file):
    """As in production: its steps call the app itself."""
    app = hf.App(f"sqlite:///{file}")

    @app.workflow("a.child.v1")
    async def child(ctx: hf.Context, n: int) -> int:
        return n + 1

    async def begin(n):
        await app.emit("begun", n)
        return str((await app.start(child, n)).id)

    def begin_plainly(n):
        app.sync.emit("begun", n)
        return str(app.sync.start(child, n).id)

    @app.workflow("a.parent.v1")
    async def parent(ctx: hf.Context, n: int) -> str:
        return await ctx.step("begin", begin, n)

    @app.workflow("a.plain.v1")
    async def plain(ctx: hf.Context, n: int) -> str:
        return await ctx.step("begin", begin_plainly, n)

    @app.workflow("a.body.v1")
    def body(ctx, n: int) -> str:
        return ctx.step("begin", begin_plainly, n)

    return app


@pytest.mark.spec("TEST-1")
@pytest.mark.parametrize("name", ["a.parent.v1", "a.plain.v1", "a.body.v1"])
def test_a_step_that_calls_its_app_reaches_the_stage_and_not_the_real_store(rehearsal, app, file, name):
    stage = rehearsal(app)
    run = stage.start(name, 1)
    assert [str(one.id) for one in stage.runs("a.child.%")] == [run.result()]
    assert [one.result() for one in stage.runs("a.child.%")] == [2]
    assert not file.exists()


@pytest.mark.spec("TEST-2")
def test_an_exploration_of_a_single_workflow_leaves_its_apps_store_alone(explore, app, file):
    """Nothing but the workflow is given: its app is known by it."""
    assert explore(app.workflows["a.plain.v1"], 1, compare=lambda _: None, check=False).plays > 20
    assert not file.exists()


def test_the_app_has_back_what_it_had_also_after_an_exception(app):
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


def test_an_app_that_does_not_play_is_refused_on_the_stage(rehearsal, app, tmp_path):
    other = hf.App(f"sqlite:///{tmp_path}/other.db", name="billing")

    async def bill():
        await other.emit("bill")

    @app.workflow("a.bill.v1")
    async def billed(ctx: hf.Context) -> None:
        await ctx.step("bill", bill)

    with pytest.raises(hf.RunFailed, match=r"app 'billing' is not on this stage.* Rehearsal\(app, other\)"):
        rehearsal(billed).start(billed).result()
    assert not (tmp_path / "other.db").exists()


def test_an_app_with_a_codec_is_understood_on_the_stage(rehearsal, tmp_path):
    app = hf.App(f"sqlite:///{tmp_path}/sealed.db", codec=hf.Encrypt({"k1": bytes(32)}))

    @app.workflow("a.sealed.v1")
    async def sealed(ctx: hf.Context) -> str:
        async def tell():
            await app.emit("told", "secret", run=ctx.run_id)

        await ctx.step("tell", tell)
        return (await ctx.await_event("told")).payload

    assert rehearsal(sealed).start(sealed).result() == "secret"


@pytest.mark.parametrize("plain", [True, False])
def test_plain_code_on_a_stage_cannot_wait_and_is_told_so(rehearsal, app, plain):
    def wait():
        return app.sync.start("a.child.v1", 1).result()

    async def body(ctx: hf.Context) -> int:
        return await ctx.step("wait", wait)

    named = app.workflow("a.wait.v1")((lambda _: wait()) if plain else body)
    with pytest.raises(hf.RunFailed, match=r"app\.sync cannot wait on a stage"):
        rehearsal(app).start(named).result()
    assert app.sync.start("a.child.v1", 1).result() == 2  # but the test can


def test_the_dead_tell_their_app_nothing(rehearsal, app):
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


def test_an_app_is_on_one_stage_at_a_time(rehearsal, app):
    rehearsal(app)
    with pytest.raises(hf.UsageError, match="on another stage already"):
        rehearsal(app.workflows["a.child.v1"])


def test_no_hook_of_the_app_is_called_on_the_stage(rehearsal, app):
    rung = []
    app.on("run.succeeded")(rung.append)
    assert rehearsal(app).start("a.child.v1", 1).result() == 2
    assert rung == []
