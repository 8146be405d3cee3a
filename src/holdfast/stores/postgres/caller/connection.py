"""Verbs in the caller's own transaction: on the caller's connection, thread or event loop, committed by the
caller.

Each call is one statement with one text in and one text out. A refusal is an answer of that statement, so
that the caller's transaction can go on. The connection is never closed, committed or rolled back here. A
driver that the caller has not imported is not imported here either.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import asyncpg
import msgspec

from holdfast.errors import HoldfastError, SchemaMismatch, StoreError, Unavailable, UsageError
from holdfast.stores.blocking_calls import outside_loop
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.errors import DRIVER, error_parts, translated
from holdfast.stores.postgres.sessions.session import connected
from holdfast.stores.postgres.verbs.calls import Calls, json_text

_FAILED = "25P02"
_OVERTAKEN = frozenset({"40001", "40P01"})
_NO_STORE = frozenset({"3F000", "42883", "42P01"})
_KNOWN = (
    "give one of asyncpg or psycopg, or a Connection or Session of SQLAlchemy (sync or async) on Postgres"
)
NOT_BEGUN = "the connection has no transaction open: "


class ServerError(Exception):
    """An error of the server, without its driver."""

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.sqlstate, self.detail = code, detail


# -- kinds of connections --------------------------------------------------------------------


class CallerConnection:
    """A connection of the caller."""

    blocking = True
    placeholder = "%s"  # the placeholder of a value in a statement
    seconds: float | None = None  # the time limit of the next answer, if the driver's is shorter

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def ask(self, sql: str, call: str) -> Any:
        """Return the answer, or an awaitable of it. Refuses a connection that is not in a transaction."""
        raise NotImplementedError

    def is_lost(self) -> bool:
        """Return True when the connection is lost, as far as its driver knows."""
        return False


class _Psycopg(CallerConnection):
    def is_lost(self) -> bool:
        return bool(self.connection.broken)

    def ask(self, sql: str, call: str) -> Any:
        _check_psycopg(self.connection)
        psycopg = sys.modules["psycopg"]
        # Not connection.cursor(): the caller may have set another shape of rows.
        cursor = psycopg.Cursor(self.connection, row_factory=psycopg.rows.tuple_row)
        return cursor.execute(sql, (call,)).fetchone()[-1]


class _AsyncPsycopg(_Psycopg):
    blocking = False

    async def ask(self, sql: str, call: str) -> Any:
        _check_psycopg(self.connection)
        psycopg = sys.modules["psycopg"]
        cursor = psycopg.AsyncCursor(self.connection, row_factory=psycopg.rows.tuple_row)
        await cursor.execute(sql, (call,))
        return (await cursor.fetchone())[-1]


def _check_psycopg(connection: Any) -> None:
    status = connection.info.transaction_status.name
    if connection.closed:
        raise UsageError("the connection is closed: give an open one")
    if status == "INERROR":
        raise ServerError(_FAILED, "current transaction is aborted")
    if status == "IDLE" and connection.autocommit:
        raise UsageError(f"{NOT_BEGUN}it is in autocommit, use `with connection.transaction():`")


class _Asyncpg(CallerConnection):
    blocking = False
    placeholder = "$1"

    def is_lost(self) -> bool:
        try:
            return bool(self.connection.is_closed())
        except asyncpg.InterfaceError:  # a pool has taken it back
            return True

    async def ask(self, sql: str, call: str) -> Any:
        if self.connection.is_closed():
            raise UsageError("the connection is closed: give an open one")
        if not self.connection.is_in_transaction():
            raise UsageError(f"{NOT_BEGUN}use `async with connection.transaction():`")
        return (await self.connection.fetchrow(sql, call, timeout=self.seconds))[-1]


class _Sqlalchemy(CallerConnection):
    placeholder = ":call"

    def is_lost(self) -> bool:
        return bool(getattr(self.connection, "invalidated", False))

    def ask(self, sql: str, call: str) -> Any:
        return _through_sqlalchemy(self.connection, sql, call)


class _AsyncSqlalchemy(_Sqlalchemy):
    blocking = False

    def ask(self, sql: str, call: str) -> Any:
        return self.connection.run_sync(_through_sqlalchemy, sql, call)


def _through_sqlalchemy(target: Any, sql: str, call: str) -> Any:
    connection = target if _is(target, "sqlalchemy.engine", "Connection") else target.connection()
    if connection.dialect.name != "postgresql":
        raise UsageError(f"the connection is on {connection.dialect.name}, and the store on Postgres")
    if getattr(connection.connection.dbapi_connection, "autocommit", False):
        raise UsageError(f"{NOT_BEGUN}it is in AUTOCOMMIT, give one of another isolation level")
    return connection.execute(sys.modules["sqlalchemy"].text(sql), {"call": call}).fetchone()[-1]


_KINDS: tuple[tuple[str, str, type[CallerConnection]], ...] = (
    ("asyncpg", "Connection", _Asyncpg),
    ("asyncpg.pool", "PoolConnectionProxy", _Asyncpg),
    ("psycopg", "Connection", _Psycopg),
    ("psycopg", "AsyncConnection", _AsyncPsycopg),
    ("sqlalchemy.engine", "Connection", _Sqlalchemy),
    ("sqlalchemy.orm", "Session", _Sqlalchemy),
    ("sqlalchemy.orm", "scoped_session", _Sqlalchemy),
    ("sqlalchemy.ext.asyncio", "AsyncConnection", _AsyncSqlalchemy),
    ("sqlalchemy.ext.asyncio", "AsyncSession", _AsyncSqlalchemy),
    ("sqlalchemy.ext.asyncio", "async_scoped_session", _AsyncSqlalchemy),
)


def caller_connection(connection: Any) -> CallerConnection:
    """Return the connection with its driver's calls. A connection of a driver that is not imported cannot be
    given.
    """
    for module, name, kind in _KINDS:
        if _is(connection, module, name):
            return kind(connection)
    shown = f"<{type(connection).__module__}.{type(connection).__qualname__}>"
    raise UsageError(f"connection={shown}: {_KNOWN}")


def _is(value: Any, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


# -- errors ----------------------------------------------------------------------------------


def caller_error(error: Exception, address: Address) -> HoldfastError:
    """Return the library's error for an error of the caller's driver, or of a layer above the driver."""
    if isinstance(error, HoldfastError):
        return error
    cause = coded(error)
    if cause is None:
        return _unclear(error, address)
    code, message, _ = error_parts(cause)
    if code == _FAILED:
        return UsageError("the connection's transaction has failed before this call: roll it back first")
    if code in _OVERTAKEN:
        return Unavailable(
            f"{address.shown}: your transaction was overtaken by another one ({message}): roll it back and "
            "run it again from its beginning"
        )
    if code in _NO_STORE:
        return UsageError(
            f"the connection is on a database without this store (schema {address.schema}: {message}), and "
            f"the store is on {address.shown}"
        )
    return translated(cause, address.shown)


def coded(error: BaseException | None) -> BaseException | None:
    """Return the error in the chain of causes that has the server's code."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = getattr(error, "orig", None) or error.__cause__
    # The driver's own error is the last one, and has the most details.
    return next((one for one in reversed(seen) if getattr(one, "sqlstate", None)), None)


