"""The context of a run: user code calls it, and every answer is recorded or comes from the record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, overload
from uuid import UUID

from holdfast.arguments import (
    Seconds,
    check_budget,
    check_duration,
    check_name,
    check_topic,
    check_whole,
    exact_text,
)
from holdfast.backoff import Backoff, check_policy
from holdfast.codec import untyped
from holdfast.engine.failures import text
from holdfast.engine.options import StepOptions
from holdfast.engine.outbox.messages import Message, event_id, message_of, outbound
from holdfast.engine.run_facts import RunFacts
from holdfast.engine.step_failures import Raises, check_raises
from holdfast.engine.typed import A, As, Given, NoArgument, OneArgument, Result, T, Ts
from holdfast.errors import UsageError
from holdfast.lifecycle import StepKind
from holdfast.records import NewEvent, Outbound, StepWrite, TrailWrite, moment

from .keywords import check_arguments, check_options
from .map_items import all_items, item_names
from .parking import Parking
from .record import EMITTED, KEYED, SENT
from .scope import SCOPE, Scope, add_cost, misplaced, progress_of, within
from .signals import Continued
from .steps import Call, check_callable
from .transactions import Transactions

if TYPE_CHECKING:
    from holdfast.world import Dice

    from .execution import Execution


class Context(Parking, Transactions, RunFacts):
    """The context of a run. Methods under the first heading are awaited and may park the run; the others
    answer at once."""

    __slots__ = ("_dice", "_run", "_stage")

    def __init__(self, execution: Execution) -> None:
        self._run = execution
        # The stage of this execution: a branch that outlives it must not ask anything of the next one.
        self._stage = execution.stage
        self._dice: Dice | None = None

    @property
    def cancelled(self) -> bool:
        """True when the run was cancelled or lost, or its worker stops: user code should end. Parking is no
        cancel.
        """
        scope = SCOPE.get()
        return self._run.stopped or (scope is not None and scope.over)

    @property
    def idempotency_key(self) -> str:
        """Inside a step: a key for the outside world that is the same at every retry, takeover and rewind."""
        return f"{self.run_id}:{self._scope('idempotency_key').key}"

    # -- awaited, may park -----------------------------------------------------------------------

    @overload
    def step(
        self, name: str, fn: NoArgument[Awaitable[T]], /, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, fn: NoArgument[Result[T]], /, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self,
        name: str,
        fn: OneArgument[A, Awaitable[T]],
        argument: Given[A],
        /,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, fn: OneArgument[A, Result[T]], argument: Given[A], /, **options: Unpack[StepOptions]
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[Unpack[Ts]], Awaitable[T]],
        /,
        *args: *Ts,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[[Unpack[Ts]], Result[T]],
        /,
        *args: *Ts,
        **options: Unpack[StepOptions],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[As, Awaitable[T]], /, *args: As.args, **kwargs: As.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def step(
        self, name: str, fn: Callable[As, Result[T]], /, *args: As.args, **kwargs: As.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    # The function may have parameters that are named like options: see keywords.py.
    def step(  # type: ignore[misc]
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *args: Any,
        key: str | None = None,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        raises: Raises = (),
        cost_max: float | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Run `fn(*args, **kwargs)` (async, or sync in a thread) and record its result before returning it.

        On a later execution of the run the recorded result is returned and `fn` is not called. A step that
        has used all its tries raises StepFailed; exceptions of a class in `raises` are raised as themselves.
        `cost_max`: what one try may cost at most. It is reserved before the call: a run whose budget may not
        pay for it pauses before the call.
        A keyword that is an option and an argument of `fn` is refused.
        """
        check_callable(name, fn)
        if kwargs:
            check_arguments(name, fn, args, kwargs)
        if key is not None or retry is not None or timeout is not None or raises or cost_max is not None:
            check_options(name, fn, args, (key, retry, timeout, raises or None, cost_max))
        return self._begun(name, fn, args, key, retry, timeout, raises, cost_max, kwargs)

    def _begun(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        key: str | None,
        retry: Backoff | None,
        timeout: Seconds | None,
        raises: Raises,
        cost_max: float | None,
        kwargs: dict[str, Any] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        key = self._key(name, key)
        call = Call(self._run, self._stage, key, fn, args)
        if kwargs:
            call.called = partial(fn, **kwargs)
        if self._run.spans is not None:
            call.called = self._run.spans.traced(call.called, name)
        if retry is not None or timeout is not None:
            limit = None if timeout is None else check_duration(f"step {key!r}: timeout", timeout)
            call.limited(check_policy(f"step {key!r}", retry), limit)
        if raises:
            call.raises = check_raises(f"step {key!r}", raises, call.raises)
        if cost_max is not None:
            call.cost_max = check_budget(f"step {key!r}: cost_max", cost_max)
        answer = self._stage.promised[key] = call.answer()
        return answer

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
    ) -> Coroutine[Any, Any, list[T]]: ...

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
    ) -> Coroutine[Any, Any, list[T]]: ...

    def map(
        self,
        name: str,
        fn: Callable[[Any], Any],
        items: Iterable[Any],
        limit: int = 10,
        retry: Backoff | None = None,
        timeout: Seconds | None = None,
        *,
        key: Callable[[Any], object] | None = None,
        raises: Raises = (),
        cost_max: float | None = None,
    ) -> Coroutine[Any, Any, list[Any]]:
        """Run a step for each item, at most `limit` at once, each recorded on its own; results in order.

        An item is recorded by its place, `name[0]`, `name[1]`, …: an item that differs in a later execution
        gets the result that was recorded at its place. With `key`, a function that names an item (text or a
        whole number), it is recorded by that name, `name[sku-7]`, wherever it stands. The first item that
        fails ends the map: it raises that failure once the other items are cancelled and have ended.
        `cost_max`: what one try of one item may cost at most, as in `step`.
        """
        base = self._key(name, None)
        gate = asyncio.Semaphore(check_whole(f"map {base!r}: limit", limit, 1))
        check_policy(f"map {base!r}", retry)
        check_raises(f"map {base!r}", raises, self._run.workflow.raises)
        if timeout is not None:
            check_duration(f"map {base!r}: timeout", timeout)
        if cost_max is not None:
            check_budget(f"map {base!r}: cost_max", cost_max)
        named = item_names(base, key)

        async def one(called: str, item: Any) -> Any:
            await gate.acquire()
            value = await self._begun(name, fn, (item,), called, retry, timeout, raises, cost_max)
            gate.release()  # not released after a failure: no further item begins then
            return value

        async def every() -> list[Any]:
            self._stage.promised.pop(base, None)
            if self._stage.closed:
                await self._stage.refuse(base)
            return await all_items([one(called, item) for called, item in named(items)])

        results = self._stage.promised[base] = every()
        return results

    # -- answered at once --------------------------------------------------------------

    def now(self) -> datetime:
        """Return the time of the store's clock, as far as it is known here. It is recorded: a later execution
        gets the same time. It never goes back within a run, also when the clock of the store was set back
        between two leases.
        """
        self._stage.check()
        key = self._key("now", None)
        found = self._run.record.find(key, StepKind.NOW)
        if found is not None:
            return moment(int(found.output or 0))
        at = max(self._run.now(), self._run.record.latest_now)
        self._note_step(StepWrite(key=key, kind=StepKind.NOW, output=str(at)))
        return moment(at)

    def random(self) -> float:
        """Return a number in [0, 1) from a seed fixed at start."""
        return self._draw().random()

    def uuid(self) -> UUID:
        """Return a random UUID from a seed fixed at start."""
        bits = self._draw().getrandbits(128)
        return UUID(int=bits & ~(0xF << 76 | 3 << 62) | 4 << 76 | 2 << 62)

    def log(self, /, message: str, level: str = "info", **data: Any) -> None:
        """Add a row to the trail with the run's next commit; a later execution does not repeat it."""
        row: dict[str, Any] = {**data, "message": text(message), "level": check_name("level", level)}
        row.pop("log_no", None)  # set below, by us
        scope = within()
        if scope is not None:
            row["step"] = scope.key
        else:
            self._stage.check()
            record = self._run.record
            record.logs += 1
            if record.logs <= record.logged:
                return
            row["log_no"] = record.logs
        entry = TrailWrite("log", untyped.encode(row, f"log {text(message, 40)!r}"))
        if scope is not None:
            scope.note(self._run.journal, entry)
        else:
            self._run.journal.note(entry)
            self._run.record.logged = row["log_no"]

    def cost(self, amount: float) -> None:
        """Inside a step: add to its cost. The run's cost is the sum over its steps."""
        add_cost(self._scope("cost"), amount)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Show people how far the run is; written with the next commit or renewal, at most once a second."""
        within()
        self._run.journal.progress(progress_of(done, total, note))

    def emit(self, topic: str, payload: Any = None, *, name: str | None = None) -> None:
        """Emit an event with this step's commit, or the run's next: once, however often it is executed.

        In the body it is a step, `emit:TOPIC` unless it has a `name`: several tasks need one for each.
        """
        topic = check_topic(topic)
        body = untyped.encode(payload, f"payload of event {topic!r}")
        scope = within()
        if scope is not None:
            said = f"{scope.key}:emit{len(scope.events) + 1}"
            scope.say(self._event(said, topic, body))
            return
        self._stage.check()
        key = self._key(f"emit:{topic}", name, EMITTED)
        if self._run.record.find(key, StepKind.EMIT) is None:
            self._note_step(StepWrite(key=key, kind=StepKind.EMIT), self._event(key, topic, body))

    def send(
        self, message: Message | str, payload: Any = None, key: str | None = None, *, name: str | None = None
    ) -> None:
        """Send a message to a sink with this step's commit, or the run's next: once, however often executed.

        `ctx.send("mail", {…})`, or a `Message`. It is delivered after the commit, those of one key in order.
        In the body it is a step, `send:SINK` unless it has a `name`: several tasks need one for each.
        """
        scope, what = within(), message_of(message, payload, key)
        run, created_at = self.run_id, self._run.claim.created_at
        if scope is not None:
            scope.say(outbound(what, run, created_at, scope.key, scope.sends + 1))
            return
        self._stage.check()
        step = self._key(f"send:{what.sink}", name, SENT)
        if self._run.record.find(step, StepKind.EMIT) is None:
            self._note_step(StepWrite(key=step, kind=StepKind.EMIT), outbound(what, run, created_at, step))

    def continue_as(self, params: Any = None) -> NoReturn:
        """End this run as succeeded and start the next one of the same workflow, linked, in one commit."""
        self._stage.check()
        self._run.continuing = True
        raise Continued(params)

    # -- inside --------------------------------------------------------------------------------

    def _key(self, name: str, key: str | None, advice: str = KEYED) -> str:
        if self._stage.closed:
            # The call is refused where it is awaited, not here: code that catches everything and
            # asks again could otherwise spin without giving way, even while it is garbage collected.
            return key or name
        scope = SCOPE.get()
        if scope is not None:
            within()
            raise UsageError(misplaced(name, scope))
        name, key = exact_text(name), exact_text(key)
        return self._run.record.key(name, key, asyncio.current_task(), advice)

    def _note_step(self, write: StepWrite, says: NewEvent | Outbound | None = None) -> None:
        self._run.check_time()
        self._run.check_room()
        if says is not None:
            self._run.journal.say(says)  # recorded with the step or not at all
        self._run.journal.keep(write)
        self._run.record.committed(write)

    def _event(self, name: str, topic: str, payload: str) -> NewEvent:
        id_ = event_id(self.run_id, self._run.claim.created_at, name)
        return NewEvent(id=id_, topic=topic, payload=payload, tenant=self.tenant)

    def _scope(self, what: str) -> Scope:
        scope = within()
        if scope is None:
            raise UsageError(f"ctx.{what} belongs inside a step: call it in the function that ctx.step runs")
        return scope

    def _draw(self) -> Dice:
        scope = within()
        if scope is not None:
            # A later execution does not run the step: numbers drawn inside it must not come from the body's
            # sequence.
            scope.dice = scope.dice or self._run.world.dice(f"{self.run_id}:{scope.key}")
            return scope.dice
        if self._dice is None:
            self._dice = self._run.world.dice(str(self.run_id))
        return self._dice
