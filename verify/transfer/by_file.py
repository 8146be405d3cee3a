"""A move by a file whose four steps are killed with SIGKILL, and repeated until they end."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

KILLS = 2  # of each step
SECONDS = 600.0


def move_by_file(source: str, target: str, path: Path, dice: random.Random) -> dict[str, Any]:
    """Move all runs by a file. Return how many commands were killed, and the words of the last one."""
    steps = (
        (["export", str(path), "--move"], source),
        (["import", str(path)], target),
        (["export", str(path), "--confirm"], source),
        (["import", str(path), "--release"], target),
    )
    kills = 0
    said = ""
    for words, store in steps:
        for _ in range(KILLS):
            kills += _killed([*_begun(words, path), "--store", store], dice)
        # An export that was killed after its last line is complete, and says so.
        said = _done([*_begun(words, path), "--store", store], ok="is complete")
    return {"kills": kills, "said": said.splitlines()[0] if said else ""}


def _begun(words: list[str], path: Path) -> list[str]:
    """Return the words of a command, with --resume for an export that was begun."""
    return [*words, "--resume"] if "--move" in words and path.exists() else words


def _command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli", *words]


def _killed(words: list[str], dice: random.Random) -> int:
    """Start a command, and kill it a random time later. Return 1 if it was still at work."""
    process = subprocess.Popen(_command(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(dice.uniform(0.2, 1.0))
    at_work = process.poll() is None
    process.kill()
    process.wait()
    return int(at_work)


def _done(words: list[str], ok: str) -> str:
    done = subprocess.run(_command(words), capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode and ok not in done.stderr:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    return done.stdout