def _unclear(error: Exception, address: Address) -> HoldfastError:
    message = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, OSError) or type(error).__name__ == "OperationalError":
        return Unavailable(f"{address.shown}: the connection was lost ({message})")
    return UsageError(f"the connection cannot be used here: {message}")


class _Answer(msgspec.Struct):
    """The outcome of a call: its answer, the name of the wrong database, or the server's error."""

    answer: str | None = None
    wrong_database: str | None = None
    code: str = ""
    message: str = ""
    detail: str | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


# -- calls -----------------------------------------------------------------------------------


class CallerCalls(Calls):
    """Calls in the caller's transaction. The store need not be open: the identity of its database is asked
    for once.
    """

    address: Address
    _clock: Callable[[], int] | None
    _database_id: str | None = None

    async def _within(self, connection: Any, verb: str, **fields: Any) -> str:
        """Return the answer of a verb inside the caller's transaction. On a blocking connection nothing is
        awaited.
        """
        caller = caller_connection(connection)
        if not caller.blocking:
            await asyncio.sleep(0)  # sync code that drives this coroutine fails here, before anything is sent
        old, database_id = None, await self._known_database_id(caller)
        while True:
            call = json_text({"verb": verb, "database_id": database_id, **fields})
            found = _ANSWER.decode(await self._asked(caller, "within", call))
            if found.wrong_database is None:
                break
            if old == database_id:
                raise wrong_database(found.wrong_database, self.address)
            old, self._database_id = database_id, None  # the id changes when the server restarts
            database_id = await self._known_database_id(caller)
        if found.code:
            raise caller_error(ServerError(found.code, found.message, found.detail or ""), self.address)
        assert found.answer is not None
        return found.answer

    async def _asked(self, caller: CallerConnection, function: str, call: str) -> str:
        sql = self._caller_sql(caller, function)
        try:
            return text(caller.ask(sql, call) if caller.blocking else await caller.ask(sql, call))
        except Exception as error:
            raise caller_error(error, self.address) from error

    def _caller_sql(self, caller: CallerConnection, function: str) -> str:
        """Return the statement. Text goes in and out: the caller's connection may have its own codecs for
        JSON.
        """
        now = "" if self._clock is None else f"set_config('holdfast.now', '{self._clock()}', true), "
        return (
            f'select {now}cast("{self.address.schema}".{function}'
            f"(cast(cast({caller.placeholder} as text) as json)) as text)"
        )

    async def _known_database_id(self, caller: CallerConnection) -> str:
        if self._database_id is None:
            ask = lambda: asyncio.run(database_id_of(self.address))  # noqa: E731 - for one of two ways
            self._database_id = outside_loop(ask) if caller.blocking else await database_id_of(self.address)
        return self._database_id


async def database_id_of(address: Address) -> str:
    """Return the identity of the store's database, asked on a session that is closed at once."""
    try:
        session = await connected(address)
        try:
            return str(await session.fetchval(f'select "{address.schema}".database_id()'))
        finally:
            await session.leave()
    except DRIVER as error:
        if error_parts(error)[0] in _NO_STORE:
            raise SchemaMismatch(
                f"{address.shown}: there is no store in schema {address.schema}, or an older one: run "
                "`holdfast migrate` once"
            ) from error
        raise translated(error, address.shown) from error


def wrong_database(database: str, address: Address) -> StoreError | UsageError:
    """Return the refusal of a connection to another database; nothing was written."""
    return UsageError(
        f"the connection is on database {database!r} of another server, or on another database than the "
        f"store, which is on {address.shown}"
    )


def text(answer: Any) -> str:
    """Return the answer as text; the database may leave the encoding to its clients."""
    return answer.decode() if isinstance(answer, bytes) else str(answer)
