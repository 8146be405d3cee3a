"""Child runs: started once with the row that names them, in the parent's own commit.

The record answers every later execution: no second child is started, and a name that was resolved stays
resolved. A child that is waited for no more goes on by itself.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict
from uuid import UUID

import msgspec

from holdfast.arguments import check_bare
from holdfast.clipped import clipped
from holdfast.codec import MARK, Codec, plain, unwrapped
from holdfast.durations import Seconds
from holdfast.errors import ChildFailed, Drift, StoreError, UsageError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import StepKind, StepStatus
from holdfast.records import Json, NewRun, StepWrite
from holdfast.sealing.envelope import reason

from .definitions import Defined, bare, newest
from .failures import stored
from .outcome import Why
from .record import Recorded
from .starting import check_child_options, new_run
from .turns import TROUBLE_SECONDS
from .waits import wait

if TYPE_CHECKING:
    from .execution import Execution
    from .stage import Stage

log = safe_logger("holdfast.run")


class ChildOptions(TypedDict, total=False):
    """What a child may be started with. Its tenant and its parent are those of the run that starts it."""

    priority: int
    run_at: datetime
    delay: Seconds
    timeout: Seconds
    max_attempts: int
    ttl: Seconds
    budget: float
    limit_key: str
    labels: dict[str, str]


STARTED = "started"  # the status of a child that nobody waits for, as its row has it


class _End(msgspec.Struct):
    """What a store records of a child's end. Of one that was only started: which it is."""

    run: UUID | None = None
    status: str = ""
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class Child:
    """One `ctx.call` or `ctx.start`: its key, and what to start if nothing stands there."""

    __slots__ = ("_options", "_params", "_run", "_stage", "_workflow", "key")

    def __init__(
        self, run: Execution, stage: Stage, key: str, workflow: Defined | str, params: Any, options: Any
    ) -> None:
        self._run, self._stage, self.key = run, stage, key
        self._workflow, self._params, self._options = workflow, params, options

    async def result(self) -> Any:
        """What the child returns, by parking until its end; ChildFailed."""
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
        """The child's id, once it is recorded."""
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
            await committed
        finally:
            stage.running -= 1
            if not stage.alone or stage.waits:
                stage.arm()
        return new.id

    async def _asked(self) -> Recorded | None:
        """What stands under the key; nothing: the code has come to where something may begin."""
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
        return msgspec.structs.replace(new, parent_step=self.key, trace=run.claim.trace)

    async def _resolved(self, name: str) -> str:
        """The type that a name stands for: the newest version that is published now."""
        if bare(name) != name:
            return newest(name, ())
        stage = self._stage
        stage.running += 1  # or its siblings' waits would park the run while the store is asked
        try:
            while True:
                try:
                    return newest(name, [one.type for one in await self._run.worker.store.definitions()])
                except StoreError as error:
                    log.warning(
                        "run %s cannot look up %r, will try again: %s", self._run.claim.id, name, error
                    )
                await asyncio.sleep(TROUBLE_SECONDS)
        finally:
            stage.running -= 1
            if not stage.alone or stage.waits:
                stage.arm()

    async def _returned(self, end: _End) -> Any:
        text = bytes(end.result)
        what = f"the result of child run {end.run}"
        if text.startswith(MARK.encode()):
            # Not an error of the code's, which might catch it and go on: the run goes back.
            self._run.stop(Why.SEALED, str(reason(text.decode(), what)))
            await self._stage.refuse(self.key)
        return _codec(self._workflow).decode(text, what)

    def _other(self, was: str, now: str) -> str:
        return (
            f"the child run of step {self.key!r} was {was}, and the code now {now} it: "
            f"give the new one another key, or rewind the run"
        )


def _codec(workflow: Defined | str) -> Codec:
    return plain if isinstance(workflow, str) else workflow.result


def _end(found: Recorded) -> _End:
    output: Json | None = found.output
    return (
        _End() if output is None else unwrapped(output, _End, f"the end of child run of step {found.key!r}")
    )


def child_name(workflow: Any, options: Any) -> str:
    """What a child's step is recorded under: its workflow's name, which a later version keeps."""
    if options:
        check_child_options(options)
    if isinstance(workflow, str):
        return bare(check_bare(workflow))
    type_ = getattr(workflow, "type", None)
    if not isinstance(type_, str):
        raise UsageError(
            f"{clipped(workflow)} is no workflow: give the decorated function, or its type as text"
        )
    return bare(type_)
