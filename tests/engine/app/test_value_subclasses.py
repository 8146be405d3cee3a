"""Text of a class such as Markup and numbers of an IntEnum are stored as the base values that they hold."""

from __future__ import annotations

from enum import IntEnum

import pytest

import holdfast as hf
from holdfast.arguments import check_labels, check_name, check_type
from holdfast.records import OutboxFilter, RunFilter
from holdfast.step_keys import check_key


class Markup(str):
    """Text whose str() differs from its content."""

    __slots__ = ()

    def __str__(self) -> str:
        return "escaped"

    def __len__(self) -> int:
        return 1


class Size(IntEnum):
    S = 1
    L = 5


M = Markup


def test_checks_return_values_of_class_str():
    found = [
        check_key(M("k")),
        check_name("key", M("k")),
        check_type(M("a.b.v1")),
        *check_labels({M("a"): M("b")}),
    ]
    assert found == ["k", "k", "a.b.v1", "a"]
    assert {type(one) for one in found} == {str}
    assert type(check_labels({"a": M("b")})["a"]) is str


@pytest.mark.spec("START-10")
async def test_starts_and_filters_accept_text_subclasses(app):
    @app.workflow(M("sub.one.v1"))
    async def one(_ctx, x):
        return x

    keyed = [
        (one, 1, {"key": "g1"}),
        (one, 1, {"key": M("g2"), "tenant": M("default"), "labels": {M("a"): M("b")}}),
    ]
    assert [handle.created for handle in await app.start_many(keyed)] == [True, True]
    handle = await app.start(
        M("sub.one.v1"), 2, priority=Size.L, max_attempts=Size.L, limit_key=M("k"), delay=Size.L
    )
    assert len(await app.list(RunFilter(type=M("sub.one.v1"), tenant=M("default")), Size.L)) == 3
    assert (await app.start(M("sub.one"), 2)).created
    assert len(await app.trail(types=[M("created")], tenant=M("default"), limit=Size.S)) == 1
    assert (await app.cancel(handle.id, by=M("me"))).status == "cancelled"
    assert await app.outbox(OutboxFilter(sink=M("mail"), tenant=M("default"))) == []
    assert await app.approvals(M("default"), Size.S) == []
    with pytest.raises(hf.UsageError):
        await app.start(one, 1, key=M("\0"))


@pytest.mark.spec("START-10")
async def test_schedules_limits_and_sinks_accept_text_subclasses(app):
    @app.workflow("sub.one.v1")
    async def one(_ctx, x):
        return x

    await app.schedule(M("s1"), one, 1, every=Size.L, tenant=M("z"))
    assert [found.name for found in await app.schedules(M("z"), M("s1"))] == ["s1"]
    await app.pause_schedule(M("s1"), M("z"), by=M("me"))
    await app.resume_schedule(M("s1"), M("z"))
    await app.fire_schedule(M("s1"), M("z"))
    assert await app.unschedule(M("s1"), M("z"))
    await app.limit(key=M("kk"), concurrency=Size.L)
    await app.register(M("sub.one"), runtime=M("python"), description=M("d"), intent_type=M("i"))
    await app.emit(M("t"), 1, id=M("i"), tenant=M("default"))
    await app.webhook(M("mail"), M("https://example.com/x"))
    assert await app.remove_webhook(M("mail"))


@pytest.mark.spec("START-10")
async def test_step_names_accept_text_subclasses(app):
    @app.workflow("sub.child.v1")
    async def child(_ctx, x):
        return x

    @app.workflow("sub.all.v1")
    async def everything(ctx):
        found = [await ctx.step(M("name"), lambda: 1), await ctx.step(M("name"), lambda: 2)]
        found.append(await ctx.step("other", lambda: 3, key=M("k")))
        ctx.emit(M("topic"), 4)
        found.append((await ctx.await_event(M("topic"), timeout=Size.L)).payload)
        found.append(await ctx.call(M("sub.child.v1"), 5, key=M("k9")))
        found += await ctx.map(M("all"), lambda one: one, [6])
        ctx.log(M("said"), level=M("info"))
        ctx.send(M("mail"), {"a": 1}, M("key"))
        await ctx.sleep(Size.S, key=M("nap"))
        late = await ctx.approval(M("ok"), M("so?"), timeout=Size.S, on_timeout=M("approve"))
        assert late.approved
        return found

    handle = await app.start(everything)
    async with app.worker(name=M("w"), slots=Size.L, patterns=[M("sub.%")], tenants=[M("default")]):
        assert await handle.result(timeout=60) == [1, 2, 3, 4, 5, 6]
    keys = {step.key for step in await app.steps(handle.id)}
    assert {"name", "name#2", "k", "emit:topic", "event:topic", "k9", "all[0]", "nap", "send:mail"} <= keys


@pytest.mark.spec("START-10")
async def test_plans_accept_text_subclasses(app):
    plan = app.plan(M("sub.plan.v1"), [hf.Task(M("A")), hf.Wait(M("W"), topic=M("t")), hf.Task(M("B"))])

    @plan.task(M("A"))
    async def first(_task):
        return hf.Completed(1)

    @plan.task(M("B"))
    async def last(_task):
        return hf.Completed(2)

    handle = await app.start(plan)
    await app.append_step(handle.id, M("A2"), Size.S)
    plan.task(M("A2"))(last)
    async with app.worker():
        await app.emit(M("t"))
        assert await handle.result(timeout=60) == 2


class Safe(str):
    """Text that keeps its class when it is converted with str()."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


@pytest.mark.spec("START-10")
@pytest.mark.parametrize("error", [ValueError, hf.Fatal])
async def test_errors_logs_and_notes_accept_text_subclasses(app, error):
    @app.workflow("sub.fail.v1", retry=hf.Backoff(attempts=1))
    async def fail(ctx):
        def step():
            ctx.progress(1, 2, Safe("note"))
            ctx.log(Safe("said"), level=Safe("info"))
            raise error(Safe("boom"))

        ctx.log(Safe("said"))
        await ctx.step(Safe("one"), step, retry=hf.Backoff(attempts=1))

    handle = await app.start(fail)
    async with app.worker():
        with pytest.raises(hf.RunFailed, match="boom"):
            await handle.result(timeout=60)
