"""From a signal to an end: the first asks for a graceful stop, the second for one at once.

Nothing of the user's may hold the process once it is told to end: code that does not let go is left
behind, and what could not be given back is taken up elsewhere when its lease has ended.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from holdfast.errors import StoreError, UsageError
from holdfast.escaping import safe_logger
from holdfast.threads import Unjoined, Watchdog, hear, hear_no_more

from .crew import Crew

if TYPE_CHECKING:
    from .worker import Worker

log = safe_logger("holdfast")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
HURRY_SECONDS = 1.5  # what giving back may take after a second signal
END_SECONDS = 1.8  # and the whole process: then it ends, whatever blocks its event loop
SWEEP_SECONDS = 0.5  # what is only left over may take to end


_ENDING: ContextVar[bool] = ContextVar("holdfast_ending", default=False)


@contextmanager
def ending_process() -> Iterator[None]:
    """Run the last work of this process: a second signal ends it in time, also after `app.run()`."""
    token = _ENDING.set(True)
    try:
        yield
    finally:
        _ENDING.reset(token)


class _Told:
    """What signals have asked of some workers so far."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self.first, self.second = asyncio.Event(), asyncio.Event()

    def hear(self) -> None:
        if not self.first.is_set():
            log.info("stopping: no new claims; running steps get their grace period (again: at once)")
            for worker in self._workers:
                worker.drain()
            self.first.set()
        elif not self.second.is_set():
            log.warning("stopping at once")
            for worker in self._workers:
                worker.hurry()
            self.second.set()


class _Listener:
    """The signals of one event loop, for all `app.work()` that run on it at the same time."""

    def __init__(self) -> None:
        self.told: list[_Told] = []
        self._watchdog = Watchdog(SIGNALS, END_SECONDS)

    def begin(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            for number in SIGNALS:
                loop.add_signal_handler(number, self._hear)
        except (ValueError, RuntimeError):
            raise UsageError(
                "app.work() takes the process's signals, which only the main thread can: "
                "elsewhere write `async with app.worker():`"
            ) from None
        self._watchdog.begin()
        hear(SIGNALS)

    def end(self, last: ExitStack | None) -> None:
        if last is None:
            self._leave()
            for number in SIGNALS:
                asyncio.get_running_loop().remove_signal_handler(number)
        # The loop closes next. Until then the process does not die of a signal that came a moment late,
        # and what holds up the loop does not hold up the process.
        elif not _ENDING.get():
            last.callback(self._leave)

    def _leave(self) -> None:
        self._watchdog.end()
        hear_no_more()

    def _hear(self) -> None:
        for told in self.told:
            told.hear()
        if any(told.second.is_set() for told in self.told):
            self._watchdog.arm()


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, _Listener] = WeakKeyDictionary()


@contextmanager
def _hearing(told: _Told, last: ExitStack | None) -> Iterator[None]:
    """Tell it of signals. The first to begin on a loop takes them, the last to end gives them back."""
    loop = asyncio.get_running_loop()
    if (listener := _listeners.get(loop)) is None:
        listener = _Listener()
        listener.begin()
        _listeners[loop] = listener
    listener.told.append(told)
    try:
        yield
    finally:
        listener.told.remove(told)
        if not listener.told:
            del _listeners[loop]
            listener.end(last)


async def work_until_told(workers: Sequence[Worker], *, last: ExitStack | None = None) -> None:
    """Be these until SIGTERM or SIGINT, and let go of their stores.

    last: the loop is closed after this. A second signal ends the process in time until that is closed, too.
    """
    told = _Told(workers)
    with _hearing(told, last):
        if len(workers) == 1:
            await _lived(workers[0], told)
        else:
            await Crew(workers, lambda worker: _lived(worker, told), told.first, told.hear).work()


async def _lived(worker: Worker, told: _Told) -> None:
    beginning = asyncio.ensure_future(worker.__aenter__())
    try:
        await _either(beginning, told.first)
        if beginning.done():
            beginning.result()
            await told.first.wait()
    finally:
        if not beginning.done():
            answers = await _given_up(worker, beginning)
        elif beginning.cancelled() or beginning.exception() is not None:
            answers = True
        else:
            answers = await _stopped(worker, told)
        if answers:  # or closing it would wait for what does not come
            await worker.store.close()


async def _given_up(worker: Worker, beginning: asyncio.Future[Any]) -> bool:
    """It is to stop before it has begun, for the store keeps it waiting: whether that answers after all."""
    beginning.cancel()
    answers = True
    try:  # it may have shown itself already
        await asyncio.wait_for(worker.store.absent(worker.id), SWEEP_SECONDS)
    except TimeoutError:
        answers = False
    except StoreError:
        pass  # it was not even open
    await asyncio.wait([beginning], timeout=SWEEP_SECONDS)
    return answers and beginning.done()


async def _stopped(worker: Worker, told: _Told) -> bool:
    """Whether everything came to its end; not if the store does not answer."""
    stopping = asyncio.ensure_future(worker.stop())
    try:
        await _either(stopping, told.second)
        if not stopping.done():
            await asyncio.wait([stopping], timeout=HURRY_SECONDS)
    finally:
        stopping.cancel()
    if stopping.done():
        return stopping.result()
    log.warning("runs that are not given back yet go on elsewhere when their leases have ended")
    return False


async def _either(work: asyncio.Future[Any], told: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(told.wait())
    try:
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def run(main: Coroutine[Any, Any, None], make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """As asyncio.run, but not held by tasks that do not let go, nor by threads that do not return."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        main.close()
        raise UsageError("app.run() blocks: where an event loop runs already, write `await app.work()`")
    loop = make_loop()
    loop.set_default_executor(Unjoined())
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
            log.warning("left behind, for it does not end when it is cancelled: %s", names)
    with suppress(TimeoutError):
        await asyncio.wait_for(loop.shutdown_asyncgens(), SWEEP_SECONDS)
