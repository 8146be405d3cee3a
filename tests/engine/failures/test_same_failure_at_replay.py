"""Failures of a step look the same in the first execution and in every later one, for every class."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from holdfast import Backoff, ChildFailed, Fatal, StepFailed, UsageError
from tests.engine.kit import outcome, until

ONCE = Backoff.none()


class CardDeclined(Exception):
    def __init__(self, code, limit=None):
        super().__init__(code, limit)
        self.code, self.limit = code, limit


class Rephrased(Exception):
    """An exception whose `args` differ from the arguments of its constructor."""

    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")


class Quiet(Exception):
    """An exception that can be built from its `args`, which are empty, but would then differ."""

    def __init__(self, code=0):
        super().__init__()
        self.code = code


class Restored(Exception):
    """An exception with its own `__reduce__`."""

    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason

    def __reduce__(self):
        return type(self), (self.code, self.reason)


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Narrower(CardDeclined):
    pass


class Slotted(Exception):
    __slots__ = ("_code", "empty")

    def __init__(self, code):
        super().__init__(code)
        self._code = code

    def later(self, code):
        self._code = code
        return self


def looks(error):
    """Return everything by which code could distinguish two executions."""
    cause = error.__cause__
    told = None if cause is None else (type(cause), cause.args, vars(cause))
    return type(error), error.args, str(error), vars(error), error.__context__, told


async def twice(app, ask, **options):
    """Return the looks of a failing step in the first execution and in a later one."""
    seen = []

    @app.workflow("shop.order.v1", **options)
    async def order(ctx):
        try:
            await ask(ctx)
        except Exception as error:  # noqa: BLE001 - whatever it is
            seen.append(looks(error))
            caught = error
        await ctx.sleep(10)
        return type(caught).__name__

    async with app.worker():
        assert await (await app.start(order)).result(60) == seen[0][0].__name__
    assert len(seen) == 2
    return seen


def raiser(error):
    def bad():
        raise error

    return bad


@pytest.mark.spec("FLOW-25")
@pytest.mark.parametrize("error", [KeyError("card"), Fatal("stolen"), CardDeclined("no", 5)])
async def test_step_failed_looks_the_same_in_every_execution(app, error):
    first, later = await twice(app, lambda ctx: ctx.step("charge", raiser(error), retry=ONCE))
    assert first == later
    assert first[0] is StepFailed
    fields = first[3]
    kind = "fatal" if isinstance(error, Fatal) else "exhausted"
    assert (fields["step"], fields["kind"], fields["type"]) == ("charge", kind, type(error).__name__)
    assert fields["message"] == str(error)
    assert "in bad" in fields["traceback"]
    assert first[4:] == (None, None)  # neither a context nor a cause


@pytest.mark.spec("FLOW-25")
@pytest.mark.parametrize(
    "error",
    [
        CardDeclined("no", {"eur": [1, 2]}),
        Restored(7, "late"),
        Frozen(3),
        OSError(2, "gone", "a.txt"),
        Slotted(7),
        ImportError("gone"),
    ],
)
async def test_a_class_that_a_step_names_is_raised_as_itself_in_every_execution(app, error):
    named = (type(error), LookupError)
    first, later = await twice(app, lambda ctx: ctx.step("charge", raiser(error), retry=ONCE, raises=named))
    assert first == later
    assert first[:4] == (type(error), error.args, str(error), vars(error))
    assert first[5][0] is StepFailed  # names the step, in every execution
    assert (first[5][2]["step"], first[5][2]["kind"]) == ("charge", "exhausted")


@pytest.mark.spec("FLOW-25")
@pytest.mark.parametrize(
    "error",
    [
        Rephrased(7, "late"),
        Quiet(4),
        Narrower("no"),
        CardDeclined(float("nan")),
        CardDeclined((1, 2)),
        Slotted(7).later(8),
        ImportError("gone", name="shop"),
        AttributeError("gone", name="shop"),
    ],
)
async def test_an_exception_that_cannot_be_rebuilt_stays_step_failed_in_every_execution(app, error):
    named = [Rephrased, Quiet, CardDeclined, Slotted, ImportError, AttributeError]
    first, later = await twice(app, lambda ctx: ctx.step("charge", raiser(error), retry=ONCE), raises=named)
    assert first == later
    assert first[0] is StepFailed
    assert first[3]["type"] == type(error).__name__


@pytest.mark.spec("FLOW-25")
async def test_a_workflow_names_classes_for_all_its_steps_beside_those_of_a_step(app):
    caught = []

    @app.workflow("shop.order.v1", raises=CardDeclined, retry=ONCE)
    async def order(ctx):
        for name, error in (("a", CardDeclined("no")), ("b", LookupError("gone")), ("c", ValueError("v"))):
            try:
                await ctx.step(name, raiser(error), raises=LookupError)
            except (CardDeclined, LookupError, StepFailed) as found:
                caught.append(type(found).__name__)
        await ctx.sleep(1)

    async with app.worker():
        await (await app.start(order)).result(60)
    assert caught == ["CardDeclined", "LookupError", "StepFailed"] * 2


@pytest.mark.spec("FLOW-25", "FLOW-19")
async def test_an_uncaught_named_exception_fails_the_run_at_once_and_names_the_step(app):
    executions = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0, attempts=5))
    async def order(ctx):
        executions.append(1)
        await ctx.step("charge", raiser(CardDeclined("no")), retry=ONCE, raises=CardDeclined)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "exhausted")
    found = await app.get(run.id)
    assert (len(executions), found.error.step, found.error.type) == (1, "charge", "CardDeclined")
    assert "in bad" in found.error.traceback


@pytest.mark.spec("FLOW-25")
@pytest.mark.parametrize("how", ["kept cause", "same cause", "in a group"])
async def test_another_exception_of_its_class_is_the_bodys_own_and_retried(app, how):
    """It is raised from the same cause. The step's own exception fails the run at once, in a group too."""
    executions = []

    @app.workflow("shop.order.v1", retry=Backoff.fixed(0, attempts=5))
    async def order(ctx):
        executions.append(1)
        try:
            await ctx.step("charge", raiser(ValueError("no")), retry=ONCE, raises=ValueError)
        except ValueError as error:
            cause = error.__cause__
            if how == "in a group":
                raise ExceptionGroup("all", [error]) from None
            if how == "same cause":
                raise ValueError("no") from cause
        raise ValueError("transient") from cause

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "exhausted")
    assert len(executions) == (1 if how == "in a group" else 5)


