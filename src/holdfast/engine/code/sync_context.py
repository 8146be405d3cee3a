"""Sync workflows: a `def` runs in a thread, and its blocking calls are awaited one by one in the run's task.

There is no second engine. The run's task drives a coroutine that serves the thread: it awaits each call of
the function and returns the result, or raises the exception, signals included. So parking, replay, retries
and cancels work as for async code, and a parked run holds no thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context as ContextVars
from contextvars import copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Unpack, overload
from uuid import UUID

from holdfast.backoff import Backoff
from holdfast.durations import Seconds
from holdfast.engine.definitions import Defined
from holdfast.engine.options import ChildOptions, StepOptions, TransactionOptions
from holdfast.engine.run_facts import RunFacts
from holdfast.engine.step_failures import Raises
from holdfast.engine.typed import A, As, Given, NoArgument, OneArgument, Result, T, Ts, explained_by
from holdfast.errors import UsageError
from holdfast.threads import CallResult, Exchange

from .context import Context
from .scope import SCOPE, misplaced, within

if TYPE_CHECKING:
    from .execution import Execution

P = ParamSpec("P")

Question = Callable[[Context], Any]


async def bridge(run: Execution, params: tuple[Any, ...]) -> Any:
    """Run the workflow's function in a thread, and serve its calls until it ends."""
    context, stage, function = Context(run), run.stage, run.workflow.function
    exchange = run.world.exchange(run.worker.straggling)
    try:
        exchange.begin(lambda: function(SyncContext(context, exchange), *params))
        while True:
            # While the function works, leftover branches must not park the run.
            stage.running += 1
            try:
                message = await exchange.next_message()
            finally:
                stage.running -= 1
            if stage.waits:
                stage.arm()
            if isinstance(message, CallResult):
                return _returned(message.value(), run.workflow.type)
            await _serve(exchange, context, message)
    finally:
        exchange.leave()


async def _serve(exchange: Exchange, context: Context, question: Question) -> None:
    try:
        answer = question(context)
        if inspect.isawaitable(answer):
            answer = await answer
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the thread is where it belongs, signals too
        exchange.answer(None, error)
    else:
        exchange.answer(answer)


def _returned(value: Any, type_: str) -> Any:
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError(
            f"workflow {type_} is a sync function that returns a coroutine: write it as `async def`, "
            f"and make its decorators async too"
        )
    return value


