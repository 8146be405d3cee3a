"""Postgres in virtual time: a play stands still while the server answers, so it goes the same way each time.

Sessions outlive the plays, for each would plan all functions anew; between two plays the tables are emptied.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

import psycopg

from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.listening import Ears, brings_news

from .places import database, server

ANSWER_SECONDS = 60.0
# The clock is the server's; here it is what a play says. Tables so small are emptied faster by delete than by
# truncate, a hundred times.
TURNED = """
set search_path = workflow;
create or replace function clock() returns timestamptz language sql stable as $$
    select workflow.moment(current_setting('holdfast.now')::bigint)
$$;
grant execute on function moment(bigint) to public;
create function wipe() returns void language plpgsql as $$
declare
    name text;
begin
    for name in
        select tablename from pg_tables where schemaname = 'workflow' and tablename <> 'workflow_schema'
        order by tablename  -- the trail before its runs
    loop
        execute format('delete from workflow.%I', name);
    end loop;
    perform setval(format('workflow.%I', sequencename), 1, false)
    from pg_sequences where schemaname = 'workflow';
end $$;
"""


class Sessions:
    """A database for plays, and an event loop of its own for the sessions with it."""

    def __init__(self) -> None:
        self._database = database()
        name = self._database.__enter__()
        self.url = server().url(name)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True, name="verify-sessions")
        self._thread.start()
        self.store = PostgresStore(self.url)
        self.ask(self.store.open())
        self.admin = psycopg.connect(server().dsn(name), autocommit=True)
        self.admin.execute(TURNED)

    def ask(self, work: Any) -> Any:
        """Wait for it here: nothing else goes on meanwhile, and no time passes."""
        # In nobody's context: whoever asks may be dead before the answer is there.
        return Context().run(asyncio.run_coroutine_threadsafe, work, self.loop).result(ANSWER_SECONDS)

    def close(self) -> None:
        self.ask(self.store.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.admin.close()
        self._database.__exit__(None, None, None)


class Rehearsed(PostgresStore):
    """A store for one play. `on_trip` is told of each answer of the server: a verb may ask several times."""

    def __init__(self, sessions: Sessions, clock: Callable[[], int]) -> None:
        super().__init__(sessions.url, clock)
        self.on_trip: Callable[[str], None] | None = None
        self._sessions = sessions
        self._pools, self._renewer = sessions.store._pools, sessions.store._renewer  # noqa: SLF001
        self._ears = Ears(self.address._replace(listen=False))  # a session of LISTEN would wait in real time

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """The sessions stay."""

    async def _call(self, verb: str, *args: Any) -> Any:
        await asyncio.sleep(0)  # others have a turn, as with any server
        answer = self._sessions.ask(super()._call(verb, *args))
        if brings_news(verb, args):
            self._ears.ring()
        if self.on_trip is not None:
            self.on_trip(verb)
            await asyncio.sleep(0)  # from which the dead do not return
        return answer


class Rehearsals:
    """Makes stores for plays, one at a time. `prepare`: what to do with the database before the first."""

    def __init__(self, prepare: Callable[[Any], None] | None = None) -> None:
        self._sessions = Sessions()
        if prepare is not None:
            prepare(self._sessions.admin)

    def __call__(self, clock: Callable[[], int]) -> Rehearsed:
        clock()  # it counts on the event loop of the play, and not on that of the sessions
        self._sessions.admin.execute("select workflow.wipe()")
        return Rehearsed(self._sessions, clock)

    def close(self) -> None:
        self._sessions.close()