@pytest.mark.spec("FLOW-25")
async def test_a_named_exception_is_retried_by_its_policy_first(app):
    tries = []

    def flaky():
        tries.append(1)
        raise CardDeclined(len(tries))

    policy = Backoff.fixed(5, attempts=3)
    first, later = await twice(app, lambda ctx: ctx.step("charge", flaky, retry=policy, raises=CardDeclined))
    assert first == later
    assert (len(tries), first[1]) == (3, (3, None))


@pytest.mark.spec("FLOW-25")
async def test_items_of_a_map_raise_what_it_names(app):
    first, later = await twice(
        app, lambda ctx: ctx.map("charge", raiser_of_item, [1], retry=ONCE, raises=CardDeclined)
    )
    assert first == later
    assert first[:2] == (CardDeclined, (1, None))


def raiser_of_item(item):
    raise CardDeclined(item)


@pytest.mark.spec("FLOW-25")
async def test_arguments_that_are_large_are_not_recorded(app):
    error = CardDeclined("x" * 20_000)
    (first, later) = await twice(
        app, lambda ctx: ctx.step("charge", raiser(error), retry=ONCE), raises=CardDeclined
    )
    assert first == later
    assert first[0] is StepFailed


@pytest.mark.spec("FLOW-25")
@pytest.mark.parametrize("wrong", ["CardDeclined", BaseException, [CardDeclined, 7], KeyboardInterrupt])
async def test_a_value_that_is_no_exception_class_is_refused(app, wrong):
    with pytest.raises(UsageError, match=r"workflow shop.bad.v1: raises=.*: give exception classes"):
        app.workflow("shop.bad.v1", raises=wrong)(lambda _: None)

    @app.workflow("shop.order.v1")
    async def order(ctx):
        await ctx.step("charge", raiser(ValueError()), raises=wrong)

    async with app.worker():
        assert await outcome(app, await app.start(order)) == ("failed", "usage")


async def test_two_classes_of_one_name_are_refused(app):
    other = type("CardDeclined", (Exception,), {})
    with pytest.raises(UsageError, match="two classes 'CardDeclined'"):
        app.workflow("shop.bad.v1", raises=[CardDeclined, other])(lambda _: None)


@pytest.mark.spec("FLOW-25")
@pytest.mark.parametrize("how", ["step", "map"])
async def test_two_classes_of_one_name_in_workflow_and_step_are_refused(app, how):
    """The record has only the name: the workflow's class would be raised instead of the step's."""
    other = type("CardDeclined", (Exception,), {})

    @app.workflow("shop.order.v1", raises=CardDeclined)
    async def order(ctx):
        if how == "step":
            await ctx.step("charge", raiser(other("no")), raises=other)
        else:
            await ctx.map("charge", raiser(other("no")), [], raises=other)

    async with app.worker():
        run = await app.start(order)
        assert await outcome(app, run) == ("failed", "usage")
    said = (await app.get(run.id)).error.message
    assert f"{how} 'charge': raises= names two classes 'CardDeclined' with that of the workflow" in said


@pytest.mark.spec("FLOW-25")
async def test_child_failed_looks_the_same_and_tells_of_the_childs_own_error(app):
    @app.workflow("shop.ship.v1")
    async def ship(ctx):
        raise Fatal("no such address")

    first, later = await twice(app, lambda ctx: ctx.call(ship))
    assert first == later
    fields = first[3]
    assert first[0] is ChildFailed
    assert (fields["step"], fields["kind"], fields["type"]) == ("shop.ship", "fatal", "Fatal")
    assert fields["message"] == "no such address"


@pytest.mark.spec("FLOW-25")
async def test_a_cancelled_child_has_its_status_as_kind(app):
    @app.workflow("shop.ship.v1")
    async def ship(ctx):
        await ctx.sleep(1000)

    seen = []

    @app.workflow("shop.order.v1")
    async def order(ctx):
        try:
            await ctx.call(ship)
        except ChildFailed as error:
            seen.append((error.kind, error.type, error.message))

    async with app.worker():
        run = await app.start(order)
        child = (await until(app, run, "waiting")).waiting_on[0].child
        await app.cancel(child)
        await run.result(60)
    assert seen == [("cancelled", "", "")]
