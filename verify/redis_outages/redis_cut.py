"""redis-cut: a script is carried out and its answer is lost: the connection is closed, or stays silent for
ever.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import hiredis

from holdfast.stores.redis.scripts import script
from verify.checks.report import Report
from verify.outages.lost_answers import SHARE, Cutter, Link, lost_answers, proxy_at

WRITES = frozenset({"start", "hold", "save"})
CLAIM = "claim"
_MORE = object()


class RedisSession:
    """A reader of the protocol: commands are lists of words, and each has one answer.

    Several calls share a connection. One with a claim under way is left alone: the runs of a claim whose
    answer is lost wait until their lease is over, or the worker has found out.
    """

    is_shared = True

    def __init__(self) -> None:
        self._commands, self._answers = (hiredis.Reader(notEnoughData=_MORE) for _ in range(2))
        self._asked = self._answered = 0  # commands
        self._called = self._claimed = 0  # numbers of the last write, and of the last claim
        self._verbs = {
            script(name, flagged=flagged).sha.encode(): name
            for name in (*WRITES, CLAIM) for flagged in (True, False)
        }  # fmt: skip

    def client_says(self, data: bytes) -> str:
        """Return the script that the client calls now, if any."""
        verb = ""
        for command in _parts(self._commands, data):
            self._asked += 1
            found = self._verbs.get(command[1], "") if command[0] == b"EVALSHA" else ""
            if found == CLAIM:
                self._claimed = self._asked
            elif found:
                verb, self._called = found, self._asked
        return verb if self._claimed <= self._answered else ""

    def server_says(self, data: bytes) -> bool:
        """Return True when the last script has its answer."""
        self._answered += sum(1 for _ in _parts(self._answers, data))
        return self._answered >= self._called


def _parts(reader: Any, data: bytes) -> Any:
    reader.feed(data)
    while (part := reader.gets()) is not _MORE:
        yield part


async def redis_cut(cuts: int = 100, sabotage: str | None = None, seed: int = 0) -> Report:
    """Lose answers to scripts of client and workers that were carried out."""
    cutter = Cutter(cuts, SHARE, random.Random(seed), verbs=WRITES)
    async with _behind(cutter) as url:
        return await lost_answers(Report("redis-cut"), url, cutter, cuts, sabotage)


@asynccontextmanager
async def _behind(cutter: Cutter) -> AsyncIterator[str]:
    from servers.redis import running_redis

    with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as folder:
        private = running_redis()
        server = await asyncio.to_thread(private.__enter__)
        try:

            async def connected() -> Link:
                return await asyncio.open_unix_connection(server.socket)

            path = Path(folder) / "front.sock"
            async with proxy_at(path, connected, RedisSession, cutter):
                yield f"unix://{path}?prefix=cut&durability=fsync"
        finally:
            await asyncio.to_thread(private.__exit__, None, None, None)
