"""Migration of the schema: forward only, additive within a major version, under a lock, safe when many open
at once.

Tables and functions have separate numbers. A newer minor version of the tables, or a newer set of functions,
only added things, so an older library works with it and does not change it. Another major version is refused.
A migration waits for locks of others only for short times and then pauses, because every statement that comes
later queues behind a waiting lock.

A new store is made in one transaction. A store that is there gets one transaction for each schema file, so
that the lock of a changed table does not last until the indexes of a later file are built; each moves the
minor version. A migration that was ended between two of them goes on there. The files from TOGETHER on and
the functions are one transaction.
"""

from __future__ import annotations

import asyncio
import random
import time
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, NamedTuple

import asyncpg

from holdfast.errors import HoldfastError, NotADatabase, SchemaMismatch, StoreError, Unavailable
from holdfast.escaping import safe_logger

from .address import Address
from .errors import COLLISIONS, NO_RIGHT, error_parts
from .replace_functions import FunctionReplacement

log = safe_logger("holdfast.postgres")

MAJOR = 1
# Each release with different functions must raise this number. With the same number and different functions,
# the library that opened last wins; that happens in development.
FUNCTIONS = 1
# 0005.sql fills a table that triggers of the functions keep up to date: no write may come between.
TOGETHER = 5
# A statement that waits for a table's lock makes all later ones queue behind it. So it waits for a short
# time, and then lets the others continue.
LOCK_SECONDS, PAUSE_SECONDS = 0.3, 1.0
PATIENCE_SECONDS = 120.0
CHANGE_SECONDS = 3600.0  # an index over many millions of rows takes long
_LOCK = 1752132454  # next to the numbers of the locks of topics and outbox queues
_UNKNOWN_COLUMN = "42703"

_TABLE = """
create table if not exists workflow_schema (
    id integer primary key check (id = 1), major integer not null, minor integer not null,
    functions integer not null, digest text not null
)
"""
_STAMP = """
insert into workflow_schema (id, major, minor, functions, digest) values (1, $1, $2, $3, $4)
on conflict (id) do update
set major = excluded.major, minor = excluded.minor, functions = excluded.functions, digest = excluded.digest
"""
# Read from the tables themselves, not by to_regclass or similar: those answer from the session's cache, which
# may be older than the lock.
_NAMESPACE = "select exists (select 1 from pg_namespace where nspname = $1)"
_NAMES = """
select relname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname in ('workflow_schema', 'workflow_run', 'workflow_step', 'workflow_event')
order by c.relname
"""


class Stamp(NamedTuple):
    """The version that a store has."""

    major: int
    minor: int
    functions: int
    digest: str

    @property
    def version(self) -> str:
        return f"{self.major}.{self.minor}.{self.functions}"


@cache
def functions() -> dict[str, str]:
    """Return the texts of functions/ in the order in which they are run, by path ("claiming/claim.sql").

    Folder `shared` is first, then the other folders by name, then `rights.sql`. Inside a folder files go by
    name. A function in the language SQL, and a view, need the functions that they call to exist: these come
    earlier in this order, mostly in `shared`. `rights.sql` names functions of all other files.
    """
    root = files(__package__) / "functions"
    folders = sorted(
        (one for one in root.iterdir() if one.is_dir()), key=lambda one: (one.name != "shared", one.name)
    )
    found = {
        f"{folder.name}/{file.name}": file.read_text("utf-8")
        for folder in folders
        for file in sorted(folder.iterdir(), key=lambda one: one.name)
        if file.name.endswith(".sql")
    }
    return found | {"rights.sql": (root / "rights.sql").read_text("utf-8")}


@cache
def digest() -> str:
    """Return a digest of the set of functions."""
    return sha256("\0".join(functions().values()).encode()).hexdigest()[:16]


def schemas() -> list[str]:
    """Return the schema files in order: 0001.sql is minor version 1."""
    folder = files(__package__) / "schema"
    found = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda one: one.name
    )
    return [entry.read_text("utf-8") for entry in found]


def ours() -> Stamp:
    """Return the version that this library brings."""
    return Stamp(MAJOR, len(schemas()), FUNCTIONS, digest())


async def up_to_date(session: asyncpg.Connection, address: Address, *, create: bool = True) -> None:
    """Bring tables and functions up to date; with create=False, refuse a store that is not."""
    found = await _stamp(session, address)
    if _is_current(found):
        return
    if not create:
        raise _refusal(found, address)
    until, warned = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        attempt = _Attempt(session, address)
        try:
            await attempt.make()
            return
        except asyncpg.PostgresError as error:
            code, message, _ = error_parts(error)
            if code == NO_RIGHT:
                raise _no_right(found, address, message) from error
            if code not in COLLISIONS:
                raise
            if time.monotonic() > until:
                raise Unavailable(
                    f"{address.shown}: waited {PATIENCE_SECONDS:g} s for {attempt.waits_for}, and gave up"
                ) from error
        if not warned:
            warned = True
            log.warning("%s: waiting for %s", address.shown, attempt.waits_for)
        await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret


