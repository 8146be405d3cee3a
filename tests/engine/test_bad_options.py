"""Options that cannot be meant: one clear line each, before anything is recorded."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.errors import RunFailed, UsageError


@pytest.mark.spec("START-1")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prio": 5}, "start has no option 'prio': there are key, id, priority"),
        ({"run_at": 5}, "run_at 5: a datetime"),
        ({"labels": "x"}, "labels 'x': a dict of text to text"),
        ({"labels": {"n": 1}}, "labels {'n': 1}: a dict of text to text"),
        ({"labels": {"n": 1}}, "as in {'team': 'billing'}; 1 is an int"),
        ({"ttl": -100}, "ttl is -100 s: how long runs are kept, 0 or more"),
        ({"key": 7}, "key 7 is an int: give text"),
        ({"tenant": {"a": 1}}, "tenant {'a': 1} is a dict: give text"),
        ({"limit_key": 7}, "limit_key 7 is an int: give text"),
        ({"limit_key": ""}, "limit_key '': 1 to 255 characters of text"),
        ({"limit_key": "a\0b"}, "limit_key 'a\\x00b': 1 to 255 characters of text"),
        ({"limit_key": "x" * 256}, "1 to 255 characters of text"),
    ],
    ids=repr,
)
async def test_an_option_that_cannot_be_meant_is_refused_by_name(app, options, said):
    with pytest.raises(UsageError) as refusal:
        await app.start("shop.order.v1", None, **options)
    assert said in str(refusal.value)
    assert list(await app.list()) == []


@pytest.mark.spec("TTL-1")
async def test_nothing_is_kept_for_less_than_no_time(app):
    """A slip of the sign must not remove what has not expired yet."""
    with pytest.raises(UsageError, match="ttl is -5 s"):
        app.worker(ttl=-5)
    for option in ("older_than", "deleted_after"):
        with pytest.raises(UsageError, match=f"{option} is -1e\\+09 s: how long runs are kept, 0 or more"):
            await app.purge(**{option: -1e9})


async def test_a_filter_is_a_filter(app):
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
async def test_who_does_something_is_text_that_every_store_can_keep(app, verb, by):
    """Or the trail could not be read any more: refused before anything is written."""
    run = await app.start("shop.order.v1")
    before = len(await app.trail(run.id))
    how = "text of at most 10,000 characters, without NUL" if isinstance(by, str) else "give text"
    with pytest.raises(UsageError, match=f"^by .*: {how}$"):
        await getattr(app, verb)(run.id, *VERBS[verb], by=by)
    assert len(await app.trail(run.id)) == before


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"comment": "a\ud800"}, "comment "),
        ({"comment": 5}, "comment "),
        ({"digest": 5}, "digest "),
        ({"digest": "a\ud800"}, "digest "),
        ({"step": 5}, "a step's name"),
        ({"step": "a\ud800"}, "a step's name"),
    ],
    ids=repr,
)
async def test_what_is_said_at_a_gate_is_text(app, said, what):
    run = await app.start("shop.order.v1")
    for verb in (app.approve, app.reject):
        with pytest.raises(UsageError, match=f"^{what}"):
            await verb(run.id, **said)


async def test_who_pauses_a_schedule_is_text(app):
    await app.schedule("nightly", "shop.order.v1", every=60)
    with pytest.raises(UsageError, match=r"^by "):
        await app.pause_schedule("nightly", by="a\0b")


@pytest.mark.spec("START-1", "SCHED-1", "LIMIT-1")
async def test_a_limit_key_is_looked_at_wherever_it_is_given(app):
    """Before anything is recorded: of a schedule too, and of a child."""
    said = []

    @app.workflow("shop.order.v1")
    async def order(ctx, how: str):
        try:
            await getattr(ctx, how)("shop.else.v1", limit_key="")
        except UsageError as error:
            said.append(str(error))

    with pytest.raises(UsageError, match=r"^limit_key '': 1 to 255 characters"):
        await app.schedule("nightly", order, "call", every=60, limit_key="")
    async with app.worker():
        for how in ("call", "start"):
            await (await app.start(order, how)).result()
    assert len(said) == 2
    assert all(one.startswith("limit_key '': 1 to 255 characters") for one in said)
    assert {run.type for run in await app.list()} == {"shop.order.v1"}


@pytest.mark.parametrize("name", [7, None, b"a"], ids=repr)
async def test_a_number_where_text_is_wanted_is_called_one(app, name):
    with pytest.raises(UsageError, match=r"^topic .*: give text$"):
        await app.emit(name)
    run = await app.start("shop.order.v1")
    with pytest.raises(UsageError, match="a step's name and key are text of 1 to 640"):
        await app.rewind(run.id, name)


async def test_a_key_that_no_index_could_hold_fails_the_run_and_no_worker(app):
    """On one store it would be kept, and on another never be committed."""

    @app.workflow("shop.order.v1")
    async def order(ctx, length: int):
        return await ctx.step("k" * length, lambda: length)

    async with app.worker():
        assert await (await app.start(order, 640)).result() == 640
        with pytest.raises(RunFailed, match="a step's name and key are text of 1 to 640 characters"):
            await (await app.start(order, 641)).result()
    with pytest.raises(UsageError, match="lease is inf s: at most a day"):
        app.worker(lease=float("inf"))


NO_TEXT = ["a\ud800", "a\0b"]


@pytest.mark.spec("READ-1")
@pytest.mark.parametrize("bad", NO_TEXT, ids=ascii)
async def test_what_is_looked_for_is_text_that_could_be_there(app, bad):
    """Or one store would find nothing, and another break."""
    for field in ("type", "tenant", "key"):
        with pytest.raises(UsageError, match=f"^{field} .*without NUL$"):
            await app.list(hf.RunFilter(**{field: bad}))
    for what in ({"types": ("created", bad)}, {"tenant": bad}):
        with pytest.raises(UsageError, match=r"without NUL$"):
            await app.trail(**what)


@pytest.mark.parametrize("bad", NO_TEXT, ids=ascii)
async def test_what_a_worker_or_a_plan_says_of_itself_is_text(app, bad):
    """Refused where it is said; a docstring, which nobody thinks of, is made fit to be kept."""
    with pytest.raises(UsageError, match=r"^description "):
        app.plan("shop.plan.v1", [hf.Task("A")], description=bad)
    with pytest.raises(UsageError, match=r"^description "):
        await app.register("shop.order", description=bad)
    for said in ({"name": bad}, {"tenants": (bad,)}):
        with pytest.raises(UsageError, match=r"^(name|tenant) "):
            app.worker(**said)

    async def told(ctx):
        pass

    told.__doc__ = bad
    assert app.workflow("shop.told.v1")(told).definition().description in {"a?", "a\\0b"}


async def test_a_refusal_says_what_is_kept(app):
    with pytest.raises(UsageError, match="keep is -1 s: how long events are kept, 0 or more"):
        await app.emit("topic", keep=-1)
