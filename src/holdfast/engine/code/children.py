"""Child runs: a child is started once, in the parent's commit that records its step.

The record answers every later execution: no second child is started, and a bare name keeps the version that
it was resolved to. A child continues when its parent no longer waits for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from holdfast.arguments import check_bare
from holdfast.clipped import clipped
from holdfast.codec import MARK, Codec, untyped, unwrapped
from holdfast.engine.app.new_run import check_child_options, new_run
from holdfast.engine.definitions import Defined, bare, newest
from holdfast.engine.failures import stored
from holdfast.engine.outcome import StopReason
from holdfast.engine.worker.chores import TROUBLE_SECONDS
from holdfast.errors import ChildFailed, Drift, StoreError, UsageError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Json, NewRun, StepWrite
from holdfast.sealing.envelope import reason

from .record import Recorded
from .waits import wait

if TYPE_CHECKING:
    from .execution import Execution
    from .stage import Stage

log = safe_logger("holdfast.run")


STARTED = "started"  # the status in the row of a child that was started and is not awaited


class _End(msgspec.Struct):
    """A child's end as the store records it; for a child that was only started, its id."""

    run: UUID | None = None
    status: str = ""
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Started(msgspec.Struct):
    """The row of a child that was only started."""

    run: UUID


class Child:
    """One `ctx.call` or `ctx.start`: its key, and the child to start if nothing is recorded under the key."""

    __slots__ = ("_options", "_params", "_run", "_stage", "_workflow", "key")

    def __init__(
        self, run: Execution, stage: Stage, key: str, workflow: Defined | str, params: Any, options: Any
    ) -> None:
        self._run, self._stage, self.key = run, stage, key
        self._workflow, self._params, self._options = workflow, params, options

    async def result(self) -> Any:
        """Park until the child ends and return its result; raise ChildFailed."""
        found = await self._asked()
        if found is not None and _end(found).status == STARTED:
            raise Drift(self._other("started without waiting for it", "calls"))
        new = None if found is not None else await self._intent()
        step = await wait(
            self._run,
            self._stage,
            StepWrite(
                key=self.key,
                kind=StepKind.CHILD,
                status=StepStatus.WAITING,
                attempts=0,
                started_at=self._run.now(),
                child=new,
            ),
        )
        end = _end(step)
        if step.status is not StepStatus.SUCCEEDED:
            error = None if bytes(end.error) == b"null" else stored(bytes(end.error))
            raise ChildFailed(self.key, end.run, end.status, error)
        return await self._returned(end)

    async def started(self) -> UUID:
        """Return the child's id, once it is recorded."""
        run, stage = self._run, self._stage
        found = await self._asked()
        if found is not None:
            end = _end(found)
            if end.status != STARTED or end.run is None:
                raise Drift(self._other("called", "only starts"))
            await stage.replayed(self.key, None)
            return end.run
        run.check_time()
        run.check_room()
        stage.running += 1
        try:
            new = await self._intent()
            if run.workflow.segment:
                await run.boundary()
            if stage.closed:
                await stage.refuse(self.key)  # nothing was started
            committed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            output = msgspec.json.encode({"run": new.id, "status": STARTED}).decode()
            write = StepWrite(
                key=self.key, kind=StepKind.CHILD, output=output, child=new, started_at=run.now()
            )
            run.journal.write(write, committed, None)
            kept = await committed
        finally:
            stage.running -= 1
            if not stage.alone or stage.waits:
                stage.arm()
        # A server makes the ids of children itself: then the recorded one is another.
        return new.id if kept is None else msgspec.convert(kept, _Started).run

    async def _asked(self) -> Recorded | None:
        """Return the step recorded under the key; None when the child has still to be started."""
        stage = self._stage
        stage.promised.pop(self.key, None)
        if stage.closed:
            await stage.refuse(self.key)
        stage.enter(self.key)
        found = self._run.record.find(self.key, StepKind.CHILD)
        if found is None and not stage.alone:
            await stage.live()
        return found

    async def _intent(self) -> NewRun:
        run = self._run
        workflow = self._workflow
        if isinstance(workflow, str):
            type_ = await self._resolved(workflow)
            workflow = run.worker.versions.workflows.get(type_, type_)
        of: dict[str, Any] = {"tenant": run.claim.tenant, "parent": run.claim.id}
        new = new_run(run.world, workflow, self._params, **self._options, **of)
        trace = run.claim.trace if run.spans is None else run.spans.child(new)
        return msgspec.structs.replace(new, parent_step=self.key, trace=trace)

    async def _resolved(self, name: str) -> str:
        """Return the type of a bare name: the newest version that is published now."""
        if bare(name) != name:
            return newest(name, ())
        stage = self._stage
        # otherwise the waits of other branches would park the run while the store is asked
        stage.running += 1
        try:
            while True:
                try:
                    return newest(name, [one.type for one in await self._run.worker.store.definitions()])
                except StoreError as error:
                    log.warning("run %s cannot look up %r, will retry: %s", self._run.claim.id, name, error)
                await asyncio.sleep(TROUBLE_SECONDS)
        finally:
            stage.running -= 1
            if not stage.alone or stage.waits:
                stage.arm()

    async def _returned(self, end: _End) -> Any:
        text = bytes(end.result)
        what = f"the result of child run {end.run}"
        if text.startswith(MARK.encode()):
            # Not raised in user code, which might catch it and go on: the run is given back.
            self._run.stop(StopReason.SEALED, str(reason(text.decode(), what)))
            await self._stage.refuse(self.key)
        return _codec(self._workflow).decode(text, what)

    def _other(self, was: str, now: str) -> str:
        return (
            f"the child run of step {self.key!r} was {was}, but the code now {now} it: "
            f"give the new one another key, or rewind the run"
        )


def _codec(workflow: Defined | str) -> Codec:
    return untyped if isinstance(workflow, str) else workflow.result


def _end(found: Recorded) -> _End:
    output: Json | None = found.output
    return (
        _End() if output is None else unwrapped(output, _End, f"the end of child run of step {found.key!r}")
    )


def child_name(workflow: Any, options: Any) -> str:
    """Return the key of a child's step: the name of its workflow without version."""
    if options:
        check_child_options(options)
    if isinstance(workflow, str):
        return bare(check_bare(workflow))
    type_ = getattr(workflow, "type", None)
    if not isinstance(type_, str):
        raise UsageError(
            f"{clipped(workflow)} is not a workflow: give the decorated function, or its type as text"
        )
    return bare(type_)
