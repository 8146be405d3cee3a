"""Postgres in virtual time: a play stands still while the server answers, so each play runs the same way.

Sessions are kept between plays, because a new session would plan all functions anew. Between two plays the
tables are emptied.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

import psycopg

from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.sessions.listener import Listeners, brings_news
from verify.environment.stores import database, server

ANSWER_SECONDS = 60.0
# The function clock() returns the virtual time of the play. Small tables are emptied a hundred times faster
# by delete than by truncate.
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
    perform set_config('holdfast.now', '0', true);  -- removed runs are counted, by the clock
    for name in
        select tablename from pg_tables where schemaname = 'workflow' and tablename <> 'workflow_schema'
        -- The trail before its runs, and last what their removal adds.
        order by tablename = 'workflow_count_change', tablename
    loop
        execute format('delete from workflow.%I', name);
    end loop;
    perform setval(format('workflow.%I', sequencename), 1, false)
    from pg_sequences where schemaname = 'workflow';
end $$;
"""


class Sessions:
    """A database for plays, and an event loop in a thread for its sessions."""

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
        """Wait for an answer of the server: nothing else runs meanwhile, and no virtual time passes."""
        # In an empty context: the caller may have crashed before the answer is there.
        return Context().run(asyncio.run_coroutine_threadsafe, work, self.loop).result(ANSWER_SECONDS)

    def close(self) -> None:
        self.ask(self.store.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.admin.close()
        self._database.__exit__(None, None, None)


class VirtualPostgresStore(PostgresStore):
    """A store for one play. `on_trip` is called after each answer of the server: a verb may make several
    queries.
    """

    def __init__(self, sessions: Sessions, clock: Callable[[], int]) -> None:
        super().__init__(sessions.url, clock)
        self.on_trip: Callable[[str], None] | None = None
        self._sessions = sessions
        self._pools, self._renewer = sessions.store._pools, sessions.store._renewer  # noqa: SLF001
        # Without LISTEN: a session that listens would wait in real time.
        self._listeners = Listeners(self.address._replace(listen=False))

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """Do nothing: the sessions are kept for the next play."""

    async def _call(self, verb: str, *args: Any) -> Any:
        await asyncio.sleep(0)  # other tasks get a turn, as with any server
        answer = self._sessions.ask(super()._call(verb, *args))
        if brings_news(verb, args):
            self._listeners.notify()
        if self.on_trip is not None:
            self.on_trip(verb)
            await asyncio.sleep(0)  # does not return in a crashed process
        return answer


class VirtualPostgres:
    """The maker of stores for plays, one at a time. `prepare` is called with the database before the
    first.
    """

    def __init__(self, prepare: Callable[[Any], None] | None = None) -> None:
        self._sessions = Sessions()
        if prepare is not None:
            prepare(self._sessions.admin)

    def __call__(self, clock: Callable[[], int]) -> VirtualPostgresStore:
        clock()  # binds the clock to the event loop of the play, not to the loop of the sessions
        self._sessions.admin.execute("select workflow.wipe()")
        return VirtualPostgresStore(self._sessions, clock)

    def close(self) -> None:
        self._sessions.close()
