"""A user's hook that fails: no run is lost, no other run is affected, and nothing leaks."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, CannotSeal, Status
from holdfast.records import ANY
from holdfast.stores.sqlite import SqliteStore
from tests.engine.kit import until


class Backwards:
    """Hides next to nothing, and does not always work."""

    name, optional = "backwards", False

    def __init__(self, field=None):
        self.field = field  # whose values it cannot seal now

    def seal(self, value, where):
        if where.field == self.field:
            raise KeyError(f"no key for {value!r}")
        return self.name, value[::-1]

    def open(self, how, value, where):
        return value[::-1]

    def digests(self, digest, where):
        return [digest]


FIELDS = ["output of step", "error of step", "log", "payload of event", "params", "result", "error"]


def busy(app, ran):
    """A workflow that gives the hook each kind of value."""

    @app.workflow("shop.order.v1")
    async def order(ctx, last=False):
        ran.append(1)
        ctx.log("begins")
        ctx.emit("told", 1)
        await ctx.step("charge", lambda: "charged")
        try:
            await ctx.step("break", lambda: 1 / 0)
        except Exception:  # noqa: BLE001 - only its error is wanted
            ctx.log("broken")
        if not last:
            ctx.continue_as(True)
        raise ValueError("no")

    return order


@pytest.mark.spec("OPS-5")
@pytest.mark.parametrize("field", FIELDS)
async def test_a_value_that_cannot_be_sealed_sends_its_run_back_unharmed(field, opened, store):
    """Whatever it is: no attempt is used up, what the hook said is nowhere, and later the run goes on."""
    hook, ran = Backwards(), []
    app = opened(hook)
    run = await app.start(busy(app, ran), field == "error", max_attempts=1)
    hook.field = field
    async with app.worker() as worker:
        await asyncio.sleep(200)
        assert worker.busy == 0
        found = await store.get(run.id, ANY)
        assert (found.status, found.attempt, found.crashes) == (Status.PENDING, 0, 0)
        assert found.last_error.startswith(f"sealed: the {field}")
        assert found.last_error.endswith(
            "the hook 'backwards' failed with KeyError, and the log of this process says why"
        )
        assert 3 <= len(ran) <= 5
        hook.field = None
        ended = Status.FAILED if field == "error" else Status.SUCCEEDED
        await app.final(run.id, 120)
        assert (await app.get(run.id)).status is ended


async def test_one_that_cannot_be_sealed_does_not_hinder_the_others_of_its_commit(opened):
    class OfOne(Backwards):
        def seal(self, value, where):
            return super().seal(value, where) if b"bad" not in value else "no tuple of two"

    app = opened(OfOne())

    @app.workflow("shop.order.v1")
    async def order(ctx, n):
        await ctx.step("make", lambda: "bad" if n == 3 else "good")

    runs = [await app.start(order, n) for n in range(6)]
    async with app.worker():
        await asyncio.sleep(10)
    statuses = [(await app.get(run.id)).status for run in runs]
    assert statuses == [Status.SUCCEEDED] * 3 + [Status.PENDING] + [Status.SUCCEEDED] * 2


async def test_a_note_that_cannot_be_sealed_costs_no_lease(opened):
    """One renewal is that of all runs of a worker: the note is left out, the numbers stand."""
    app, ran = opened(Backwards("progress")), []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        ran.append(1)
        ctx.progress(1, 2, "secret")
        await ctx.step("work", asyncio.sleep, 120)

    run = await app.start(order)
    async with app.worker():
        found = await until(app, run)
    assert (ran, found.status) == ([1], Status.SUCCEEDED)
    assert found.progress == {"done": 1, "total": 2, "note": "(sealed)"}


@pytest.mark.parametrize("answer", ["text", (b"aes", b""), ("another", b""), ("backwards", "text"), None])
async def test_a_hook_that_answers_nonsense_is_refused_at_the_start(answer, opened, store):
    """A value that could never be opened again is not written."""
    hook = Backwards()
    hook.seal = lambda *_: answer
    with pytest.raises(CannotSeal, match=r"the params of run .* cannot be sealed: the hook 'backwards'"):
        await opened(hook).start("shop.order.v1")
    assert await opened(None).list() == []


async def test_a_start_that_cannot_be_sealed_is_refused_by_itself(opened):
    """The others of its call are started."""

    class OfOneTenant(Backwards):
        def seal(self, value, where):
            return super().seal(value, where) if where.tenant != "acme" else None

        def digests(self, digest, where):
            return [digest] if where.tenant != "evil" else None

    starts = [("shop.order.v1", 1, {"tenant": tenant}) for tenant in ("default", "acme", "evil", "default")]
    app = opened(OfOneTenant())
    answers = await app.start_many(starts)
    assert [isinstance(one, CannotSeal) for one in answers] == [False, True, True, False]
    assert [one.id for one in await app.list()] == [answers[3].id, answers[0].id]


async def test_a_hook_that_opens_to_no_bytes_hinders_no_other_run_of_its_claim(opened, store):
    class Text(Backwards):
        def open(self, how, value, where):
            found = value[::-1]
            return found.decode() if b"bad" in found else found

    app, ran = opened(Text()), []

    @app.workflow("shop.order.v1")
    async def order(ctx, params):
        ran.append(params)

    bad, _ = await app.start(order, "bad"), await app.start(order, "good")
    async with app.worker():
        await asyncio.sleep(200)
    assert ran == ["good"]
    assert "failed with TypeError" in (await store.get(bad.id, ANY)).last_error


async def test_what_a_hook_raises_is_not_stored(opened, store):
    """It may hold a part of the value; its type says enough, and the log of the process says the rest."""

    class Ascii(Backwards):
        def open(self, how, value, where):
            return value[::-1].decode("ascii").encode()

    app = opened(Ascii())

    @app.workflow("shop.order.v1")
    async def order(ctx, params):
        pass

    run = await app.start(order, {"card": "4111 é"})
    async with app.worker():
        await asyncio.sleep(5)
    found = await store.get(run.id, ANY)
    assert "failed with UnicodeDecodeError" in found.last_error
    assert "4111 " not in found.last_error + found.error_json


@pytest.mark.parametrize("at", ["the step", "what went along"])
async def test_a_transaction_whose_step_cannot_be_sealed_leaves_nothing_behind(at, tmp_path, world):
    """It is rolled back, the run goes back, and the function is called again when it can be sealed."""
    store, hook = SqliteStore(str(tmp_path / "x.db"), clock=world.now, inline=True), Backwards()
    app, ran = App(store, world=world, codec=hook), []

    def charge(connection):
        ran.append(1)
        connection.execute("create table charged (n)")

    @app.workflow("shop.order.v1")
    async def order(ctx):
        if at == "what went along":
            ctx.log("begins")
        await ctx.transaction(charge)

    run = await app.start(order)
    hook.field = "log" if at == "what went along" else "output of step"
    async with app.worker():
        await asyncio.sleep(5)
        found = await store.get(run.id, ANY)
        assert (found.status, found.attempt) == (Status.PENDING, 0)
        assert ran == ([] if at == "what went along" else [1])
        hook.field = None
        assert (await app.final(run.id, 120)).status is Status.SUCCEEDED
    await app.close()
