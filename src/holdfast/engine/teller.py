"""The telling of hooks, beside the runs and never in their way.

Best effort, at most once: a notice goes out after the commit that it tells of, from the worker that made
it, and dies with that worker. Whatever a hook does, no run and no worker is harmed by it: each hook has
places and a line of its own, so that one which hangs only ever holds up itself.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.contract import Store
from holdfast.errors import StoreError
from holdfast.escaping import safe_logger
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import ANY, Answer, Error, Verdict
from holdfast.world import World

from .hooks import Hook, Hooks, Notice, decoded

if TYPE_CHECKING:
    from .held import HeldRun
    from .journal import Written

log = safe_logger("holdfast.hooks")

AT_ONCE = 4  # calls of one hook at the same time
LINE_MAX = 1000  # notices that wait for one hook; what comes on top is dropped
CALL_SECONDS = 30.0
STOP_SECONDS = 5.0  # what hooks get when their worker stops

_STATUSES = {"paused": Status.PAUSED, "cancelled": Status.CANCELLED}


class _Line:
    """The notices that wait for one hook, and the calls of it that are under way."""

    __slots__ = ("dropped", "hook", "notices", "tasks")

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.notices: deque[Notice] = deque()
        self.tasks: set[asyncio.Task[None]] = set()
        self.dropped = 0


class Teller:
    """Calls the hooks of one worker. Only asked when there are some."""

    def __init__(self, hooks: Hooks, world: World, worker: str) -> None:
        self._hooks, self._world, self._worker = hooks, world, worker
        self._lines: dict[int, _Line] = {}
        self._looking: set[asyncio.Task[None]] = set()
        self._over = False

    def tell(self, name: str, **fields: Any) -> None:
        """Call every hook of this name, soon. Returns at once, raises nothing."""
        hooks = self._hooks.get(name)
        if hooks and not self._over:
            notice = Notice(name=name, worker=self._worker, **fields)
            for hook in hooks:
                self._queue(self._lines.setdefault(id(hook.function), _Line(hook)), notice)

    def run(self, name: str, run: HeldRun, **fields: Any) -> None:
        """Tell of a run that this worker holds, or held."""
        claim, error = run.claim, fields.get("error")
        attempt = run.attempt if error is None or error.attempt is None else error.attempt
        self.tell(name, run=claim.id, type=claim.type, tenant=claim.tenant, attempt=attempt, **fields)

    def ended(self, run: HeldRun, verdict: Verdict, error: Error | None, back: str) -> None:
        """Tell how an execution ended; `back` is what it is called when the run is pending again."""
        status = verdict.status if verdict.answer is Answer.APPLIED else _STATUSES.get(verdict.answer)
        name = back if status is Status.PENDING else f"run.{status}"
        if status is not None:  # lost: its worker tells, whichever way it has learnt it
            self.run(name, run, status=status, error=error, step=error.step if error else None)

    def steps(self, run: HeldRun, verdict: Verdict, sent: Sequence[Written]) -> None:
        """Tell of the steps that a commit has recorded as failed."""
        if verdict.answer not in {Answer.APPLIED, Answer.PAUSED}:
            return
        for write, _, _ in sent:
            if write.status is StepStatus.FAILED and write.kind is StepKind.TASK:
                status = Status.PAUSED if verdict.answer is Answer.PAUSED else verdict.status
                self.run("step.failed", run, status=status, step=write.key, error=decoded(write.error))

    def failed(self, store: Store, runs: Sequence[UUID]) -> None:
        """Tell of runs that a keeper's round has ended; who they were is looked up first."""
        if "run.failed" in self._hooks and not self._over:
            task = self._world.spawn(self._look_up(store, runs), "holdfast-hook-look")
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def _look_up(self, store: Store, runs: Sequence[UUID]) -> None:
        for id_ in runs:
            try:
                run = await store.get(id_, ANY)
            except StoreError as error:
                log.warning("no hook is told that run %s has failed: %s", id_, error)
                continue
            if run is not None and run.status is Status.FAILED:
                self.tell(
                    "run.failed",
                    run=run.id,
                    type=run.type,
                    tenant=run.tenant,
                    attempt=run.attempt,
                    status=run.status,
                    error=run.error,
                )

    def _queue(self, line: _Line, notice: Notice) -> None:
        if len(line.notices) >= LINE_MAX:
            if not line.dropped:
                log.warning("hook %s is too slow: notices are dropped until it is done", line.hook.called)
            line.dropped += 1
            return
        line.notices.append(notice)
        if len(line.tasks) < AT_ONCE:
            task = self._world.spawn(self._serve(line), "holdfast-hook")
            line.tasks.add(task)
            task.add_done_callback(line.tasks.discard)

    async def _serve(self, line: _Line) -> None:
        while line.notices:
            notice = line.notices.popleft()
            if line.dropped and len(line.notices) < LINE_MAX // 2:
                log.warning("hook %s goes on: %d notices were dropped", line.hook.called, line.dropped)
                line.dropped = 0
            await self._call(line.hook, notice)

    async def _call(self, hook: Hook, notice: Notice) -> None:
        call = self._world.spawn(self._guarded(hook, notice), f"holdfast-hook-{notice.name}")
        try:
            _, late = await asyncio.wait([call], timeout=CALL_SECONDS)
            if late:
                log.warning("hook %s has not ended %s within %g s", hook.called, notice.name, CALL_SECONDS)
                if hook.is_async:
                    call.cancel()
                # It keeps its place until it has really ended: a plain function that hangs holds a thread.
                await asyncio.wait([call])
        finally:
            call.cancel()

    async def _guarded(self, hook: Hook, notice: Notice) -> None:
        try:
            if hook.is_async:
                await hook.function(notice)
            else:
                answer = await self._world.thread(hook.function, notice, aside=True)
                if inspect.isawaitable(answer):
                    await answer  # a lambda around an async call
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException:
            # SystemExit too: it would end the event loop, and with it the worker.
            about = "" if notice.run is None else f" (run {notice.run})"
            log.exception("hook %s failed at %s%s", hook.called, notice.name, about)

    async def end(self) -> None:
        """Tell nothing more; what is under way gets a short while, then it is left."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while tasks := {
                    *self._looking,
                    *(task for one in self._lines.values() for task in one.tasks),
                }:
                    await asyncio.wait(tasks)
        self.leave()

    def leave(self) -> None:
        """Tell nothing more, and wait for nobody."""
        self._over = True
        late = [line for line in self._lines.values() if line.tasks]
        if late:
            names = ", ".join(sorted({line.hook.called for line in late}))
            log.warning("the worker stops before these hooks have ended: %s", names)
        for task in self._looking:
            task.cancel()
        for line in late:
            line.notices.clear()
            for task in line.tasks:
                task.cancel()
