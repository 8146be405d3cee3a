"""Runs of an app with a codec: they behave like others, and the store sees none of their values."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import apsw
import pytest

from holdfast import App, Backoff, RunFailed, Status, StepFailed, Task, UnknownKey, Waiting
from holdfast.records import ANY
from holdfast.sealing import Compress, Encrypt, Sealed
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from tests.engine.kit import outcome, until
from tests.laws.effort import longer
from tests.sealing.conftest import NEW, OTHER

SECRET = "the-cat-is-called-Mia"  # in every value that a user can give; long enough to be found anywhere


def busy(app, calls):
    """A workflow that puts a secret wherever one can be put."""

    @app.workflow("shop.order.v1", retry=Backoff.none())
    async def order(ctx, params):
        ctx.log(f"begins {SECRET}", about=SECRET)
        ctx.progress(1, 3, f"with {SECRET}")
        made = await ctx.step("make", lambda: calls.append("make") or {"made": params["what"]})
        event = await ctx.await_event("paid")
        ctx.emit("told", {"about": event.payload["by"]})
        ctx.now()
        await ctx.sleep(60)
        with pytest.raises(StepFailed, match=SECRET):
            await ctx.step("break", broken)
        ctx.log(f"ends {SECRET}")
        if params.get("fail"):
            raise ValueError(f"no {SECRET}")
        return {**made, "paid": event.payload, "note": "n" * 200}

    return order


def broken():
    raise OSError(f"cannot find {SECRET}")


async def played(app, **more):
    """The workflow to its end, with everything that can be told and seen of it on the way."""
    calls = []
    order = busy(app, calls)
    run = await app.start(order, {"what": SECRET, **more}, key="order:42", labels={"shop": "north"})
    async with app.worker():
        await until(app, run, Status.WAITING)
        await app.emit("paid", {"by": SECRET}, id="paid-1")
        await until(app, run)
    assert calls == ["make"]
    return run


@pytest.mark.spec("OPS-5")
async def test_a_sealed_run_goes_its_way_like_any_other(app):
    """It parks, is woken, replays and ends; whoever has the key sees all of it."""
    run = await played(app)
    assert await run.result(1) == {"made": SECRET, "paid": {"by": SECRET}, "note": "n" * 200}
    found = await app.get(run.id)
    assert found.params == {"what": SECRET}
    assert found.progress == {"done": 1, "total": 3, "note": f"with {SECRET}"}
    steps = {step.key: step for step in await app.steps(run.id)}
    assert json.loads(steps["make"].output) == {"made": SECRET}
    assert json.loads(steps["event:paid"].output)["payload"] == {"by": SECRET}
    assert SECRET in steps["break"].error.message
    logged = [entry.data for entry in await app.trail(run.id, types=("log",))]
    assert [row["message"] for row in logged] == [f"begins {SECRET}", f"ends {SECRET}"]
    assert logged[0]["about"] == SECRET
    failed = [entry.data for entry in await app.trail(run.id, types=("step_failed",))]
    assert SECRET in failed[0]["error"]["message"]


async def test_the_error_of_a_sealed_run_is_whole_for_whoever_has_the_key(app):
    run = await played(app, fail=True)
    with pytest.raises(RunFailed, match=f"no {SECRET}"):
        await run.result(1)
    found = await app.get(run.id)
    assert (found.error.kind, found.error.type, found.error.message) == (
        "exhausted",
        "ValueError",
        f"no {SECRET}",
    )
    assert "Traceback" in found.error.traceback
    assert found.last_error == f"exhausted: ValueError: no {SECRET}"


async def test_a_failed_step_is_forgotten_by_a_retry_although_its_error_is_sealed(app):
    """The store reads which step an error names; that stays readable."""
    tries = []

    def pay():
        tries.append(1)
        if len(tries) == 1:
            raise ValueError(SECRET)
        return "paid"

    @app.workflow("shop.pay.v1", retry=Backoff.none())
    async def order(ctx):
        return await ctx.step("pay", pay)

    async with app.worker():
        run = await app.start(order)
        assert (await until(app, run)).error.step == "pay"
        await app.retry(run.id)
        assert await outcome(app, run) == ("succeeded", "paid")


async def test_a_step_that_backs_off_says_why_only_to_whoever_has_the_key(app, store):
    def pay():
        raise ValueError(SECRET)

    @app.workflow("shop.pay.v1")
    async def order(ctx):
        await ctx.step("pay", pay, retry=Backoff.fixed(60, attempts=2))

    async with app.worker():
        run = await app.start(order)
        await asyncio.sleep(10)
    found, bare = await app.get(run.id), await store.get(run.id, ANY)
    assert (found.status, found.last_error) == (Status.PENDING, f"error: ValueError: {SECRET}")
    assert (bare.last_error, bare.error.message) == ("error: ValueError (sealed)", "(sealed)")
    (told,) = await app.trail(run.id, types=("retried",))
    assert told.data["error"]["message"] == SECRET


async def test_the_progress_that_a_renewal_carries_is_sealed_too(app, store):
    async def work(ctx):
        ctx.progress(1, 2, SECRET)
        await asyncio.sleep(60)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("work", work, ctx)

    run = await app.start(order, tenant="acme")
    async with app.worker():
        await asyncio.sleep(30)
        assert (await app.get(run.id)).progress == {"done": 1, "total": 2, "note": SECRET}
        assert (await store.get(run.id, ANY)).progress["note"] == "(sealed)"


async def test_a_sealed_run_continues_as_the_next(app):
    @app.workflow("shop.count.v1")
    async def count(ctx, n: int):
        if n < 2:
            ctx.continue_as(n + 1)
        return n

    async with app.worker():
        run = await app.start(count, 1)
        assert await run.result(60) == 2
        following = (await run.get()).result["continued_as"]
        assert await app.result(following, 60) == 2


async def test_each_tenant_has_its_own(app):
    """Steps, logs and events of a run are bound to its tenant, and found by it."""

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ctx.log(SECRET)
        await ctx.step("make", lambda: SECRET)
        return (await ctx.await_event("paid")).payload

    async with app.worker():
        run = await app.start(order, tenant="acme")
        await app.emit("paid", 7, tenant="acme")
        assert await run.result(60) == 7
    for tenant in (ANY, "acme"):
        assert json.loads((await app.store.steps(run.id, tenant))[0].output) == SECRET
        (told,) = await app.store.trail(run.id, tenant, types=("log",))
        assert told.data["message"] == SECRET


@pytest.mark.parametrize(
    "codec", [None, Encrypt({"new": NEW}), [Compress(), Encrypt({"new": NEW})]], ids=repr
)
@pytest.mark.parametrize("fail", [True, *longer(False)])
async def test_nothing_of_a_secret_is_left_in_the_file(codec, fail, tmp_path, world):
    """Neither in a row nor in SQLite's log. Without a codec it is found, or the search would be no proof."""
    app = App(SqliteStore(str(tmp_path / "x.db"), clock=world.now, inline=True), world=world, codec=codec)
    await played(app, fail=fail)
    found = [path.name for path in tmp_path.iterdir() if SECRET.encode() in path.read_bytes()]
    await app.close()
    found += [path.name for path in tmp_path.iterdir() if SECRET.encode() in path.read_bytes()]
    assert bool(found) == (codec is None)


