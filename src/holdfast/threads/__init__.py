"""Threads for sync code: pools of daemon threads, the exchange between a thread and the event loop, and a
background loop for sync callers.

A sync function cannot be stopped. A caller that no longer waits for it leaves it behind: the function is
counted as a straggler until it returns, and its further calls are refused. Nothing here crosses a fork: a
child process starts its own threads.
"""

from __future__ import annotations

from .background_loop import BackgroundLoop
from .exchange import Exchange, LockstepExchange
from .executor import DaemonExecutor
from .exit_at_signal import ExitAtSignal
from .forked_signals import keep_signals_in_children, reset_signals_in_children
from .pool import CallResult, Pool, Stragglers, ThreadCall
from .shared_counter import SharedCounter
from .watchdog import Watchdog

__all__ = [
    "BackgroundLoop",
    "CallResult",
    "ThreadCall",
    "Pool",
    "Stragglers",
    "Exchange",
    "SharedCounter",
    "LockstepExchange",
    "DaemonExecutor",
    "ExitAtSignal",
    "Watchdog",
    "reset_signals_in_children",
    "keep_signals_in_children",
]
