"""Sending of calls: the deadline, the retries, and lost sessions.

Each call has a deadline. After it the session is given up and not waited for: a broken connection may take
minutes to report. A lost session is replaced once, because it may have been lost long ago, and the call is
sent again. The first call may have been carried out all the same. The verbs make sure that nothing is done
twice; this module makes sure that nobody gets a refusal that the first call has caused. A verb whose second
call may do something else is sent only once: `decide`, because the chain may have gone on to a run with a
gate of the same name. A call that collides with others is retried a few times.
"""

from __future__ import annotations

import asyncio
import random
from contextvars import ContextVar
from typing import Any

from holdfast.errors import HoldfastError, Unavailable
from holdfast.stores.postgres.errors import COLLISIONS, DRIVER, OURS, error_parts, is_session_lost, translated

from .pool import Pool

CALL_SECONDS = 10.0
LONG_SECONDS = {"recount": 1800.0}  # verbs that read all runs
IN_DOUBT = (
    "the connection was lost during a call, which was refused when it was sent again: it may have been "
    "carried out the first time, so look how things stand before you repeat it"
)
IN_DOUBT_AT_ONCE = (
    "the connection was lost during a call, which is not sent again: it may have been carried out, so look "
    "how things stand before you repeat it"
)
NOT_RESENT = frozenset({"decide"})
STANDBY = "25006"  # the server takes no writes: nothing was carried out
TRIES = 6
JITTER_SECONDS = 0.01


# True after a call was sent twice, for a caller that has set it to False before.
SENT_AGAIN = ContextVar("holdfast_sent_again", default=False)


async def send(
    pool: Pool, sql: str, args: tuple[Any, ...], column: int, limit_seconds: float, *, once: bool = False
) -> Any:
    """Return the answer to one statement, which is a transaction by itself. `once`: do not send it again when
    the session was lost.
    """
    now = pool.loop.time
    until = now() + limit_seconds
    tries, replaced = 0, False
    while True:
        session = pool.idle() or await pool.wait(until)
        sent_at = now()
        try:
            answer = await session.fetchval(sql, *args, column=column, timeout=until - sent_at)
        except TimeoutError:
            pool.leave(session)
            pool.drop_idle()
            raise Unavailable(f"{pool.where}: it has not answered within {limit_seconds:g} s") from None
        except DRIVER as error:
            if is_session_lost(error):
                pool.discard(session)
                pool.drop_idle()
                if replaced:
                    raise translated(error, pool.where) from error
                if once and error_parts(error)[0] != STANDBY:
                    raise Unavailable(f"{pool.where}: {IN_DOUBT_AT_ONCE}") from error
                replaced = True
                SENT_AGAIN.set(True)
                continue
            pool.give(session)
            tries += 1
            if tries == TRIES or error_parts(error)[0] not in COLLISIONS:
                raise _refusal(error, pool.where, again=replaced) from error
            await asyncio.sleep(random.uniform(0, JITTER_SECONDS * 2**tries))  # noqa: S311 - no secret
        except BaseException:
            pool.discard(session)
            raise
        else:
            pool.give(session, now() - sent_at)
            return answer


def _refusal(error: BaseException, where: str, *, again: bool) -> HoldfastError:
    if again and error_parts(error)[0].startswith(OURS):
        return Unavailable(f"{where}: {IN_DOUBT}")
    return translated(error, where)