async def test_what_plain_sql_sees_of_a_sealed_run(tmp_path, world):
    """All that a store guards, finds or counts by; values say that they are sealed, and under which key."""
    app = App(
        SqliteStore(str(tmp_path / "x.db"), clock=world.now, inline=True),
        world=world,
        codec=Encrypt({"new": NEW}),
    )
    run = await played(app, fail=True)
    await app.close()
    with sqlite3.connect(tmp_path / "x.db") as db:
        row = db.execute(
            "select type, status, idempotency_key, labels, last_error, error ->> '$.kind',"
            """ payload ->> '$."holdfast.sealed".by[0]' from workflow_run where id = ?""",
            (str(run.id),),
        ).fetchone()
        logged = db.execute(
            "select data ->> '$.level' from workflow_event where event_type = 'log'"
        ).fetchall()
    db.close()
    assert row[:3] == ("shop.order.v1", "failed", "order:42")
    assert json.loads(row[3]) == {"shop": "north"}
    assert row[4:] == ("exhausted: ValueError (sealed)", "exhausted", "aes256gcm:new")
    assert logged == [("info",)] * 2


def everywhere_else(app):
    """A question that is open, a task that was woken and is at it, and a message that nobody takes."""

    @app.workflow("shop.asking.v1")
    async def asking(ctx):
        ctx.send("carrier", SECRET)
        await ctx.approval("ok", "is it right?", {"what": SECRET})

    @app.sink("carrier")
    def carrier(delivery):
        raise ValueError(delivery.payload)

    @app.plan("shop.carry.v1", [Task("CARRY")]).task("CARRY")
    async def carry(task):
        if task.event is not None:
            await asyncio.sleep(3600)
        return Waiting("carrier")


