"""Stopping by signals: the first SIGTERM or SIGINT asks for a graceful stop, the second stops at once.

User code cannot keep the process alive: code that does not end is left behind, and a run that could not be
given back is claimed elsewhere when its lease has expired.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdfast.errors import StoreError, UsageError
from holdfast.escaping import safe_logger
from holdfast.threads import DaemonExecutor, Watchdog, keep_signals_in_children, reset_signals_in_children

from .worker_group import WorkerGroup

if TYPE_CHECKING:
    from holdfast.contract import Store

    from .worker import Worker

log = safe_logger("holdfast")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
HURRY_SECONDS = 1.5  # time to give runs back after a second signal
END_SECONDS = 1.8  # time until the whole process ends, whatever blocks its event loop
SWEEP_SECONDS = 0.5  # time for leftover tasks to end


# The app whose code runs here, and the store of this worker, if that is not the app's own store.
RUN_STORE: ContextVar[tuple[object, Store] | None] = ContextVar("holdfast_run_store", default=None)
_ENDING: ContextVar[bool] = ContextVar("holdfast_ending", default=False)


@contextmanager
def ending_process() -> Iterator[None]:
    """Mark the last work of this process: a second signal ends it in time, also after `app.run()`."""
    token = _ENDING.set(True)
    try:
        yield
    finally:
        _ENDING.reset(token)


class _StopRequests:
    """The stop requests that signals have made so far."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self.first, self.second = asyncio.Event(), asyncio.Event()

    def note_signal(self) -> None:
        if not self.first.is_set():
            log.info(
                "stopping: no new claims, and running steps have their grace period; "
                "press Ctrl-C again to stop now"
            )
            for worker in self._workers:
                worker.drain()
            self.first.set()
        elif not self.second.is_set():
            log.warning("stopping now")
            for worker in self._workers:
                worker.hurry()
            self.second.set()


class _Listener:
    """The signal listener of one event loop, for all `app.work()` that run on it."""

    def __init__(self) -> None:
        self.requests: list[_StopRequests] = []
        self._watchdog = Watchdog(SIGNALS, END_SECONDS)

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            for number in SIGNALS:
                loop.add_signal_handler(number, self._hear)
        except (ValueError, RuntimeError):
            raise UsageError(
                "app.work() handles signals, which only the main thread of a process can do: "
                "in other threads write `async with app.worker():`"
            ) from None
        self._watchdog.begin()
        reset_signals_in_children(SIGNALS)

    def end(self, last: ExitStack | None) -> None:
        if last is None:
            self._leave()
            for number in SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(number)
        # The loop closes next. Until then a late signal does not kill the process,
        # and a blocked loop does not keep the process alive.
        elif not _ENDING.get():
            last.callback(self._leave)

    def _leave(self) -> None:
        self._watchdog.end()
        keep_signals_in_children()

    def _hear(self) -> None:
        for requests in self.requests:
            requests.note_signal()
        if any(requests.second.is_set() for requests in self.requests):
            self._watchdog.arm()


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, _Listener] = WeakKeyDictionary()


@contextmanager
def _listening(requests: _StopRequests, last: ExitStack | None) -> Iterator[None]:
    """Listen to signals. The first user of a loop installs the handlers, the last one restores them."""
    loop = asyncio.get_running_loop()
    if (listener := _listeners.get(loop)) is None:
        listener = _Listener()
        listener.begin()
        _listeners[loop] = listener
    listener.requests.append(requests)
    try:
        yield
    finally:
        listener.requests.remove(requests)
        if not listener.requests:
            del _listeners[loop]
            listener.end(last)


async def work_until_stopped(workers: Sequence[Worker], *, last: ExitStack | None = None) -> None:
    """Run these workers until SIGTERM or SIGINT, then close their stores.

    last: the loop is closed after this. A second signal ends the process in time until then, too.
    """
    requests = _StopRequests(workers)
    with _listening(requests, last):
        if len(workers) == 1:
            await _run_worker(requests, workers[0])
        else:
            await WorkerGroup(
                workers, partial(_run_worker, requests), requests.first, requests.note_signal
            ).work()


async def _run_worker(
    requests: _StopRequests, worker: Worker, reached: Callable[[], None] = lambda: None
) -> None:
    token = RUN_STORE.set(worker.run_store)
    beginning = asyncio.ensure_future(worker.__aenter__())  # all tasks and threads of it inherit the variable
    RUN_STORE.reset(token)
    try:
        await _either(beginning, requests.first)
        if beginning.done():
            beginning.result()
            reached()
            refused = asyncio.ensure_future(worker.refusal.event.wait())
            await _either(refused, requests.first)
            refused.cancel()
    finally:
        if not beginning.done():
            answers = await _given_up(worker, beginning)
        elif beginning.cancelled() or beginning.exception() is not None:
            answers = True
        else:
            answers = await _stopped(worker, requests)
        if answers:  # otherwise closing would wait for an answer that does not come
            await worker.store.close()
    if worker.refusal.error is not None:
        raise worker.refusal.error


async def _given_up(worker: Worker, beginning: asyncio.Future[Any]) -> bool:
    """Stop a worker that has not begun because its store does not answer. Return True when it answers now."""
    beginning.cancel()
    answers = True
    try:  # its presence row may be there already
        await asyncio.wait_for(worker.store.absent(worker.id), SWEEP_SECONDS)
    except TimeoutError:
        answers = False
    except StoreError:
        pass  # it was not even open
    await asyncio.wait([beginning], timeout=SWEEP_SECONDS)
    return answers and beginning.done()


async def _stopped(worker: Worker, requests: _StopRequests) -> bool:
    """Stop a worker. Return True when everything has ended; False when the store does not answer."""
    stopping = asyncio.ensure_future(worker.stop())
    try:
        await _either(stopping, requests.second)
        if not stopping.done():
            await asyncio.wait([stopping], timeout=HURRY_SECONDS)
    finally:
        stopping.cancel()
    if stopping.done():
        return stopping.result()
    log.warning("other workers continue the runs that are not released yet when their leases expire")
    return False


async def _either(work: asyncio.Future[Any], event: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def run(main: Coroutine[Any, Any, None], make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Run a coroutine as asyncio.run does, but never wait for tasks or threads that do not end."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        main.close()
        raise UsageError(
            "app.run() starts an event loop, but one is running already: write `await app.work()`"
        )
    loop = make_loop()
    loop.set_default_executor(DaemonExecutor())
    try:
        loop.run_until_complete(main)
    finally:
        try:
            loop.run_until_complete(_sweep(loop))
        finally:
            loop.close()


async def _sweep(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, held = await asyncio.wait(left, timeout=SWEEP_SECONDS)
        if held:
            names = ", ".join(sorted({task.get_name() for task in held}))
            log.warning("these tasks do not end when they are cancelled, and are abandoned: %s", names)
    with suppress(TimeoutError):
        await asyncio.wait_for(loop.shutdown_asyncgens(), SWEEP_SECONDS)
