"""Options that make no sense are refused in one clear line each, before anything is recorded."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.errors import RunFailed, UsageError


@pytest.mark.spec("START-1")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prio": 5}, "start has no option 'prio'; its options: key, id, priority"),
        ({"run_at": 5}, "run_at 5: a datetime"),
        ({"labels": "x"}, "labels 'x': give a dict of texts"),
        ({"labels": {"n": 1}}, "labels {'n': 1}: give a dict of texts"),
        ({"labels": {"n": 1}}, "as in {'team': 'billing'}; 1 is an int"),
        ({"ttl": -100}, "ttl is -100 s, the time for which runs are kept: give 0"),
        ({"key": 7}, "key 7 is an int: give text"),
        ({"tenant": {"a": 1}}, "tenant {'a': 1} is a dict: give text"),
        ({"limit_key": 7}, "limit_key 7 is an int: give text"),
        ({"limit_key": ""}, "limit_key '': 1 to 255 characters of text"),
        ({"limit_key": "a\0b"}, "limit_key 'a\\x00b': 1 to 255 characters of text"),
        ({"limit_key": "x" * 256}, "1 to 255 characters of text"),
    ],
    ids=repr,
)
async def test_an_option_that_makes_no_sense_is_refused_by_name(app, options, message):
    with pytest.raises(UsageError) as refusal:
        await app.start("shop.order.v1", None, **options)
    assert message in str(refusal.value)
    assert list(await app.list()) == []


@pytest.mark.spec("TTL-1")
async def test_retention_times_must_not_be_negative(app):
    """A wrong sign must not remove runs that have not expired yet."""
    with pytest.raises(UsageError, match="ttl is -5 s"):
        app.worker(ttl=-5)
    for option in ("older_than", "deleted_after"):
        with pytest.raises(
            UsageError, match=f"{option} is -1e\\+09 s, the time for which runs are kept: give 0"
        ):
            await app.purge(**{option: -1e9})


async def test_list_refuses_a_text_in_place_of_a_filter(app):
    with pytest.raises(UsageError, match="give a filter, as in RunFilter"):
        await app.list("failed")


VERBS = {
    "pause": (),
    "resume": (),
    "cancel": (),
    "delete": (),
    "restore": (),
    "retry": (),
    "rewind": ("A",),
    "approve": (),
    "reject": (),
}


@pytest.mark.spec("TRAIL-1")
@pytest.mark.parametrize("by", ["a\ud800", "a\0b", 7, None, "x" * 10_001], ids=repr)
@pytest.mark.parametrize("verb", VERBS)
async def test_by_must_be_text_that_every_store_can_keep(app, verb, by):
    """Other text would make the trail unreadable. It is refused before anything is written."""
    run = await app.start("shop.order.v1")
    before = len(await app.trail(run.id))
    how = "text of at most 10,000 characters, without NUL" if isinstance(by, str) else "give text"
    with pytest.raises(UsageError, match=f"^by .*: {how}$"):
        await getattr(app, verb)(run.id, *VERBS[verb], by=by)
    assert len(await app.trail(run.id)) == before


@pytest.mark.parametrize(
    ("options", "beginning"),
    [
        ({"comment": "a\ud800"}, "comment "),
        ({"comment": 5}, "comment "),
        ({"digest": 5}, "digest "),
        ({"digest": "a\ud800"}, "digest "),
        ({"step": 5}, "5 is not a step's name"),
        ({"step": "a\ud800"}, r"'a\\ud800' is not a step's name"),
    ],
    ids=repr,
)
async def test_the_comment_digest_and_step_of_a_decision_must_be_text(app, options, beginning):
    run = await app.start("shop.order.v1")
    for verb in (app.approve, app.reject):
        with pytest.raises(UsageError, match=f"^{beginning}"):
            await verb(run.id, **options)


async def test_by_of_a_paused_schedule_must_be_text(app):
    await app.schedule("nightly", "shop.order.v1", every=60)
    with pytest.raises(UsageError, match=r"^by "):
        await app.pause_schedule("nightly", by="a\0b")


@pytest.mark.spec("START-1", "SCHED-1", "LIMIT-1")
async def test_a_limit_key_is_checked_wherever_it_is_given(app):
    """The check comes before anything is recorded, also for a schedule and for a child."""
    messages = []

    @app.workflow("shop.order.v1")
    async def order(ctx, how: str):
        try:
            await getattr(ctx, how)("shop.else.v1", limit_key="")
        except UsageError as error:
            messages.append(str(error))

    with pytest.raises(UsageError, match=r"^limit_key '': 1 to 255 characters"):
        await app.schedule("nightly", order, "call", every=60, limit_key="")
    async with app.worker():
        for how in ("call", "start"):
            await (await app.start(order, how)).result()
    assert len(messages) == 2
    assert all(one.startswith("limit_key '': 1 to 255 characters") for one in messages)
    assert {run.type for run in await app.list()} == {"shop.order.v1"}


@pytest.mark.parametrize("name", [7, None, b"a"], ids=repr)
async def test_a_number_in_place_of_text_is_refused(app, name):
    with pytest.raises(UsageError, match=r"^topic .*: give text$"):
        await app.emit(name)
    run = await app.start("shop.order.v1")
    with pytest.raises(UsageError, match="is not a step's name or key: give text of 1 to 700"):
        await app.rewind(run.id, name)


async def test_a_function_in_the_place_of_a_steps_name_is_named_in_the_error(app):
    def boom(x):
        return x

    @app.workflow("shop.order.v1")
    async def order(ctx):
        return await ctx.step(boom, 1)

    async with app.worker():
        with pytest.raises(RunFailed, match=r'is the step\'s name: `ctx.step\("boom", boom, x\)`'):
            await (await app.start(order)).result()


async def test_an_exception_of_the_body_is_told_with_its_type(app):
    @app.workflow("shop.order.v1", retry=hf.Backoff.none())
    async def order(ctx):
        return {}["nope"]

    async with app.worker():
        with pytest.raises(RunFailed, match="failed, exhausted: KeyError: 'nope'"):
            await (await app.start(order)).result()


async def test_a_key_too_long_for_an_index_fails_the_run_and_no_worker(app):
    """One store would keep such a key, another could never commit it."""

    @app.workflow("shop.order.v1")
    async def order(ctx, length: int):
        return await ctx.step("k" * length, lambda: length)

    @app.workflow("shop.keyed.v1")
    async def keyed(ctx, key: str):
        return await ctx.step("name", lambda: len(key), key=key)

    @app.workflow("shop.repeated.v1")
    async def repeated(ctx):
        name = "\U00020000" * 640
        await ctx.step(name, lambda: None)
        await ctx.step(name, lambda: None)
        return await ctx.map(name, lambda one: one, [1])

    wrong = "is not a step's name or key: give text of 1 to %d characters"
    async with app.worker():
        assert await (await app.start(order, 640)).result() == 640
        assert await (await app.start(keyed, "k" * 700)).result() == 700
        run = await app.start(repeated)
        assert await run.result() == [1]
        await app.rewind(run.id, "\U00020000" * 640 + "#2")
        with pytest.raises(RunFailed, match=wrong % 640):
            await (await app.start(order, 641)).result()
        for key in ("k" * 701, "\U00020000" * 700):
            with pytest.raises(RunFailed, match=wrong % 700):
                await (await app.start(keyed, key)).result()
    with pytest.raises(UsageError, match="lease is inf s: give at most one day"):
        app.worker(lease=float("inf"))


NO_TEXT = ["a\ud800", "a\0b"]


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize("bad", NO_TEXT, ids=ascii)
async def test_filters_refuse_text_that_no_store_can_hold(app, bad):
    """Otherwise one store would find nothing, and another would raise an error."""
    for field in ("type", "tenant", "key"):
        with pytest.raises(UsageError, match=f"^{field} .*without NUL$"):
            await app.list(hf.RunFilter(**{field: bad}))
    for options in ({"types": ("created", bad)}, {"tenant": bad}):
        with pytest.raises(UsageError, match=r"without NUL$"):
            await app.trail(**options)


@pytest.mark.parametrize("bad", NO_TEXT, ids=ascii)
async def test_names_and_descriptions_of_workers_and_plans_must_be_text(app, bad):
    """A bad description is refused at definition. A docstring is cleaned instead."""
    with pytest.raises(UsageError, match=r"^description "):
        app.plan("shop.plan.v1", [hf.Task("A")], description=bad)
    with pytest.raises(UsageError, match=r"^description "):
        await app.register("shop.order", description=bad)
    for options in ({"name": bad}, {"tenants": (bad,)}):
        with pytest.raises(UsageError, match=r"^(name|tenant) "):
            app.worker(**options)

    async def documented(ctx):
        pass

    documented.__doc__ = bad
    assert app.workflow("shop.documented.v1")(documented).definition().description in {"a?", "a\\0b"}


async def test_the_refusal_of_keep_names_events(app):
    with pytest.raises(UsageError, match="keep is -1 s, the time for which events are kept: give 0"):
        await app.emit("topic", keep=-1)
