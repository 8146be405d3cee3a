"""How a call gets its answer.

It has a deadline of its own. When that has passed, the session is left to itself and never waited for: a
link whose other side is gone may take minutes to say so. A session that turns out to be lost is replaced
once, for it may have been lost for long; sending a call again is safe. What stands in the way of others
is sent again, a few times.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from holdfast.errors import Unavailable

from .errors import DRIVER, IN_THE_WAY, NOTIFY_FULL, lost, told, translated
from .pools import Pool

CALL_SECONDS = 10.0
TRIES = 6
JITTER_SECONDS = 0.01
QUIET = "set_config('holdfast.quiet', '1', true)"  # no hint, this time


async def called(pool: Pool, sql: str, args: tuple[Any, ...], column: int, limit_seconds: float) -> Any:
    """The answer to one statement, which is a transaction by itself."""
    now = pool.loop.time
    until = now() + limit_seconds
    tries, replaced = 0, False
    while True:
        link = pool.idle() or await pool.wait(until)
        sent_at = now()
        try:
            answer = await link.fetchval(sql, *args, column=column, timeout=until - sent_at)
        except TimeoutError:
            pool.leave(link)
            pool.drop_idle()
            raise Unavailable(f"{pool.where}: it has not answered within {limit_seconds:g} s") from None
        except DRIVER as error:
            if lost(error):
                pool.discard(link)
                pool.drop_idle()
                if replaced:
                    raise translated(error, pool.where) from error
                replaced = True
                continue
            pool.give(link)
            tries += 1
            code, message, _ = told(error)
            if message.startswith(NOTIFY_FULL) and QUIET not in sql:
                # Somebody listens and does not read. Hints are never needed, and must not stop anything.
                sql, column = sql.replace("select ", f"select {QUIET}, ", 1), column + 1
                continue
            if tries == TRIES or code not in IN_THE_WAY:
                raise translated(error, pool.where) from error
            await asyncio.sleep(random.uniform(0, JITTER_SECONDS * 2**tries))  # noqa: S311 - no secret
        except BaseException:
            pool.discard(link)
            raise
        else:
            pool.give(link, now() - sent_at)
            return answer
