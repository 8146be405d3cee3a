"""`ctx.step`: a step is answered from the record, or run until it succeeds or has used all its tries."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.backoff import IN_PLACE_MAX_SECONDS, Backoff
from holdfast.bounds import LARGE_BYTES
from holdfast.clipped import clipped
from holdfast.codec import Codec, result_codec
from holdfast.engine import run_log
from holdfast.engine.failures import delay_after, encoded, error_of, final_kind, line
from holdfast.engine.outcome import StopReason
from holdfast.engine.step_failures import arguments, failure
from holdfast.engine.worker.lease_clock import NotBegun, confirm
from holdfast.errors import StepTimeout, UsageError
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import (
    SECOND,
    Instant,
    Json,
    StepWrite,
)

from .record import error_text
from .scope import SCOPE, Scope
from .signals import Continued, Parked
from .waits import back_off

if TYPE_CHECKING:
    from holdfast.engine.commit.spending import Spending

    from .execution import Execution
    from .record import Recorded
    from .stage import Stage


# bounded: functions and types that are made anew in each call would fill the table for ever
CALLEES_MAX = 10_000

_callees: dict[object, tuple[Codec, bool]] = {}


def callee(fn: Callable[..., Any]) -> tuple[Codec, bool]:
    """Return the codec of a function's result, and whether the function is async."""
    found = _callees.get(fn) if type(fn) is FunctionType else None
    return found or _described(fn)


def _described(fn: Callable[..., Any]) -> tuple[Codec, bool]:
    # A closure made anew in each call is looked up by what it shares with others of its kind.
    lasting = type(fn) is FunctionType and "<locals>" not in fn.__qualname__
    key = fn if lasting else _shared(fn)
    try:
        found = _callees.get(key)
    except TypeError:  # an annotation that cannot be hashed
        found, key = None, None
    if found is None:
        inner = getattr(fn, "func", None) or type(fn).__call__  # a partial, or an object
        found = result_codec(fn), inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(inner)
        if key is not None and len(_callees) < CALLEES_MAX:
            _callees[key] = found
    return found


def _shared(fn: Callable[..., Any]) -> object:
    """Return a key that is equal for all closures and methods with the same codec; None when there is none.

    The code alone is not enough: functions under one decorator share its code and differ in annotations.
    """
    code, said = getattr(fn, "__code__", None), getattr(fn, "__annotations__", None)
    if code is None or (not said and not hasattr(fn, "__wrapped__")):
        return code
    wrapped = getattr(inspect.unwrap(fn), "__code__", None) if hasattr(fn, "__wrapped__") else None
    return code, said and said.get("return"), wrapped


LATER = object()  # stands for a value that is read from its text after the commit


