"""The waits of a context: sleep, await_event, approval, call. A parked run holds no thread and no memory."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload
from uuid import UUID

from holdfast.arguments import Seconds, check_datetime, check_duration, check_topic, check_units
from holdfast.clipped import clipped
from holdfast.engine.definitions import Defined
from holdfast.engine.options import ChildOptions
from holdfast.engine.typed import A, Given, T
from holdfast.errors import EventTimeout, UsageError
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Decision, Event, StepWrite

from .approvals import decision, shown
from .children import Child, child_name
from .events import event_of
from .waits import wait

if TYPE_CHECKING:
    from .execution import Execution
    from .stage import Stage


class Parking:
    """The part of a context that parks its run.

    Keys are counted at the call, not when the coroutine begins to run: so these are sync functions that
    return a coroutine.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _run: Execution
        _stage: Stage

        def _key(self, name: str, key: str | None) -> str: ...

    def sleep(
        self, /, duration: Seconds = 0, *, key: str | None = None, **units: float
    ) -> Coroutine[Any, Any, None]:
        """Park for a duration: `ctx.sleep(5)`, `ctx.sleep(hours=1)`, a timedelta."""
        return self._sleep(key, delay_seconds=check_units("sleep", duration, units))

    def sleep_until(self, at: datetime, *, key: str | None = None) -> Coroutine[Any, Any, None]:
        """Park until an instant; an instant in the past is due at once."""
        return self._sleep(key, due_at=check_datetime("sleep_until", at))

    def await_event(
        self,
        topic: str,
        timeout: Seconds | None = None,
        since: Literal["start", "now"] = "start",
        *,
        key: str | None = None,
    ) -> Coroutine[Any, Any, Event]:
        """Park until an event comes on `topic`; EventTimeout when it has not come in time. Both are recorded.

        Events emitted since the run was started count, oldest first, each once; since="now": only later
        events.
        """
        if since not in ("start", "now"):
            raise UsageError(f"since={clipped(since)}: give 'start' or 'now'")
        topic = check_topic(topic)
        write = self._wait(
            f"event:{topic}",
            key,
            StepKind.EVENT,
            topic=topic,
            since_now=since == "now",
            delay_seconds=None if timeout is None else check_duration("await_event: timeout", timeout),
        )
        came = self._stage.promised[write.key] = self._came(write, topic)
        return came

    def approval(
        self,
        name: str,
        ask: str = "",
        data: Any = None,
        timeout: Seconds | None = None,
        *,
        key: str | None = None,
        on_timeout: Literal["reject", "approve"] = "reject",
    ) -> Coroutine[Any, Any, Decision]:
        """Park until a person approves or rejects; the decision is recorded, and a rejection is no error.

        The person sees `ask` and `data`. When nobody decides in time, `on_timeout` decides, and `timed_out`
        is set.
        """
        asked = shown(name, ask, data, on_timeout)
        delay = None if timeout is None else check_duration(f"approval {clipped(name)}: timeout", timeout)
        write = self._wait(name, key, StepKind.APPROVAL, delay_seconds=delay, **asked)
        decided = self._stage.promised[write.key] = self._decided(write)
        return decided

    @overload
    def call(
        self,
        workflow: Defined[None, T],
        params: None = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def call(
        self,
        workflow: Defined[A, T],
        params: Given[A],
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def call(
        self, workflow: str, params: Any = None, *, key: str | None = None, **options: Unpack[ChildOptions]
    ) -> Coroutine[Any, Any, Any]: ...

    def call(
        self,
        workflow: Defined | str,
        params: Any = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Coroutine[Any, Any, Any]:
        """Start a child run once, park until its end and return its result, or raise ChildFailed. Both are
        recorded.

        It is recorded under the workflow's name, or `key`: give keys when several tasks call the same one,
        `ctx.call(ship, parcel, key=f"ship:{n}")`. `key` is not an idempotency key of the child, which needs
        none:
        its step starts it once. Other options are those of `app.start`. Cancelling this run cancels
        the child; code that merely stops waiting for it lets it go on.
        """
        child = self._child(workflow, params, key, options)
        result = self._stage.promised[child.key] = child.result()
        return result

    @overload
    def start(
        self,
        workflow: Defined[None, Any],
        params: None = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Coroutine[Any, Any, UUID]: ...

    @overload
    def start(
        self,
        workflow: Defined[A, Any],
        params: Given[A],
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Coroutine[Any, Any, UUID]: ...

    @overload
    def start(
        self, workflow: str, params: Any = None, *, key: str | None = None, **options: Unpack[ChildOptions]
    ) -> Coroutine[Any, Any, UUID]: ...

    def start(
        self,
        workflow: Defined | str,
        params: Any = None,
        *,
        key: str | None = None,
        **options: Unpack[ChildOptions],
    ) -> Coroutine[Any, Any, UUID]:
        """Start a child run once and return its id without waiting. Names, keys and options as in `call`."""
        child = self._child(workflow, params, key, options)
        started = self._stage.promised[child.key] = child.started()
        return started

    # -- inside --------------------------------------------------------------------------------

    def _sleep(self, key: str | None, **until: Any) -> Coroutine[Any, Any, None]:
        write = self._wait("sleep", key, StepKind.SLEEP, **until)
        slept = self._stage.promised[write.key] = self._slept(write)
        return slept

    async def _slept(self, write: StepWrite) -> None:
        await wait(self._run, self._stage, write)

    async def _came(self, write: StepWrite, topic: str) -> Event:
        step = await wait(self._run, self._stage, write)
        if step.status is not StepStatus.SUCCEEDED:
            raise EventTimeout(step.key, topic)
        return event_of(step.output, f"the event of step {step.key!r}")

    async def _decided(self, write: StepWrite) -> Decision:
        return decision(await wait(self._run, self._stage, write))

    def _child(self, workflow: Defined | str, params: Any, key: str | None, options: Any) -> Child:
        key = self._key(child_name(workflow, options), key)
        return Child(self._run, self._stage, key, workflow, params, options)

    def _wait(self, name: str, key: str | None, kind: StepKind, **fields: Any) -> StepWrite:
        return StepWrite(
            key=self._key(name, key),
            kind=kind,
            status=StepStatus.WAITING,
            attempts=0,
            started_at=self._run.now(),
            **fields,
        )
