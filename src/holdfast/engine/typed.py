"""Types of users' functions, for type checkers: what a decorator takes, and how arguments are inferred.

Both mypy and pyright read these types; `tests/typing/` holds samples of what they must accept and refuse.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar, TypeVarTuple, cast, overload

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    from .code.context import Context
    from .code.sync_context import SyncContext
    from .definitions import Workflow

    # `Workflow` without brackets means `Workflow[Any, Any]`.
    P_contra = DefaultTypeVar("P_contra", contravariant=True, default=Any)
    R_co = DefaultTypeVar("R_co", covariant=True, default=Any)
else:  # defaults of type variables are newer than the oldest Python that is supported
    P_contra = TypeVar("P_contra", contravariant=True)
    R_co = TypeVar("R_co", covariant=True)

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
As = ParamSpec("As")
Ts = TypeVarTuple("Ts")
A_contra = TypeVar("A_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class Unused:
    """A class without instances. It is a part of `Given`."""


# A value whose type is taken from another argument: `start(workflow: Defined[A, T], params: Given[A])`.
# mypy infers types from functions last. The second half, which no value has, makes it look at the workflow
# first, and then at `{"sku": 7}`, which it would otherwise take for a dict where a TypedDict is wanted.
Given: TypeAlias = A | Callable[[Unused], A]

# The result of a step's function. The awaitable stands here too because a sync function may return one; and
# mypy takes an async function for nothing else, also when its parameters have the type Any.
Result: TypeAlias = Awaitable[T] | T


class NoArgument(Protocol[T_co]):
    """A function that can be called without arguments. mypy refuses `lambda n=n: …` for a `Callable`."""

    def __call__(self) -> T_co: ...


class OneArgument(Protocol[A_contra, T_co]):
    """A function that can be called with one argument."""

    def __call__(self, argument: A_contra, /) -> T_co: ...


class WithDefault(Protocol[A_contra, T_co]):
    """The function of an async workflow whose params have a default."""

    def __call__(self, ctx: Context, params: A_contra = ..., /) -> Awaitable[T_co]: ...


class SyncWithDefault(Protocol[A_contra, T_co]):
    """The function of a sync workflow whose params have a default."""

    def __call__(self, ctx: SyncContext, params: A_contra = ..., /) -> T_co: ...


class WorkflowDecorator(Protocol):
    """The decorator that `app.workflow` returns: it makes a `Workflow[P, R]` from a function.

    P is the type of its params: None for a function that takes only the context, and `P | None` when the
    params have a default. R is the type of its result.
    """

    @overload
    def __call__(self, function: WithDefault[A, T], /) -> Workflow[A | None, T]: ...

    @overload
    def __call__(self, function: Callable[[Context], Awaitable[T]], /) -> Workflow[None, T]: ...

    @overload
    def __call__(self, function: Callable[[Context, A], Awaitable[T]], /) -> Workflow[A, T]: ...

    @overload
    def __call__(self, function: SyncWithDefault[A, T], /) -> Workflow[A | None, T]: ...

    @overload
    def __call__(self, function: Callable[[SyncContext], T], /) -> Workflow[None, T]: ...

    @overload
    def __call__(self, function: Callable[[SyncContext, A], T], /) -> Workflow[A, T]: ...


def explained_by(method: Callable[..., Any]) -> Callable[[F], F]:
    """Give a method the name, docstring and signature of another one at run time, and keep its types.

    `functools.wraps` does the same, but checkers no longer take the result for a method.
    """
    return cast("Callable[[F], F]", wraps(method))
