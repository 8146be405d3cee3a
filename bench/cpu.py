"""Processor time of a server, by its process id; 0 where the system does not tell."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and its children, also of ended ones."""
    own = _times(pid)
    if own is None:
        return 0.0
    children = [int(name) for name in (PROC / f"{pid}/task/{pid}/children").read_text().split()]
    return sum(own) / TICKS + sum(sum((_times(child) or (0, 0))[:2]) for child in children) / TICKS


def _times(pid: int) -> tuple[int, ...] | None:
    """Return utime and stime of a process, and those of its ended children."""
    try:
        stat = (PROC / f"{pid}/stat").read_text()
    except OSError:
        return None
    return tuple(int(word) for word in stat.rpartition(")")[2].split()[11:15])


def rss_kib(pid: int | str = "self") -> int:
    """Return the memory that a process has in use, in KiB."""
    for line in (PROC / f"{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0
