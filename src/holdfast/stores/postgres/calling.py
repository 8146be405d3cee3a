"""How a call gets its answer.

It has a deadline of its own. When that has passed, the session is left to itself and never waited for: a
link whose other side is gone may take minutes to say so. A session that turns out to be lost is replaced
once, for it may have been lost for long, and the call is sent again. The first time may have been carried
out all the same: that nothing is done twice is up to the verb, and that nobody is told of a refusal which he
has brought about himself is seen to here. A verb that may do another thing the second time is sent once: a
decision, for by then the chain may have gone on to a run with a gate of the same name. What stands in the
way of others is sent again, a few times.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar
from typing import Any

from holdfast.errors import HoldfastError, Unavailable

from .errors import DRIVER, IN_THE_WAY, OURS, lost, told, translated
from .pools import Pool

CALL_SECONDS = 10.0
IN_DOUBT = (
    "the connection was lost during a call, which was refused when it was sent again: it may have been "
    "carried out the first time, so look how things stand before you repeat it"
)
IN_DOUBT_AT_ONCE = (
    "the connection was lost during a call, which is not sent again: it may have been carried out, so look "
    "how things stand before you repeat it"
)
ONCE = frozenset({"decide"})
STANDBY = "25006"  # the server takes no writes: nothing was carried out
TRIES = 6
JITTER_SECONDS = 0.01


# Whether a call was sent twice, for who has set it to False before.
SENT_AGAIN = ContextVar("holdfast_sent_again", default=False)


async def called(
    pool: Pool, sql: str, args: tuple[Any, ...], column: int, limit_seconds: float, *, once: bool = False
) -> Any:
    """The answer to one statement, which is a transaction by itself. `once`: a lost one is not sent again."""
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
                if once and told(error)[0] != STANDBY:
                    raise Unavailable(f"{pool.where}: {IN_DOUBT_AT_ONCE}") from error
                replaced = True
                SENT_AGAIN.set(True)
                continue
            pool.give(link)
            tries += 1
            if tries == TRIES or told(error)[0] not in IN_THE_WAY:
                raise _refusal(error, pool.where, again=replaced) from error
            await asyncio.sleep(random.uniform(0, JITTER_SECONDS * 2**tries))  # noqa: S311 - no secret
        except BaseException:
            pool.discard(link)
            raise
        else:
            pool.give(link, now() - sent_at)
            return answer


def _refusal(error: BaseException, where: str, *, again: bool) -> HoldfastError:
    if again and told(error)[0].startswith(OURS):
        return Unavailable(f"{where}: {IN_DOUBT}")
    return translated(error, where)
