"""A wrapper for a store that may answer from threads or from a server: a rehearsal waits in real time.

A running call belongs to no simulated process: when the caller crashes, the store still finishes the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from .faulty import VERBS, OnAnswer
from .real_timers import in_real_time
from .virtual import VirtualLoop, disowned

# Verbs after which there may be work, and verbs that may move a leased run.
NEWS = frozenset({
    "start", "commit", "transact", "tick", "emit", "deliver", "decide", "cancel", "resume", "rewind",
    "retry_run", "set_priority", "append_step", "restore", "register", "unregister", "limit", "unlimit",
    "resume_key", "schedule", "resume_schedule", "fire_schedule", "relayed", "resend",
})  # fmt: skip
CALLS = frozenset({"cancel", "pause", "resume", "rewind", "delete", "tick", "commit"})

Callback = Callable[[], None]


class ThreadedStore:
    """Every verb of the store, each in a task during which the clock stands still.

    Listeners are called by this wrapper, after each verb that may bring news. A server would send its hints
    at some moment of real time, which no rehearsal waits for. Answers are noted when the store gives them:
    the caller may be frozen, and go on when another process has made later calls.
    """

    notes_answers = True

    def __init__(self, store: Any) -> None:
        self.inner = store
        self._listeners: dict[object, tuple[Callback, Callback | None, Context]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return partial(self._call, name, found) if name in VERBS else found

    async def _call(
        self,
        name: str,
        verb: Callable[..., Coroutine[Any, Any, Any]],
        *args: Any,
        on_answer: OnAnswer | None = None,
        **options: Any,
    ) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        context = disowned(copy_context())
        in_real_time(context)  # the store may pause, before it asks a server again
        answer = loop.create_task(verb(*args, **options), context=context)
        loop.really_wait(answer)
        answer.add_done_callback(partial(self._answered, name, on_answer), context=Context())
        return await answer

    def listen(
        self, hint: Callback, holders: Callback | None = None, changed: Callback | None = None
    ) -> Callback:
        """Call `hint` after verbs that may bring news, and `holders` after those that may move a leased run.
        Return a function that ends it."""
        token = object()
        self._listeners[token] = hint, holders, copy_context()

        def end() -> None:
            self._listeners.pop(token, None)

        return end

    def hears(self) -> bool:
        return True

    def _answered(self, verb: str, on_answer: OnAnswer | None, answer: asyncio.Future[Any]) -> None:
        if on_answer is not None and not answer.cancelled() and answer.exception() is None:
            on_answer(answer.result())
        loop = asyncio.get_running_loop()
        for hint, holders, context in tuple(self._listeners.values()):
            if verb in NEWS:
                loop.call_soon(hint, context=context)
            if verb in CALLS and holders is not None:
                loop.call_soon(holders, context=context)
