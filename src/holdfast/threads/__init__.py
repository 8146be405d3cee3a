"""Threads for plain code: pools that hold up no exit, talks between a thread and a loop, a loop for callers
that have none.

A plain function cannot be stopped. Who no longer waits for one leaves it; it is counted as a straggler
until it returns, and whatever it still asks for is refused. Nothing here crosses a fork: a child begins anew.
"""

from __future__ import annotations

from .background import Background
from .children import hear, hear_no_more
from .executor import Unjoined
from .pool import Ended, Errand, Pool, Stragglers
from .talk import Talk, TurnTalk
from .tally import Tally
from .watchdog import Watchdog

__all__ = [
    "Background",
    "Ended",
    "Errand",
    "Pool",
    "Stragglers",
    "Talk",
    "Tally",
    "TurnTalk",
    "Unjoined",
    "Watchdog",
    "hear",
    "hear_no_more",
]
