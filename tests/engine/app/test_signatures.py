"""Functions that cannot be executed, and annotations that cannot be read, are refused at definition."""

import functools
import typing
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

import pytest

import holdfast as hf

T = typing.TypeVar("T")


@dataclass
class Order:
    n: int


@dataclass
class Other:
    m: int


@dataclass
class Context:
    """A user's own class with the name of one of the library's classes."""

    n: int


class Odd:
    """A class without known fields: JSON cannot be read as one."""


class Model:
    """A class shaped like a pydantic model: it can be read and shown."""

    @classmethod
    def model_validate(cls, _):
        return cls()

    def model_dump(self, mode):
        return {}


async def odd(ctx, order: Odd): ...
async def odd_list(ctx, order: list[Odd]): ...
async def odd_union(ctx, order: Order | Other): ...
async def odd_unions(ctx, order: list[Order | Other | None]): ...
async def odd_beside_texts(ctx, order: tuple[Order, str | UUID]): ...
async def odd_result(ctx) -> Odd: ...
async def odd_results(ctx) -> dict[str, Odd]: ...
async def odd_results_union(ctx) -> Order | Other: ...
async def sync_context(ctx: hf.SyncContext): ...
async def sync_context_text(ctx: "hf.SyncContext", order: "Unknown"): ...  # noqa: F821
async def of_a_plan(ctx: hf.PlanTask): ...
def async_context(ctx: hf.Context): ...
async def second(order: Order, ctx: hf.Context): ...
async def keywords(ctx, **options): ...
async def keyword_only(ctx, order: Order, *, dry=False): ...
async def nothing(): ...
async def three(ctx, order, more): ...
async def generator(ctx):
    yield 1


class Shop:
    async def order(self, ctx): ...


def named(function):
    """Return a name that is the same in every process."""
    inner = getattr(function, "func", function)
    return getattr(inner, "__qualname__", str(inner)) + " in a partial" * (inner is not function)


WRONG = {
    odd: "its value 'order' has the annotation Odd, which cannot be made from JSON",
    odd_list: "the annotation Odd, which",
    functools.partial(odd): "the annotation Odd, which",
    odd_union: "more than one dataclass",
    odd_unions: "more than one dataclass",
    odd_beside_texts: "more than one str-like",
    odd_result: "its result has the annotation Odd, which cannot be made from JSON: use a dataclass",
    odd_results: "its result has the annotation Odd",
    odd_results_union: "its result has the annotation .*more than one dataclass",
    sync_context: "ctx: SyncContext, but it is an `async def`: write `ctx: hf.Context`, or make it a `def`$",
    sync_context_text: "but it is an `async def`: write `ctx: hf.Context`, or make it a `def`$",
    of_a_plan: "has the annotation ctx: PlanTask, but it is an `async def`: write `ctx: hf.Context`$",
    async_context: "it is a `def`: write `ctx: hf.SyncContext`, or make it `async def`",
    second: "takes Context second: the context comes first",
    keywords: "takes the context and at most one value",
    keyword_only: "takes the context and at most one value",
    nothing: "takes the context and at most one value",
    three: "takes the context and at most one value",
    generator: "is a generator: write `return`",
    Shop.order: "is a method, and its `self` would be the context",
    7: "is not a function: 7",
}


@pytest.mark.spec("FLOW-15", "START-11")
@pytest.mark.parametrize("function", WRONG, ids=named)
def test_a_workflow_that_cannot_be_executed_is_refused_in_one_line(function):
    app = hf.App("memory://")
    with pytest.raises(hf.UsageError, match=f"^workflow shop.order.v1: .*{WRONG[function]}") as refused:
        app.workflow("shop.order.v1")(function)
    assert "\n" not in str(refused.value)
    assert app.workflows == {}