class Call:
    """One `ctx.step`: its key, and the function to run if nothing is recorded under the key."""

    __slots__ = (
        "_args", "_fn", "_reserved", "_retry", "_run", "_stage", "_timeout", "called", "cost_max", "key",
        "raises",
    )  # fmt: skip

    def __init__(
        self, run: Execution, stage: Stage, key: str, fn: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._run, self._stage, self.key, self._fn, self._args = run, stage, key, fn, args
        self.called = fn  # or a partial of it, with its keyword arguments
        self._retry: Backoff | None = None
        self._timeout: float | None = None
        self.cost_max = 0  # what one try may cost at most, in units; 0: not known
        self._reserved = False  # its cost is reserved
        # classes of exceptions that it raises as themselves
        self.raises: tuple[type[Exception], ...] = run.workflow.raises

    def limited(self, retry: Backoff | None, timeout: float | None) -> Call:
        """Set a retry policy and a time limit for this step."""
        self._retry, self._timeout = retry, timeout
        return self

    async def answer(self) -> Any:
        """Return the recorded result, or run the function and record its result."""
        run, stage, key = self._run, self._stage, self.key
        stage.promised.pop(key, None)
        if stage.closed:
            await stage.refuse(key)
        stage.enter(key)
        found = run.record.find(key, StepKind.TASK)
        tries = 0
        if found is not None:
            if found.status is StepStatus.SUCCEEDED:
                codec, _ = callee(self._fn)
                value = codec.decode(found.output or "null", f"the recorded result of step {key!r}")
                return await stage.replayed(key, value)
            if found.status is StepStatus.FAILED:
                await stage.replayed(key, None)
                raise failure(key, error_text(found), self.raises)
            tries = found.attempts
            await self._backed_off(found)
        if not stage.alone:
            await stage.live()
        run.check_time()
        if found is None:
            run.check_room()
        stage.running += 1
        try:
            return await self._tries(tries)
        finally:
            stage.running -= 1
            if not stage.alone or stage.waits:
                stage.arm()

    async def _tries(self, tries: int) -> Any:
        run, key = self._run, self.key
        codec, is_async = callee(self._fn)
        while True:
            at_once = run.journal.spending is None and not run.lease_clock.over and not self._stage.closed
            begun_at = run.now() if at_once else await self._begin()
            tries += 1
            scope = Scope(key, tries)
            failed: Exception | None = None
            token = SCOPE.set(scope)
            run.running[key] = tries, begun_at
            try:
                value = await (
                    self.called(*self._args)
                    if is_async and self._timeout is None
                    else self._limited(is_async=is_async)
                )
                output, value = self._counted(*codec.record(value, f"the result of step {key!r}"))
            except (Parked, Continued, KeyboardInterrupt, GeneratorExit):
                raise
            except NotBegun:
                tries -= 1
            except BaseException as error:
                if self._stage.closed or (isinstance(error, asyncio.CancelledError) and cancelled()):
                    run.tried("cancelled", begun_at)
                    raise  # the run is stopped: the function's answer is no failed try
                SCOPE.reset(token)
                token = SCOPE.set(None)
                run.running.pop(key, None)
                self._settle(scope.cost)
                failed = await self._again_or_fail(error, tries, scope, begun_at)
            else:
                run.tried("succeeded", begun_at)
                self._settle(scope.cost)
                write = StepWrite(
                    key=key, output=output, attempts=tries, cost=scope.cost, started_at=begun_at
                )
                if run.workflow.segment:
                    await self._boundary(write, scope)
                for event in scope.events:
                    run.journal.emit(event)
                return await self._written(write, value)
            finally:
                SCOPE.reset(token)
                run.running.pop(key, None)
                self._settle(0)  # of a try that is not recorded
            if failed is not None:
                try:
                    raise failed
                finally:
                    del failed  # otherwise the exception and this frame would keep each other alive

    async def _begin(self) -> Instant:
        """Wait until the try may begin: its cost is reserved, and the lease is certain. Return the time."""
        if self._run.journal.spending is not None:
            await self._reserve(self._run.journal.spending)
        if self._run.lease_clock.over or self._stage.closed:
            try:
                return await self._confirmed()
            except BaseException:
                self._settle(0)  # the try does not begin: others must not wait for its cost
                raise
        return self._run.now()

    async def _reserve(self, spending: Spending) -> None:
        """Reserve what the try may cost. While too little is left, wait for steps that have reserved some:
        they may cost less. When none is left that could, stop the run: it pauses before this step.
        """
        while not self._stage.closed and not spending.allows(self.cost_max):
            if spending.reserved:
                await spending.settled()
            else:
                self._run.stop(StopReason.SHORT, self.key, cost_max=self.cost_max)
                await self._stage.refuse(self.key)
        spending.reserved += self.cost_max
        self._reserved = True

    def _settle(self, cost: int) -> None:
        """End the reservation of a try, once: it has cost so much."""
        spending = self._run.journal.spending
        if spending is not None and self._reserved:
            self._reserved = False
            spending.settle(self.key, self.cost_max, cost)

    async def _confirmed(self) -> Instant:
        """Wait until the lease is certain and return the store's time; raise RunOverdue when the run is too
        late.
        """
        await confirm(self._run, self._stage, self.key)
        self._run.check_time()  # the wait for the store may have been long
        return self._run.now()

    def _counted(self, output: Json, value: Any) -> tuple[Json, Any]:
        """Count a result. Many large results may wait for their commit: each is kept once, as text."""
        self._run.record.count_bytes(output)
        return output, LATER if len(output) > LARGE_BYTES else value

    async def _boundary(self, write: StepWrite, scope: Scope) -> None:
        try:
            await self._run.boundary()
        except asyncio.CancelledError:
            if self._stage.closed:  # its effects go with the last commit, if there is one
                for event in scope.events:
                    self._run.journal.emit(event)
                self._run.journal.keep(write)
            raise

    async def _limited(self, *, is_async: bool) -> Any:
        limit = asyncio.timeout(self._timeout if is_async else None)
        try:
            async with limit:
                if is_async:
                    return await self.called(*self._args)
                value = await self._in_thread(limit)
                # A lambda around an async call is sync, but it returns an awaitable.
                return await value if inspect.isawaitable(value) else value
        except TimeoutError:
            if not limit.expired():
                raise  # raised by the function itself
            raise StepTimeout(f"step {self.key!r} took longer than {self._timeout:g} s") from None

    async def _in_thread(self, limit: asyncio.Timeout) -> Any:
        scope, loop, waiting = SCOPE.get(), asyncio.get_running_loop(), True

        def begin() -> None:
            if waiting and self._timeout is not None:
                limit.reschedule(loop.time() + self._timeout)

        def call() -> Any:
            if self._run.lease_clock.over:
                raise NotBegun  # the wait for a free thread may have been long
            if self._timeout is not None:
                # The step's timeout counts from here.
                loop.call_soon_threadsafe(begin)
            return self.called(*self._args)

        try:
            return await self._run.world.thread(call, stragglers=self._run.worker.straggling)
        except BaseException:
            if scope is not None:
                scope.over = True
            raise
        finally:
            waiting = False

    async def _written(self, write: StepWrite, value: Any) -> Any:
        if self._stage.closed:
            # User code gets no answer any more. The step's effects go with the last commit, if there is one.
            self._run.journal.keep(write)
            await self._stage.refuse(self.key)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._run.journal.write(write, future, value)
        answer = await future
        if answer is not LATER:
            return answer
        return callee(self._fn)[0].decode(write.output or "", f"the result of step {self.key!r}")

    async def _again_or_fail(
        self, error: BaseException, tries: int, scope: Scope, begun_at: Instant
    ) -> Exception | None:
        """Return None when the step may be retried; else record the failure and return the exception to
        raise.

        The caller raises it outside of its `except` block: otherwise only the first execution would see a
        `__context__`.
        """
        run, key = self._run, self.key
        policy = self._retry or run.workflow.retry
        tries_max = self._retry.attempts if self._retry else run.claim.max_attempts
        told = "timeout" if isinstance(error, StepTimeout) else None
        kind = final_kind(error, policy)
        if kind is None and tries >= tries_max:
            kind = told or "exhausted"
        run.tried("failed" if kind else "retried", begun_at)
        recorded = error_of(
            error, kind or told or "error", key, arguments(error, self.raises) if kind else None
        )
        recorded = msgspec.structs.replace(recorded, attempt=tries, max_attempts=tries_max)
        if scope.span is not None:
            scope.span.failed(recorded)
        write = StepWrite(
            key=key,
            status=StepStatus.FAILED if kind else StepStatus.READY,
            error=encoded(recorded),
            attempts=tries,
            max_attempts=tries_max,
            cost=scope.cost,
            started_at=begun_at,
        )
        if kind:
            if run.workflow.segment:
                await run.boundary()
            await self._written(write, None)
            return failure(key, write.error, self.raises)
        delay = delay_after(error, policy, tries, run.world.chance())
        run_log.retried(run, recorded, delay)
        await self._later(
            msgspec.structs.replace(write, due_at=run.now() + int(delay * SECOND)), delay, line(recorded)
        )
        return None

    async def _later(self, write: StepWrite, delay: float, said: str) -> None:
        """Record the failed try and wait for the next one: here when it is soon, else in the queue."""
        if delay <= IN_PLACE_MAX_SECONDS:
            await self._written(write, (delay, said))
            await asyncio.sleep(delay)
            return
        stage = self._stage
        stage.running -= 1
        try:
            await back_off(self._run, self.key, write.due_at or 0, write, said)
        finally:
            stage.running += 1

    async def _backed_off(self, found: Recorded) -> None:
        """Wait until the next try of a recorded step is due."""
        left = (found.due_at or 0) - self._run.now()
        if left > IN_PLACE_MAX_SECONDS * SECOND:
            await back_off(self._run, self.key, found.due_at or 0)
        elif left > 0:
            # otherwise the waits of other branches would park the run without this one
            self._stage.running += 1
            try:
                await asyncio.sleep(left / SECOND)
            finally:
                self._stage.running -= 1


def cancelled() -> bool:
    """Return True when the workflow's own code cancelled this branch: a timeout around it, or a lost race."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_callable(name: str, fn: Any) -> None:
    """Refuse a value that is no function, such as in `ctx.step("charge", charge(order))`, and a function in
    the place of the name.
    """
    if callable(name):
        called = getattr(name, "__name__", "fn")
        called = called if called.isidentifier() else "fn"
        raise UsageError(f'the first argument is the step\'s name: `ctx.step("{called}", {called}, x)`')
    if callable(fn):
        return
    if inspect.iscoroutine(fn):
        fn.close()
        said = clipped(name)
        raise UsageError(
            f"step {said}: give the function and its arguments, not a call: ctx.step({said}, fn, arg)"
        )
    raise UsageError(
        f"step {clipped(name)}: {clipped(fn)} is not a function: give the function itself, then its arguments"
    )
