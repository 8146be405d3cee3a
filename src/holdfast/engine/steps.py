"""A step's life: answered from the record, or run until it succeeds or its tries are used up."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.backoff import IN_PLACE_MAX_SECONDS, Backoff
from holdfast.codec import Codec, result_codec
from holdfast.errors import RetryAfter, StepFailed, UsageError
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import SECOND, Error, NewEvent, Step, StepWrite

from .failures import encoded, error_of, final_kind, line
from .signals import Continued, Parked

if TYPE_CHECKING:
    from .execution import Execution

class Scope:
    """What user code says while one step runs; it goes out with that step's commit."""

    __slots__ = ("cost", "events", "key")

    def __init__(self, key: str) -> None:
        self.key = key
        self.cost = 0
        self.events: list[NewEvent] = []


SCOPE: ContextVar[Scope | None] = ContextVar("holdfast_step", default=None)

_callees: dict[object, tuple[Codec, bool]] = {}


def _callee(fn: Callable[..., Any]) -> tuple[Codec, bool]:
    """How a function's result is recorded, and whether it is async. Closures share their code."""
    code = getattr(fn, "__code__", None)
    found = _callees.get(code) if code is not None else None
    if found is None:
        found = result_codec(fn), inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
            getattr(fn, "func", None) or getattr(fn, "__call__", None)
        )
        if code is not None:
            _callees[code] = found
    return found


async def step(
    run: Execution,
    key: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    retry: Backoff | None,
    timeout: float | None,
) -> Any:
    """The whole of `ctx.step`."""
    stage = run.stage
    stage.enter()
    found = run.record.find(key, StepKind.TASK)
    codec, is_async = _callee(fn)
    tries = 0
    if found is not None:
        if found.status is StepStatus.SUCCEEDED:
            value = codec.decode(found.output or "null", f"the recorded result of step {key!r}")
            return await stage.replayed(key, value)
        if found.status is StepStatus.FAILED:
            await stage.replayed(key, None)
            raise _failed(key, found)
        tries = found.attempts
        await _backed_off(run, key, found)
    if not stage.alone:
        await stage.live()
    run.check_room()
    stage.running += 1
    try:
        return await _tries(run, key, fn, args, retry, timeout, codec, is_async, tries)
    finally:
        stage.running -= 1
        if not stage.alone or stage.waits:
            stage.arm()


async def _tries(
    run: Execution,
    key: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    retry: Backoff | None,
    timeout: float | None,
    codec: Codec,
    is_async: bool,
    tries: int,
) -> Any:
    while True:
        tries += 1
        scope = Scope(key)
        begun_at = run.now()
        try:
            value = await _call(run, scope, fn, args, timeout, is_async)
            output, value = codec.record(value, f"the result of step {key!r}")
        except (Parked, Continued, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and run.interrupted():
                raise
            await _again_or_fail(run, key, error, retry, tries, scope, begun_at)
        else:
            write = StepWrite(key=key, output=output, attempts=tries, cost=scope.cost, started_at=begun_at)
            return await _written(run, write, scope, value)


async def _call(
    run: Execution, scope: Scope, fn: Callable[..., Any], args: tuple[Any, ...], timeout: float | None, is_async: bool
) -> Any:
    token = SCOPE.set(scope)
    try:
        if timeout is None:
            return await (fn(*args) if is_async else _plain(run, fn, args))
        async with asyncio.timeout(timeout):
            return await (fn(*args) if is_async else _plain(run, fn, args))
    finally:
        SCOPE.reset(token)


async def _plain(run: Execution, fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    value = await run.world.thread(fn, *args)
    # A lambda around an async call is plain, and what it returns is not.
    return await value if inspect.isawaitable(value) else value


async def _written(run: Execution, write: StepWrite, scope: Scope, value: Any) -> Any:
    for event in scope.events:
        run.journal.emit(event)
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    run.journal.write(write, future, value)
    return await future


async def _again_or_fail(
    run: Execution, key: str, error: BaseException, retry: Backoff | None, tries: int, scope: Scope, begun_at: int
) -> None:
    """Return when the step may be tried again; raise StepFailed, recorded, when it may not."""
    policy = retry or run.workflow.retry
    tries_max = retry.attempts if retry else run.claim.max_attempts
    kind = final_kind(error, policy)
    if kind is None and tries >= tries_max:
        kind = "timeout" if isinstance(error, TimeoutError) else "exhausted"
    recorded = error_of(error, kind or ("timeout" if isinstance(error, TimeoutError) else "error"), key)
    write = StepWrite(
        key=key,
        status=StepStatus.FAILED if kind else StepStatus.READY,
        error=encoded(recorded),
        attempts=tries,
        cost=scope.cost,
        started_at=begun_at,
    )
    if kind:
        await _written(run, write, Scope(key), None)
        raise StepFailed(key, kind, recorded.message) from error
    delay = error.delay if isinstance(error, RetryAfter) else policy.delay(tries, run.world.chance())
    due_at = run.now() + int(delay * SECOND)
    write = msgspec.structs.replace(write, due_at=due_at)
    if delay <= IN_PLACE_MAX_SECONDS:
        await _written(run, write, Scope(key), (delay, line(recorded)))
        await asyncio.sleep(delay)
        return
    run.stage.running -= 1
    try:
        await run.back_off(key, due_at, write, line(recorded))
    finally:
        run.stage.running += 1


async def _backed_off(run: Execution, key: str, found: Step) -> None:
    """A step that was to be tried again later: later may not have come yet."""
    left = (found.due_at or 0) - run.now()
    if left > IN_PLACE_MAX_SECONDS * SECOND:
        await run.back_off(key, found.due_at or 0)
    elif left > 0:
        await asyncio.sleep(left / SECOND)


def _failed(key: str, found: Step) -> StepFailed:
    error = msgspec.json.decode(found.error or b'{"kind": "exhausted"}', type=Error)
    return StepFailed(key, error.kind, error.message)


def check_callable(name: str, fn: Any) -> None:
    """Say what is wrong with `ctx.step("charge", charge(order))`."""
    if callable(fn):
        return
    if inspect.iscoroutine(fn):
        fn.close()
        raise UsageError(f"step {name!r}: give the function and its arguments, not a call: ctx.step({name!r}, fn, arg)")
    raise UsageError(f"step {name!r}: {fn!r} cannot be called")

