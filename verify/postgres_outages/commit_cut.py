"""commit-cut: the server commits and its answer is lost: the connection is closed, or stays silent for
ever.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from verify.checks.report import Report
from verify.environment.stores import database, server
from verify.outages.lost_answers import SHARE, Cutter, lost_answers

from .proxy import WRITES, proxy


async def commit_cut(cuts: int = 100, sabotage: str | None = None, seed: int = 0) -> Report:
    """Lose answers to committed writes of client and workers."""
    # The store itself asks again after a closed connection; only silent connections are errors for its
    # caller.
    closes = (False, True) if sabotage is None else (False,)
    cutter = Cutter(cuts, SHARE, random.Random(seed), closes, WRITES)
    async with _behind(cutter) as url:
        return await lost_answers(Report("commit-cut"), url, cutter, cuts, sabotage)


@asynccontextmanager
async def _behind(cutter: Cutter) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as folder, database() as name:
        async with proxy(server().dsn(name), Path(folder), cutter) as dsn:
            yield dsn + "&allow_fsync_off=1"
