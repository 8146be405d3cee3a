"""For tests: a world whose time is virtual, so that a month of sleep takes no time at all."""

from .contract import contract
from .virtual import Deadlock, VirtualLoop, VirtualWorld, play

__all__ = ["Deadlock", "VirtualLoop", "VirtualWorld", "contract", "play"]