class _Attempt:
    """One attempt to migrate, in as many transactions as it needs."""

    def __init__(self, session: asyncpg.Connection, address: Address) -> None:
        self._session, self._address = session, address
        self.waits_for = "another process to bring the schema up to date"

    async def make(self) -> None:
        while not await self._has_changed():
            pass

    async def _has_changed(self) -> bool:
        """Make one transaction; return True when it was the last one."""
        session, schema = self._session, self._address.schema
        async with session.transaction():
            # The timeout keeps sessions that queue behind this one from waiting long.
            await session.execute(
                f"set local lock_timeout = '{LOCK_SECONDS:g}s'; set local statement_timeout = 0"
            )
            await session.execute(f"select pg_advisory_xact_lock({_LOCK}, hashtext('{schema}'))")
            self.waits_for = "other transactions on its tables, to bring the schema up to date"
            found = await _stamp(session, self._address)
            if _is_current(found):
                return True
            if found is not None and found.minor < min(TOGETHER - 1, len(schemas())):
                await self._change_tables(found)
                return False
            await self._change(found or Stamp(MAJOR, 0, 0, ""))
            return True

    async def _change_tables(self, found: Stamp) -> None:
        """Run the next schema file. The functions that are there go on with what it adds."""
        session, number = self._session, found.minor + 1
        await session.execute(f'set local search_path = "{self._address.schema}", pg_temp')
        await self._run(f"schema/{number:04}.sql", schemas()[found.minor])
        await session.execute(_STAMP, MAJOR, number, found.functions, found.digest)

    async def _change(self, found: Stamp) -> None:
        session, schema, ours_ = self._session, self._address.schema, ours()
        # Checked first, because `if not exists` needs the right to create even when nothing is to be done.
        if not await session.fetchval(_NAMESPACE, schema):
            await session.execute(f'create schema "{schema}"')
        await session.execute(f'set local search_path = "{schema}", pg_temp')
        await session.execute(_TABLE)
        for number, text in enumerate(schemas()[found.minor :], found.minor + 1):
            await self._run(f"schema/{number:04}.sql", text)
        known = max(found, ours_, key=lambda stamp: stamp.functions)
        if found.functions <= ours_.functions:
            known = ours_
            files = {f"functions/{name}": text for name, text in functions().items()}
            await FunctionReplacement(session, self._run).replace(files)
        await session.execute(_STAMP, MAJOR, max(found.minor, ours_.minor), known.functions, known.digest)
        log.info("%s: schema %s is of version %s now", self._address.shown, schema, ours_.version)

    async def _run(self, file: str, text: str) -> None:
        try:
            await self._session.execute(text, timeout=CHANGE_SECONDS)
        except asyncpg.PostgresError as error:
            error.add_note(f"in {file}")
            raise


async def _stamp(session: asyncpg.Connection, address: Address) -> Stamp | None:
    """Return the version of the store; None: there is no store yet."""
    schema = address.schema
    names = [row[0] for row in await session.fetch(_NAMES, schema)]
    if "workflow_schema" not in names:
        if names:
            raise _foreign(address, names[0])
        return None
    try:
        row: Any = await session.fetchrow(
            f'select major, minor, functions, digest from "{schema}".workflow_schema'  # noqa: S608 - checked name
        )
    except asyncpg.PostgresError as error:
        if error_parts(error)[0] == _UNKNOWN_COLUMN:
            raise _foreign(address, "workflow_schema") from error
        raise
    if row is None:
        return None
    stamp = Stamp(*row)
    if stamp.major != MAJOR:
        way_out = "upgrade holdfast" if stamp.major > MAJOR else "export its runs with the older holdfast"
        raise SchemaMismatch(
            f"{address.shown}: its schema is of major version {stamp.major}, this is for {MAJOR}; {way_out}"
        )
    return stamp


def _is_current(found: Stamp | None) -> bool:
    if found is None or found.minor < len(schemas()):
        return False
    return found.functions > FUNCTIONS or found[2:] == (FUNCTIONS, digest())


def _foreign(address: Address, table: str) -> NotADatabase:
    return NotADatabase(
        f"{address.shown}: there is a {table} in schema {address.schema} that is not ours; "
        "name another schema in the URL: ?schema=…"
    )


def _refusal(found: Stamp | None, address: Address) -> HoldfastError:
    if found is None:
        return NotADatabase(
            f"{address.shown}: there is no store in schema {address.schema}; name another one by --store "
            "(or HOLDFAST_STORE), or make one in it: `holdfast migrate`"
        )
    return SchemaMismatch(f"{address.shown}: {_apart(found)}; run `holdfast migrate`, or start a worker")


def _apart(found: Stamp) -> str:
    if found.version == ours().version:  # in development
        return f"its functions are not this library's, though both are of version {found.version}"
    return f"its schema is of version {found.version}, this library's is {ours().version}"


def _no_right(found: Stamp | None, address: Address, message: str) -> StoreError:
    if found is None:
        return StoreError(
            f"{address.shown}: there is no store in schema {address.schema} yet, and this user may not "
            f"make one ({message}): run `holdfast migrate --store URL` with its owner's URL"
        )
    return SchemaMismatch(
        f"{address.shown}: {_apart(found)}, and this user may not change it ({message}): "
        "run `holdfast migrate --store URL` with its owner's URL"
    )
