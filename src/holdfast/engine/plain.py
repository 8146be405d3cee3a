"""Plain workflows: a `def` in a thread, whose blocking calls are awaited one by one in the run's own task.

There is no second engine. What is driven is a coroutine that serves the thread: it awaits what the
function asks for and hands back the result, or whatever was raised, signals included. So parking,
replay, retries and cancelling are what they are for async code, and a parked run holds no thread.
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
from holdfast.errors import UsageError
from holdfast.threads import Ended, Talk

from .context import Context
from .raising import Raises
from .steps import SCOPE, misplaced, within

if TYPE_CHECKING:
    from .execution import Execution

P = ParamSpec("P")
T = TypeVar("T")

Question = Callable[[Context], Any]


async def bridge(run: Execution, params: tuple[Any, ...]) -> Any:
    """Run the workflow's function in a thread, and serve it to its end."""
    context, stage, function = Context(run), run.stage, run.workflow.function
    talk = run.world.talk(run.worker.straggling)
    try:
        talk.begin(lambda: function(PlainContext(context, talk), *params))
        while True:
            # While the function works, what is left of other branches must not park the run under it.
            stage.running += 1
            try:
                word = await talk.heard()
            finally:
                stage.running -= 1
            if stage.waits:
                stage.arm()
            if isinstance(word, Ended):
                return _returned(word.value(), run.workflow.type)
            await _serve(talk, context, word)
    finally:
        talk.leave()


async def _serve(talk: Talk, context: Context, question: Question) -> None:
    try:
        answer = question(context)
        if inspect.isawaitable(answer):
            answer = await answer
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the thread is where it belongs, signals too
        talk.answer(None, error)
    else:
        talk.answer(answer)


def _returned(value: Any, type_: str) -> Any:
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError(
            f"workflow {type_} is a plain function that returns a coroutine: write it as `async def`, "
            f"and let its decorators be async too"
        )
    return value


def blocking(
    method: Callable[Concatenate[Context, P], Awaitable[T]],
) -> Callable[Concatenate[PlainContext, P], T]:
    """The method of the same name that blocks until there is an answer."""

    @wraps(method)
    def asked(self: PlainContext, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._ask(method.__name__, lambda ctx: method(ctx, *args, **kwargs))  # type: ignore[no-any-return]

    return asked


def through(
    method: Callable[Concatenate[Context, P], T],
) -> Callable[Concatenate[PlainContext, P], T]:
    """The method of the same name; the record belongs to the event loop, so the body asks there."""

    @wraps(method)
    def asked(self: PlainContext, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if SCOPE.get() is not None:  # a step's own: it may be on the event loop, and must not wait for it
            return method(self._context, *args, **kwargs)
        return self._talk.ask(lambda ctx: method(ctx, *args, **kwargs))  # type: ignore[no-any-return]

    return asked


def direct(
    method: Callable[Concatenate[Context, P], T],
) -> Callable[Concatenate[PlainContext, P], T]:
    """The method of the same name, which touches nothing that the event loop works with."""

    @wraps(method)
    def called(self: PlainContext, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if SCOPE.get() is None:
            self._talk.check()
        return method(self._context, *args, **kwargs)

    return called


class PlainContext:
    """The context of a plain workflow: the same names, and what would be awaited blocks."""

    __slots__ = ("_context", "_talk")

    def __init__(self, context: Context, talk: Talk) -> None:
        self._context, self._talk = context, talk

    @property
    def run_id(self) -> UUID:
        """The id of this run."""
        return self._context.run_id

    @property
    def tenant(self) -> str:
        """Who this run belongs to."""
        return self._context.tenant

    @property
    def labels(self) -> dict[str, str]:
        """What this run is tagged with: of a schedule's, `fire_at` is the time that it stands for."""
        return self._context.labels

    @property
    def attempt(self) -> int:
        """Executions begun since the run last made progress; the first is 1."""
        return self._context.attempt

    @property
    def cancelled(self) -> bool:
        """The run was cancelled, lost, or is to stop: come to an end. A parked run is not cancelled."""
        return self._talk.over or self._context.cancelled

    @property
    def idempotency_key(self) -> str:
        """Inside a step: its own key for the outside world, the same at every try, takeover and rewind."""
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

    # Written out for the type checker alone, which cannot hand overloads on.
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
        return self._talk.ask(lambda ctx: _in_words_of(said, question, ctx))


def _in_words_of(said: ContextVars, question: Question, context: Context) -> Any:
    """Ask with the context variables of the body, which set them in its thread: its steps see them."""
    for var, value in said.items():
        if var.get(None) is not value:
            var.set(value)
    return question(context)