def blocking(
    method: Callable[Concatenate[Context, P], Awaitable[T]],
) -> Callable[Concatenate[SyncContext, P], T]:
    """Make the blocking method for an async method of the same name."""

    @wraps(method)
    def asked(self: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._ask(method.__name__, lambda ctx: method(ctx, *args, **kwargs))  # type: ignore[no-any-return]

    return asked


def through(
    method: Callable[Concatenate[Context, P], T],
) -> Callable[Concatenate[SyncContext, P], T]:
    """Make a method that calls the one of the same name on the event loop, which owns the record."""

    @wraps(method)
    def asked(self: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if SCOPE.get() is not None:  # inside a step: it may run on the event loop, and must not wait for it
            return method(self._context, *args, **kwargs)
        return self._exchange.ask(lambda ctx: method(ctx, *args, **kwargs))  # type: ignore[no-any-return]

    return asked


def direct(
    method: Callable[Concatenate[Context, P], T],
) -> Callable[Concatenate[SyncContext, P], T]:
    """Make a method that calls the one of the same name directly: it touches nothing of the event loop."""

    @wraps(method)
    def called(self: SyncContext, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if SCOPE.get() is None:
            self._exchange.check()
        return method(self._context, *args, **kwargs)

    return called


class SyncContext(RunFacts):
    """The context of a sync workflow: the methods of `Context`, blocking."""

    __slots__ = ("_context", "_exchange", "_run")

    def __init__(self, context: Context, exchange: Exchange) -> None:
        self._context, self._exchange = context, exchange
        self._run: Execution = context._run  # noqa: SLF001 - of its own execution

    @property
    def cancelled(self) -> bool:
        """True when the run was cancelled or lost, or its worker stops: user code should end. Parking is no
        cancel.
        """
        return self._exchange.over or self._context.cancelled

    @property
    def idempotency_key(self) -> str:
        """Inside a step: a key for the outside world that is the same at every retry, takeover and rewind."""
        return self._context.idempotency_key

    # Overloads are written out: a type checker cannot derive them from those of `Context`.

    @overload
    def step(self, name: str, fn: NoArgument[Awaitable[T]], /, **options: Unpack[StepOptions]) -> T: ...

    @overload
    def step(self, name: str, fn: NoArgument[Result[T]], /, **options: Unpack[StepOptions]) -> T: ...

    @overload
    def step(
        self,
        name: str,
        fn: OneArgument[A, Awaitable[T]],
        argument: Given[A],
        /,
        **options: Unpack[StepOptions],
    ) -> T: ...

    @overload
    def step(
        self, name: str, fn: OneArgument[A, Result[T]], argument: Given[A], /, **options: Unpack[StepOptions]
    ) -> T: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[Unpack[Ts]], Awaitable[T]],
        /,
        *args: *Ts,
        **options: Unpack[StepOptions],
    ) -> T: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[Unpack[Ts]], Result[T]],
        /,
        *args: *Ts,
        **options: Unpack[StepOptions],
    ) -> T: ...

    @overload
    def step(
        self, name: str, fn: Callable[As, Awaitable[T]], /, *args: As.args, **kwargs: As.kwargs
    ) -> T: ...

    @overload
    def step(self, name: str, fn: Callable[As, Result[T]], /, *args: As.args, **kwargs: As.kwargs) -> T: ...

    @explained_by(Context.step)  # type: ignore[misc]
    def step(self, name: str, fn: Any, /, *args: Any, **options: Any) -> Any:
        return self._ask("step", lambda ctx: ctx.step(name, fn, *args, **options))

    @overload
    def map(
        self,
        name: str,
        fn: Callable[[A], Awaitable[T]],
        items: Iterable[A],
        limit: int = 10,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        *,
        key: Callable[[A], object] | None = None,
        raises: Raises = (),
        cost_max: float | None = None,
    ) -> list[T]: ...

    @overload
    def map(
        self,
        name: str,
        fn: Callable[[A], Result[T]],
        items: Iterable[A],
        limit: int = 10,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        *,
        key: Callable[[A], object] | None = None,
        raises: Raises = (),
        cost_max: float | None = None,
    ) -> list[T]: ...

    @explained_by(Context.map)
    def map(self, *args: Any, **options: Any) -> Any:
        return self._ask("map", lambda ctx: ctx.map(*args, **options))

    @overload
    def transaction(
        self, fn: Callable[..., Awaitable[T]], *args: Any, **options: Unpack[TransactionOptions]
    ) -> T: ...

    @overload
    def transaction(
        self, fn: Callable[..., Result[T]], *args: Any, **options: Unpack[TransactionOptions]
    ) -> T: ...

    @explained_by(Context.transaction)
    def transaction(self, *args: Any, **options: Any) -> Any:
        return self._ask("transaction", lambda ctx: ctx.transaction(*args, **options))

    @overload
    def call(
        self,
        workflow: Defined[None, T],
        params: None = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> T: ...

    @overload
    def call(
        self,
        workflow: Defined[A, T],
        params: Given[A],
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> T: ...

    @overload
    def call(
        self, workflow: str, params: Any = None, *, key: str | None = None, **options: Unpack[ChildOptions]
    ) -> Any: ...

    @explained_by(Context.call)
    def call(self, *args: Any, **options: Any) -> Any:
        return self._ask("call", lambda ctx: ctx.call(*args, **options))

    @overload
    def start(
        self,
        workflow: Defined[None, Any],
        params: None = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> UUID: ...

    @overload
    def start(
        self,
        workflow: Defined[A, Any],
        params: Given[A],
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> UUID: ...

    @overload
    def start(
        self, workflow: str, params: Any = None, *, key: str | None = None, **options: Unpack[ChildOptions]
    ) -> UUID: ...

    @explained_by(Context.start)
    def start(self, *args: Any, **options: Any) -> Any:
        return self._ask("start", lambda ctx: ctx.start(*args, **options))

    sleep = blocking(Context.sleep)
    sleep_until = blocking(Context.sleep_until)
    await_event = blocking(Context.await_event)
    approval = blocking(Context.approval)

    now = through(Context.now)
    log = through(Context.log)
    emit = through(Context.emit)
    send = through(Context.send)
    continue_as = through(Context.continue_as)
    random = direct(Context.random)
    uuid = direct(Context.uuid)
    cost = direct(Context.cost)
    progress = direct(Context.progress)

    def _ask(self, name: str, question: Question) -> Any:
        scope = within()
        if scope is not None:
            raise UsageError(misplaced(name, scope))
        said = copy_context()
        return self._exchange.ask(lambda ctx: _in_words_of(said, question, ctx))


def _in_words_of(said: ContextVars, question: Question, context: Context) -> Any:
    """Call with the context variables of the body, which set them in its thread: its steps see them."""
    for var, value in said.items():
        if var.get(None) is not value:
            var.set(value)
    return question(context)
