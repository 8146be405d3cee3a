"""Common mistakes in a workflow: the error says what to write instead."""

from __future__ import annotations

import pytest

from holdfast import Backoff, BadValue, UsageError
from tests.engine.kit import until


@pytest.mark.spec("FLOW-10")
async def test_a_superfluous_and_a_missing_await_are_hinted_at(app):
    @app.workflow("shop.much.v1", retry=Backoff.none())
    async def much(ctx):
        await ctx.send("mail", {})

    @app.workflow("shop.few.v1", retry=Backoff.none())
    async def few(ctx):
        return ctx.approval("boss").approved

    @app.workflow("shop.sum.v1", retry=Backoff.none())
    async def sum_(ctx):
        return ctx.step("one", int, 1) + 1

    @app.workflow("shop.other.v1", retry=Backoff.none())
    async def other(ctx):
        return None + 1

    said = {}
    async with app.worker():
        for workflow in (much, few, sum_, other):
            found = await until(app, await app.start(workflow))
            said[workflow.type] = found.last_error
    assert said["shop.much.v1"].endswith(": ctx.send, emit, log, progress and cost are not awaited")
    for name in ("shop.few.v1", "shop.sum.v1"):
        assert said[name].endswith(": is an `await` missing, as in `await ctx.approval(…)`?")
    assert said["shop.other.v1"].endswith("for +: 'NoneType' and 'int'")


@pytest.mark.spec("START-2")
async def test_the_default_of_a_value_is_used_when_none_is_given(app):
    """It is used for a start by function, by name, and for a recorded run without params."""

    @app.workflow("shop.count.v1")
    async def count(ctx, seen: list[int] = [1]) -> list[int]:  # noqa: B006 - that is what is tested
        seen.append(2)
        return seen

    by_name = await app.start("shop.count.v1")
    unknown = await app.store.start([_bare(app, "shop.count.v1")])
    async with app.worker():
        for given, wanted in (((), [1, 2]), (([7],), [7, 2])):
            assert await (await app.start(count, *given)).result() == wanted
        assert await by_name.result() == [1, 2]
        assert await app.result(unknown[0].id) == [1, 2]
        with pytest.raises(BadValue, match=r"params of shop\.count\.v1 does not match its annotation"):
            await app.start(count, "seven")


def _bare(app, type_):
    from holdfast.records import NewRun

    return NewRun(id=app.world.uuid7(), type=type_)


def test_a_default_that_cannot_be_recorded_is_refused_where_it_is_written(app):
    with pytest.raises(UsageError, match=r"workflow shop\.odd\.v1: the default of 'how' is an object, which"):

        @app.workflow("shop.odd.v1")
        async def odd(ctx, how=object()):  # noqa: B008 - that is what is tested
            return how