async def model(ctx: hf.Context, order: Model) -> Model: ...
async def endless(ctx) -> typing.NoReturn: ...
async def generic(ctx, order: T) -> T: ...
async def loose(*args, **kwargs): ...
async def optional(ctx, order: Order | None = None) -> dict[str, Order] | None: ...
async def unknown(ctx: "hf.Context", order: "Unknown"): ...  # noqa: F821
def sync_order(ctx: hf.SyncContext, order: Order) -> None: ...
async def own_context(ctx: hf.Context, order: Context) -> Context:
    return order


async def anything(ctx, order: object) -> object:
    return order


# Members of these unions cannot be distinguished: they are read as the data that their JSON holds.
Mere = typing.Union[str, int, None, list["Mere"], dict[str, "Mere"]]  # noqa: UP007 - it names itself


async def text_or_id(ctx, order: str | UUID) -> str | UUID:
    return order


async def two_times(ctx, order: datetime | date) -> list[datetime | date]:
    return [order]


async def order_or_data(ctx, order: Order | dict[str, int]) -> Order | dict[str, int] | None:
    return order


async def any_json(ctx, order: Mere) -> Mere:
    return order


async def anything_inside(ctx, order: dict[str, object]) -> list[object]:
    return [order, 1]


RIGHT = [
    model,
    endless,
    generic,
    loose,
    optional,
    unknown,
    sync_order,
    Shop().order,
    functools.partial(sync_order),
    own_context,
    anything,
    anything_inside,
    text_or_id,
    two_times,
    order_or_data,
    any_json,
]


@pytest.mark.spec("FLOW-15")
@pytest.mark.parametrize("function", RIGHT, ids=named)
def test_all_other_signatures_are_accepted(function):
    hf.App("memory://").workflow("shop.order.v1")(function)


@pytest.mark.spec("FLOW-15")
@pytest.mark.parametrize(
    ("function", "given", "result"),
    [
        (own_context, Context(7), Context(7)),
        (anything, {"n": [1, None]}, {"n": [1, None]}),
        (anything_inside, {"n": [1, None]}, [{"n": [1, None]}, 1]),
        (text_or_id, "a", "a"),
        (two_times, "2020-01-01", ["2020-01-01"]),
        (order_or_data, {"n": 7}, {"n": 7}),
        (any_json, {"n": [1, None]}, {"n": [1, None]}),
    ],
    ids=named,
)
async def test_values_of_accepted_annotations_are_read_back_unchanged(app, function, given, result):
    workflow = app.workflow("shop.order.v1")(function)
    async with app.worker():
        assert await (await app.start(workflow, given)).result(60) == result


def of_code(task: hf.Context): ...
def gives_odd(task: hf.PlanTask) -> Odd: ...
def completes_odd(task) -> hf.Completed[Odd] | hf.Waiting: ...
def two(task, more): ...


@pytest.mark.spec("PLAN-4")
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (of_code, "has the annotation task: Context, but it gets hf.PlanTask"),
        (gives_odd, "its output has the annotation Odd"),
        (completes_odd, "its output has the annotation Odd"),
        (two, "takes one argument"),
        (7, "is not a function: 7"),
    ],
    ids=lambda one: one if isinstance(one, str) else named(one),
)
def test_a_handler_that_cannot_be_called_is_refused_in_one_line(function, message):
    plan = hf.App("memory://").plan("shop.fulfil.v1", [hf.Task("SHIP")])
    with pytest.raises(hf.UsageError, match=f"^plan shop.fulfil.v1: the handler of 'SHIP'.*{message}"):
        plan.task("SHIP")(function)
    assert plan.handlers == {}


@pytest.mark.parametrize("params", [Odd, Order | Other])
def test_plan_params_that_cannot_be_read_are_refused(params):
    with pytest.raises(hf.UsageError, match=r"plan shop\.fulfil\.v1: params= has the annotation"):
        hf.App("memory://").plan("shop.fulfil.v1", [hf.Task("SHIP")], params=params)