async def test_the_guide_names_every_place_where_a_key_may_be_named(tmp_path, world):
    """Else a key that is still needed might be thrown away."""
    guide = (Path(__file__).parents[2] / "docs/guide/encryption.md").read_text("utf-8")
    query = guide.partition("```sql\n")[2].partition("```")[0].replace("2026-11", "new")
    path = str(tmp_path / "x.db")
    app = App(SqliteStore(path, clock=world.now, inline=True), world=world, codec=Encrypt({"new": NEW}))

    @app.workflow("shop.early.v1")
    async def early(ctx):
        await ctx.await_event("early")
        await ctx.step("long", asyncio.sleep, 3600)

    async def ended(ctx):
        return SECRET

    everywhere_else(app)
    await played(app, fail=True)
    await app.start(app.workflow("shop.ended.v1")(ended))
    await app.start(early)
    await app.emit("early", SECRET)
    await app.start("shop.asking.v1")
    await app.start("shop.carry.v1")
    await app.emit("carrier", SECRET)
    await app.schedule("nightly", "shop.order.v1", SECRET, cron="0 3 * * *")
    await app.webhook("hook", f"https://example.com/{SECRET}")
    async with app.worker():
        await asyncio.sleep(5)
        db = apsw.Connection(path)
        tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        places = [(one, column[1]) for one in tables for column in db.execute(f"pragma table_info({one})")]
        count = "select count(*) from {} where {} like '%aes256gcm:new%'"
        counts = [db.execute(count.format(*place)).fetchone()[0] for place in places]
        assert db.execute(query).fetchone()[0] == sum(counts)
        assert len(counts) - counts.count(0) == query.count("select ") - 1
        db.close()
    await app.close()


async def test_lists_work_without_the_key(app, opened):
    """Values are shown as they are, with the reason in them; only asking for the result is an error."""
    run = await played(app)
    failed = await app.start("shop.order.v1", {"what": SECRET}, key="order:43")
    stranger = opened(Encrypt({"other": OTHER}))
    assert {one.id for one in await stranger.list()} == {run.id, failed.id}
    found = await stranger.get(run.id)
    assert found.params["holdfast.sealed"]["why"] == "UnknownKey"
    assert found.params["holdfast.sealed"]["by"][-1] == "aes256gcm:new"
    assert found.progress == {"done": 1, "total": 3, "note": "(sealed)", **_sealed(found.progress)}
    (make, *_) = await stranger.steps(run.id)
    assert "UnknownKey" in make.output
    assert [entry.data["message"] for entry in await stranger.trail(run.id, types=("log",))] == [
        "(sealed)"
    ] * 2
    with pytest.raises(UnknownKey, match=r"the result of run .* is sealed under key 'new'"):
        await stranger.result(run.id, 1)


def _sealed(shown):
    return {"holdfast.sealed": shown["holdfast.sealed"]}


async def test_whoever_has_no_codec_is_told_so(app, opened):
    run = await played(app)
    stranger = opened(None)
    assert "holdfast.sealed" in (await stranger.get(run.id)).params
    with pytest.raises(Exception, match=r"is sealed \(zlib, aes256gcm:new\), and here is no codec"):
        await stranger.result(run.id, 1)


async def test_without_a_codec_there_is_no_wrapper(opened, store):
    """With a codec, the store behind it is the given one."""
    assert opened(None).store is store
    wrapped = opened(Compress()).store
    assert isinstance(wrapped, Sealed)
    assert wrapped.inner is store


async def test_another_store_that_is_put_into_an_app_stands_behind_its_codec(app, world):
    """The case of `holdfast worker --store`: values must not be written unsealed."""
    other = MemoryStore(clock=world.now)
    app.store = other
    run = await app.start("shop.order.v1", {"what": SECRET})
    assert SECRET not in (await other.get(run.id, ANY)).params_json
    assert (await app.get(run.id)).params == {"what": SECRET}
