"""A verb in the caller's own transaction: his connection, on his thread or event loop, with his commit.

One statement, one text in, one text out. What the store refuses is an answer of that statement, so that his
transaction stands as it stood. The connection is never closed, committed or rolled back here. Drivers that
nobody has imported are not imported either.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import asyncpg
import msgspec

from holdfast.errors import HoldfastError, SchemaMismatch, StoreError, Unavailable, UsageError

from .address import Address
from .calls import Calls, json_text
from .errors import DRIVER, told, translated
from .links import connected
from .renewing import off_the_loop

_FAILED = "25P02"
_OVERTAKEN = frozenset({"40001", "40P01"})
_NO_STORE = frozenset({"3F000", "42883", "42P01"})
_KNOWN = (
    "give one of asyncpg or psycopg, or a Connection or Session of SQLAlchemy (sync or async) on Postgres"
)
NOT_BEGUN = "the connection has no transaction open: "


class Said(Exception):
    """What the server has said, without its driver."""

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.sqlstate, self.detail = code, detail


# -- kinds -----------------------------------------------------------------------------------


class Guest:
    """Somebody's connection."""

    blocking = True
    place = "%s"  # how a value is named in a statement
    seconds: float | None = None  # how long the next answer may take, where its driver would give up earlier

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def ask(self, sql: str, call: str) -> Any:
        """The answer, or what is to be awaited for it. Refuses one that is in no transaction."""
        raise NotImplementedError

    def is_lost(self) -> bool:
        """Whether the server is gone from it, as far as its driver knows."""
        return False


class _Psycopg(Guest):
    def is_lost(self) -> bool:
        return bool(self.connection.broken)

    def ask(self, sql: str, call: str) -> Any:
        _check_psycopg(self.connection)
        psycopg = sys.modules["psycopg"]
        # Not connection.cursor(): its owner may have it bring rows in another shape.
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
        raise Said(_FAILED, "current transaction is aborted")
    if status == "IDLE" and connection.autocommit:
        raise UsageError(f"{NOT_BEGUN}it is in autocommit, use `with connection.transaction():`")


class _Asyncpg(Guest):
    blocking = False
    place = "$1"

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


class _Sqlalchemy(Guest):
    place = ":call"

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


_KINDS: tuple[tuple[str, str, type[Guest]], ...] = (
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


def guest(connection: Any) -> Guest:
    """Whoever it is. What is not imported cannot be given."""
    for module, name, kind in _KINDS:
        if _is(connection, module, name):
            return kind(connection)
    shown = f"<{type(connection).__module__}.{type(connection).__qualname__}>"
    raise UsageError(f"connection={shown}: {_KNOWN}")


def _is(value: Any, module: str, name: str) -> bool:
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


# -- what they say ---------------------------------------------------------------------------


def told_guest(error: Exception, address: Address) -> HoldfastError:
    """In our own words. Whatever driver or layer above it has raised it."""
    if isinstance(error, HoldfastError):
        return error
    cause = coded(error)
    if cause is None:
        return _unclear(error, address)
    code, message, _ = told(cause)
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
    """That of the errors behind it which says what the server has said."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = getattr(error, "orig", None) or error.__cause__
    # The driver's own knows most: what stands around it has its code at best.
    return next((one for one in reversed(seen) if getattr(one, "sqlstate", None)), None)


def _unclear(error: Exception, address: Address) -> HoldfastError:
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, OSError) or type(error).__name__ == "OperationalError":
        return Unavailable(f"{address.shown}: the connection was lost ({said})")
    return UsageError(f"the connection cannot be used here: {said}")


class _Answer(msgspec.Struct):
    """What became of a call: its answer, that it is elsewhere, or what was said."""

    answer: str | None = None
    elsewhere: str | None = None
    code: str = ""
    message: str = ""
    detail: str | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


# -- the calls -------------------------------------------------------------------------------


class Guests(Calls):
    """A part of the store. It need not be open for these: of its own database it asks where that is, once."""

    address: Address
    _clock: Callable[[], int] | None
    _place: str | None = None

    async def _within(self, connection: Any, verb: str, **fields: Any) -> str:
        """The answer of a verb inside the caller's transaction. Nothing is awaited where it blocks."""
        who = guest(connection)
        if not who.blocking:
            await asyncio.sleep(0)  # who cannot wait must find out before anything is sent
        old, place = None, await self._whereabouts(who)
        while True:
            call = json_text({"verb": verb, "place": place, **fields})
            found = _ANSWER.decode(await self._asked(who, "within", call))
            if found.elsewhere is None:
                break
            if old == place:
                raise elsewhere(found.elsewhere, self.address)
            old, self._place = place, None  # the server may have been started anew since it was asked
            place = await self._whereabouts(who)
        if found.code:
            raise told_guest(Said(found.code, found.message, found.detail or ""), self.address)
        assert found.answer is not None
        return found.answer

    async def _asked(self, who: Guest, function: str, call: str) -> str:
        sql = self._guests_sql(who, function)
        try:
            return text(who.ask(sql, call) if who.blocking else await who.ask(sql, call))
        except Exception as error:
            raise told_guest(error, self.address) from error

    def _guests_sql(self, who: Guest, function: str) -> str:
        """Text in and out: a connection may have been told to read and write JSON in its owner's way."""
        now = "" if self._clock is None else f"set_config('holdfast.now', '{self._clock()}', true), "
        return (
            f'select {now}cast("{self.address.schema}".{function}(cast(cast({who.place} as text) as json)) '
            "as text)"
        )

    async def _whereabouts(self, who: Guest) -> str:
        if self._place is None:
            ask = lambda: asyncio.run(place_of(self.address))  # noqa: E731 - for one of two ways
            self._place = off_the_loop(ask) if who.blocking else await place_of(self.address)
        return self._place


async def place_of(address: Address) -> str:
    """What tells the store's database from all others, on a session that is gone again at once."""
    try:
        link = await connected(address)
        try:
            return str(await link.fetchval(f'select "{address.schema}".whereabouts()'))
        finally:
            await link.leave()
    except DRIVER as error:
        if told(error)[0] in _NO_STORE:
            raise SchemaMismatch(
                f"{address.shown}: there is no store in schema {address.schema}, or an older one: run "
                "`holdfast migrate` once"
            ) from error
        raise translated(error, address.shown) from error


def elsewhere(database: str, address: Address) -> StoreError | UsageError:
    """Refused, and nothing was written."""
    return UsageError(
        f"the connection is on database {database!r} of another server, or on another database than the "
        f"store, which is on {address.shown}"
    )


def text(answer: Any) -> str:
    """As it came; a database may leave the encoding to its clients."""
    return answer.decode() if isinstance(answer, bytes) else str(answer)
