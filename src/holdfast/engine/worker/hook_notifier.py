"""The notifier of hooks: it calls them beside the runs and never delays a run.

Best effort, at most once: a notice goes out after its commit, from the worker that made the commit, and is
lost with that worker. A hook cannot harm a run or a worker: each hook has a queue and a number of calls of
its own, so a hook that hangs only delays itself.
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
from holdfast.engine import run_log
from holdfast.engine.code.scope import SCOPE
from holdfast.engine.hooks import Hook, Hooks, Notice, decoded
from holdfast.engine.log_context import PLACE, LogPlace
from holdfast.engine.tracing.provider import leave as leave_span
from holdfast.escaping import safe_logger
from holdfast.lifecycle import Status, StepKind, StepStatus
from holdfast.records import Answer, Error, Verdict
from holdfast.world import World

if TYPE_CHECKING:
    from holdfast.engine.commit.journal import Written

    from .held_run import HeldRun

log = safe_logger("holdfast.hooks")

AT_ONCE = 4  # calls of one hook at the same time
QUEUE_MAX = 1000  # notices that wait for one hook; further ones are dropped
CALL_SECONDS = 30.0
STOP_SECONDS = 5.0  # the time that hooks get when their worker stops

_STATUSES = {"paused": Status.PAUSED, "cancelled": Status.CANCELLED}


class _HookQueue:
    """The notices that wait for one hook, and its running calls."""

    __slots__ = ("dropped", "hook", "notices", "tasks")

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.notices: deque[Notice] = deque()
        self.tasks: set[asyncio.Task[None]] = set()
        self.dropped = 0


class HookNotifier:
    """The notifier of one worker's hooks. Only `failed`, which also logs, is called when there are none."""

    def __init__(self, hooks: Hooks, world: World, worker: str) -> None:
        self._hooks, self._world, self._worker = hooks, world, worker
        self._queues: dict[int, _HookQueue] = {}
        self._looking: set[asyncio.Task[None]] = set()
        self._over = False

    def tell(self, name: str, **fields: Any) -> None:
        """Call every hook of this name, soon. Returns at once, raises nothing."""
        hooks = self._hooks.get(name)
        if hooks and not self._over:
            notice = Notice(name=name, worker=self._worker, **fields)
            for hook in hooks:
                self._queue(self._queues.setdefault(id(hook.function), _HookQueue(hook)), notice)

    def run(self, name: str, run: HeldRun, **fields: Any) -> None:
        """Notify of a run that this worker holds, or held."""
        claim, error = run.claim, fields.get("error")
        attempt = run.attempt if error is None or error.attempt is None else error.attempt
        self.tell(name, run=claim.id, type=claim.type, tenant=claim.tenant, attempt=attempt, **fields)

    def ended(self, run: HeldRun, verdict: Verdict, error: Error | None, back: str) -> None:
        """Notify of the end of an execution; `back` names the notice when the run is pending again."""
        status = verdict.status if verdict.answer is Answer.APPLIED else _STATUSES.get(verdict.answer)
        name = back if status is Status.PENDING else f"run.{status}"
        if status is not None:  # a lost run: the worker notifies, however it learnt of the loss
            self.run(name, run, status=status, error=error, step=error.step if error else None)

    def steps(self, run: HeldRun, verdict: Verdict, sent: Sequence[Written]) -> None:
        """Notify of the steps that a commit has recorded as failed."""
        if verdict.answer not in {Answer.APPLIED, Answer.PAUSED}:
            return
        for write, _, _ in sent:
            if write.status is StepStatus.FAILED and write.kind is StepKind.TASK:
                status = Status.PAUSED if verdict.answer is Answer.PAUSED else verdict.status
                self.run("step.failed", run, status=status, step=write.key, error=decoded(write.error))

    def failed(self, store: Store, runs: Sequence[UUID]) -> None:
        """Log runs that a keeper has failed, and notify of them; the runs are read first."""
        if not self._over:
            task = self._world.spawn(self._look_up(store, runs), "holdfast-hook-look")
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    async def _look_up(self, store: Store, runs: Sequence[UUID]) -> None:
        async for run in run_log.failed_by_keeper(store, runs, self._worker):
            self.tell(
                "run.failed",
                run=run.id,
                type=run.type,
                tenant=run.tenant,
                attempt=run.attempt,
                status=run.status,
                error=run.error,
            )

    def _queue(self, queue: _HookQueue, notice: Notice) -> None:
        if len(queue.notices) >= QUEUE_MAX:
            if not queue.dropped:
                log.warning("hook %s is too slow: notices are dropped until it returns", queue.hook.called)
            queue.dropped += 1
            return
        queue.notices.append(notice)
        if len(queue.tasks) < AT_ONCE:
            task = self._world.spawn(self._serve(queue), "holdfast-hook")
            queue.tasks.add(task)
            task.add_done_callback(queue.tasks.discard)

    async def _serve(self, queue: _HookQueue) -> None:
        while queue.notices:
            notice = queue.notices.popleft()
            if queue.dropped and len(queue.notices) < QUEUE_MAX // 2:
                log.warning("hook %s has returned: %d notices were dropped", queue.hook.called, queue.dropped)
                queue.dropped = 0
            await self._call(queue.hook, notice)

    async def _call(self, hook: Hook, notice: Notice) -> None:
        call = self._world.spawn(self._guarded(hook, notice), f"holdfast-hook-{notice.name}")
        try:
            _, late = await asyncio.wait([call], timeout=CALL_SECONDS)
            if late:
                log.warning(
                    "hook %s has not returned from %s within %g s", hook.called, notice.name, CALL_SECONDS
                )
                if hook.is_async:
                    call.cancel()
                # The call counts until it has really ended: a sync function that hangs holds a thread.
                await asyncio.wait([call])
        finally:
            call.cancel()

    async def _guarded(self, hook: Hook, notice: Notice) -> None:
        # This task has the context of the run that happened to start it.
        SCOPE.set(None)
        PLACE.set(_place(notice))
        leave_span()
        try:
            if hook.is_async:
                await hook.function(notice)
            else:
                answer = await self._world.thread(hook.function, notice, separate=True)
                if inspect.isawaitable(answer):
                    await answer  # a lambda around an async call
        except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException:
            # SystemExit is caught too: it would end the event loop, and with it the worker.
            about = "" if notice.run is None else f" (run {notice.run})"
            log.exception("hook %s failed at %s%s", hook.called, notice.name, about)

    async def end(self) -> None:
        """Send no further notice; running calls get a short time, then they are left."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while tasks := {
                    *self._looking,
                    *(task for one in self._queues.values() for task in one.tasks),
                }:
                    await asyncio.wait(tasks)
        self.leave()

    def leave(self) -> None:
        """Send no further notice, and wait for nothing."""
        self._over = True
        late = [queue for queue in self._queues.values() if queue.tasks]
        if late:
            names = ", ".join(sorted({queue.hook.called for queue in late}))
            log.warning("the worker stops before these hooks have returned: %s", names)
        for task in self._looking:
            task.cancel()
        for queue in late:
            queue.notices.clear()
            for task in queue.tasks:
                task.cancel()


def _place(notice: Notice) -> LogPlace | None:
    """Return the place that the log lines of a hook belong to: the run that it is notified of."""
    if notice.run is None:
        return None
    return LogPlace(notice.run, notice.type, notice.tenant, notice.worker, notice.attempt)
