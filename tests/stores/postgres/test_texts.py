"""Texts that Postgres cannot hold: NUL characters, and half of a surrogate pair."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.records import (
    ANY,
    Ask,
    Definition,
    Item,
    NewEvent,
    NewRun,
    Presence,
    RunFilter,
    StepWrite,
    TrailWrite,
)
from holdfast.records.moves import CHECKPOINT, Fail, Retry
from tests.stores.postgres import kit

BAD = ["a\0b", "half \ud800"]
TYPE = "shop.order.v1"


def live(story):
    store = kit.make(None, None)

    async def main():
        await store.open()
        try:
            return await story(store)
        finally:
            await store.close()

    return asyncio.run(main())


async def started(store, run):
    """Start one run; raise its error."""
    (answer,) = await store.start([run])
    raise answer


CALLS = {
    "start": lambda store, bad: started(store, NewRun(id=uuid4(), type=TYPE, key=bad)),
    "emit": lambda store, bad: store.emit(NewEvent(topic=bad, id="e1")),
    "claim": lambda store, bad: store.claim(Ask(worker=bad, types=(TYPE,), limit=1)),
    "commit": lambda store, bad: store.commit(
        [Item(run=uuid4(), fence=1, number=1, move=Fail(error="{}", last_error=bad, kind="x"))]
    ),
    "list": lambda store, bad: store.list(RunFilter(key=bad)),
    "trail": lambda store, bad: store.trail(None, ANY, types=[bad]),
    "get": lambda store, bad: store.get(uuid4(), bad),
    "waiting_on": lambda store, bad: store.waiting_on(bad, "default"),
    "publish": lambda store, bad: store.publish([Definition(type=TYPE, description=bad)]),
    "present": lambda store, bad: store.present(Presence(worker=bad, types=())),
    "absent": lambda store, bad: store.absent(bad),
}


@pytest.mark.parametrize("bad", BAD, ids=ascii)
@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_that_is_given_no_text_says_so(verb, bad):
    """One line, not the driver's text; never `Unavailable`, because it would be retried for ever."""

    async def story(store):
        with pytest.raises(UsageError) as caught:
            await CALLS[verb](store, bad)
        assert "NUL" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert await store.trail(None, ANY) == []

    live(story)


def test_values_that_a_holder_commits_are_not_looked_into():
    """JSON text may hold such an escape: it comes back unchanged, and breaks nothing. A start is refused."""
    value = '{"a":"x\\u0000y","b":"\\ud800"}'

    async def story(store):
        for field in ("params", "labels"):
            with pytest.raises(UsageError, match=f"^{field} holds a NUL character, which no store can keep"):
                await store.start([NewRun(id=uuid4(), type=TYPE, **{field: value})])
        new = NewRun(id=uuid4(), type=TYPE)
        await store.start([new])
        (claim,) = await store.claim(Ask(worker="w1", types=(TYPE,), limit=1))
        step = StepWrite(key="a", output=value)
        logs = (TrailWrite("log", value), TrailWrite("log", '{"note":"\\u0007","log_no":3}'))
        retry = Retry(error=value, last_error="x", delay_seconds=0.0)
        items = [
            Item(run=new.id, fence=claim.fence, number=1, move=CHECKPOINT, steps=(step,), trail=logs),
            Item(run=new.id, fence=claim.fence, number=2, move=retry),
        ]
        for item in items:
            assert (await store.commit([item]))[0].answer == "applied"
        (claim,) = await store.claim(Ask(worker="w1", types=(TYPE,), limit=1))
        assert (claim.logs, claim.steps[0].output) == (3, value)
        failing = Fail(error=value, last_error="x", kind="x")
        fail = Item(run=new.id, fence=claim.fence, number=1, move=failing)
        assert (await store.commit([fail]))[0].answer == "applied"
        assert (await store.get(new.id, ANY)).error_json == value
        assert value in [entry.data_json for entry in await store.trail(new.id, ANY)]

    live(story)


def test_whatever_an_exception_says_its_run_fails_with_it():
    """The same for logs and docstrings: such text is cleaned before it is sent."""
    app = hf.App(kit.make(None, None))

    async def order(ctx: hf.Context) -> None:
        ctx.log("nul \0 and half \ud800")
        await ctx.step("pay", pay)

    order.__doc__ = "Split at \0, half of \ud800."
    app.workflow(TYPE)(order)

    async def pay() -> None:
        raise hf.Fatal("nul \0 and half \ud800")

    async def main():
        async with app.worker():
            run = await app.start(TYPE)
            with pytest.raises(hf.RunFailed, match=r"nul \\0 and half \?"):
                await app.result(run.id, timeout=20)
            (log,) = await app.trail(run.id, types=("log",))
            (known,) = await app.store.definitions()
        await app.close()
        assert log.data["message"] == "nul \\0 and half ?"
        assert known.description == "Split at \\0, half of ?."

    asyncio.run(main())
