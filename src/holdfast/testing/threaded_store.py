"""A wrapper for a store that may answer from threads: a rehearsal waits for its calls in real time.

A running call belongs to no simulated process: when the caller crashes, the store still finishes the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any

from .faulty import VERBS
from .virtual import VirtualLoop, disowned


class ThreadedStore:
    """Every verb of the store, each in a task during which the clock stands still."""

    def __init__(self, store: Any) -> None:
        self.inner = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return partial(self._call, found) if name in VERBS else found

    async def _call(self, verb: Callable[..., Coroutine[Any, Any, Any]], *args: Any, **options: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        answer = loop.create_task(verb(*args, **options), context=disowned(copy_context()))
        loop.really_wait(answer)
        return await answer
