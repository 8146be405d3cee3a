"""Sync workflows: a `def` runs in a thread, and its blocking calls are awaited one by one in the run's task.

There is no second engine. The run's task drives a coroutine that serves the thread: it awaits each call of
the function and returns the result, or raises the exception, signals included. So parking, replay, retries
and cancels work as for async code, and a parked run holds no thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextvars import Context as ContextVars
from contextvars import copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload
from uuid import UUID

from holdfast.backoff import Backoff
from holdfast.durations import Seconds
from holdfast.engine.step_failures import Raises
from holdfast.errors import UsageError
from holdfast.threads import CallResult, Exchange

from .context import Context
from .scope import SCOPE, misplaced, within

if TYPE_CHECKING:
    from .execution import Execution

P = ParamSpec("P")
T = TypeVar("T")

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


class SyncContext:
    """The context of a sync workflow: the methods of `Context`, blocking."""

    __slots__ = ("_context", "_exchange")

    def __init__(self, context: Context, exchange: Exchange) -> None:
        self._context, self._exchange = context, exchange

    @property
    def run_id(self) -> UUID:
        """The id of this run."""
        return self._context.run_id

    @property
    def tenant(self) -> str:
        """The tenant of this run."""
        return self._context.tenant

    @property
    def labels(self) -> dict[str, str]:
        """The labels of this run. A schedule's run has `fire_at`, the time that it was due at."""
        return self._context.labels

    @property
    def attempt(self) -> int:
        """Executions begun since the run last made progress; the first is 1."""
        return self._context.attempt

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

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[T]],
        *args: Any,
        key: str | None = None,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        raises: Raises = (),
    ) -> T: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., T],
        *args: Any,
        key: str | None = None,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        raises: Raises = (),
    ) -> T: ...

    # Written out for the type checker, which cannot forward overloads.
    @wraps(Context.step)
    def step(self, name: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self._ask("step", lambda ctx: ctx.step(name, fn, *args, **options))

    transaction = blocking(Context.transaction)
    map = blocking(Context.map)
    sleep = blocking(Context.sleep)
    sleep_until = blocking(Context.sleep_until)
    await_event = blocking(Context.await_event)
    approval = blocking(Context.approval)
    call = blocking(Context.call)
    start = blocking(Context.start)

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
