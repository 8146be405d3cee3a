"""The schema: forward only, additive within a major version, under a lock, safe when many open at once.

Tables and functions are numbered apart. A newer minor version of the tables, or a newer set of functions,
only added things, so an older library works on with it and leaves it as it is. Another major version is
refused. All of it is one transaction; what stands in its way is waited for in short turns, for a lock that
is queued for stops a running fleet.
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
from .errors import IN_THE_WAY, NO_RIGHT, told
from .replacing import Replacing

log = safe_logger("holdfast.postgres")

MAJOR = 1
# To be raised by each release whose functions differ. With the same number and other functions the last one
# to open wins: that is development.
FUNCTIONS = 1
# Who asks for a table that somebody has makes all others queue behind him: not long, then they have a turn.
LOCK_SECONDS, PAUSE_SECONDS = 0.3, 1.0
PATIENCE_SECONDS = 120.0
_PLACES = {"words.sql": -1, "rights.sql": 1}
CHANGE_SECONDS = 3600.0  # an index over many millions of rows takes its time
_LOCK = 1752132454  # beside those of topics and lines
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
# From the tables themselves, not by to_regclass and the like: these answer from what the session remembers,
# and that may be older than the lock.
_NAMESPACE = "select exists (select 1 from pg_namespace where nspname = $1)"
_NAMES = """
select relname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname in ('workflow_schema', 'workflow_run', 'workflow_step', 'workflow_event')
order by c.relname
"""


class Stamp(NamedTuple):
    """What a store says of itself."""

    major: int
    minor: int
    functions: int
    digest: str

    @property
    def version(self) -> str:
        return f"{self.major}.{self.minor}.{self.functions}"


@cache
def functions() -> dict[str, str]:
    """The files of functions, `words` first, and `rights` last: it speaks of functions of other files."""
    folder = files(__package__) / "functions"
    found = {
        entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql")
    }
    return dict(sorted(found.items(), key=lambda pair: (_PLACES.get(pair[0], 0), pair[0])))


@cache
def digest() -> str:
    """Tells one set of functions from another."""
    return sha256("\0".join(functions().values()).encode()).hexdigest()[:16]


def schemas() -> list[str]:
    """The schema files, in order: 0001.sql is minor 1."""
    folder = files(__package__) / "schema"
    found = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda one: one.name
    )
    return [entry.read_text("utf-8") for entry in found]


def ours() -> Stamp:
    """What this library brings."""
    return Stamp(MAJOR, len(schemas()), FUNCTIONS, digest())


async def up_to_date(link: asyncpg.Connection, address: Address, *, create: bool = True) -> None:
    """Bring tables and functions up to date, or see to it that they are."""
    there = await _stamp(link, address)
    if _is_current(there):
        return
    if not create:
        raise _refusal(there, address)
    until, said = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        attempt = _Attempt(link, address)
        try:
            await attempt.make()
            return
        except asyncpg.PostgresError as error:
            code, message, _ = told(error)
            if code == NO_RIGHT:
                raise _no_right(there, address, message) from error
            if code not in IN_THE_WAY:
                raise
            if time.monotonic() > until:
                raise Unavailable(
                    f"{address.shown}: waited {PATIENCE_SECONDS:g} s for {attempt.waits_for}, in vain"
                ) from error
        if not said:
            said = True
            log.warning("%s: waiting for %s", address.shown, attempt.waits_for)
        await asyncio.sleep(PAUSE_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311 - no secret


class _Attempt:
    """One transaction."""

    def __init__(self, link: asyncpg.Connection, address: Address) -> None:
        self._link, self._address = link, address
        self.waits_for = "another process to bring the schema up to date"

    async def make(self) -> None:
        link, schema = self._link, self._address.schema
        async with link.transaction():
            # Not for the waiting, but so that nobody queues behind us for long who only wants to work.
            await link.execute(
                f"set local lock_timeout = '{LOCK_SECONDS:g}s'; set local statement_timeout = 0"
            )
            await link.execute(f"select pg_advisory_xact_lock({_LOCK}, hashtext('{schema}'))")
            self.waits_for = "those who are at work on its tables, to bring the schema up to date"
            there = await _stamp(link, self._address)
            if not _is_current(there):
                await self._change(there or Stamp(MAJOR, 0, 0, ""))

    async def _change(self, there: Stamp) -> None:
        link, schema, ours_ = self._link, self._address.schema, ours()
        # Asked first: `if not exists` wants the right to create, even where there is nothing to do.
        if not await link.fetchval(_NAMESPACE, schema):
            await link.execute(f'create schema "{schema}"')
        await link.execute(f'set local search_path = "{schema}", pg_temp')
        await link.execute(_TABLE)
        for number, text in enumerate(schemas()[there.minor :], there.minor + 1):
            await self._run(f"schema/{number:04}.sql", text)
        known = max(there, ours_, key=lambda stamp: stamp.functions)
        if there.functions <= ours_.functions:
            known = ours_
            files = {f"functions/{name}": text for name, text in functions().items()}
            await Replacing(link, self._run).replace(files)
        await link.execute(_STAMP, MAJOR, max(there.minor, ours_.minor), known.functions, known.digest)
        log.info("%s: schema %s is of version %s now", self._address.shown, schema, ours_.version)

    async def _run(self, file: str, text: str) -> None:
        try:
            await self._link.execute(text, timeout=CHANGE_SECONDS)
        except asyncpg.PostgresError as error:
            error.add_note(f"in {file}")
            raise


async def _stamp(link: asyncpg.Connection, address: Address) -> Stamp | None:
    """None: there is no store yet."""
    schema = address.schema
    names = [row[0] for row in await link.fetch(_NAMES, schema)]
    if "workflow_schema" not in names:
        if names:
            raise _foreign(address, names[0])
        return None
    try:
        row: Any = await link.fetchrow(
            f'select major, minor, functions, digest from "{schema}".workflow_schema'  # noqa: S608 - checked name
        )
    except asyncpg.PostgresError as error:
        if told(error)[0] == _UNKNOWN_COLUMN:
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


def _is_current(there: Stamp | None) -> bool:
    if there is None or there.minor < len(schemas()):
        return False
    return there.functions > FUNCTIONS or there[2:] == (FUNCTIONS, digest())


def _foreign(address: Address, table: str) -> NotADatabase:
    return NotADatabase(
        f"{address.shown}: there is a {table} in schema {address.schema} that is not ours; "
        "name another schema in the URL: ?schema=…"
    )


def _refusal(there: Stamp | None, address: Address) -> HoldfastError:
    if there is None:
        return NotADatabase(
            f"{address.shown}: there is no store in schema {address.schema}; name another one by --store "
            "(or HOLDFAST_STORE), or make one in it: `holdfast migrate`"
        )
    return SchemaMismatch(f"{address.shown}: {_apart(there)}; run `holdfast migrate`, or start a worker")


def _apart(there: Stamp) -> str:
    if there.version == ours().version:  # development
        return f"its functions are not this library's, though both are of version {there.version}"
    return f"its schema is of version {there.version}, this library's is {ours().version}"


def _no_right(there: Stamp | None, address: Address, message: str) -> StoreError:
    if there is None:
        return StoreError(
            f"{address.shown}: there is no store in schema {address.schema} yet, and this user may not "
            f"make one ({message}): run `holdfast migrate --store URL` with its owner's URL"
        )
    return SchemaMismatch(
        f"{address.shown}: {_apart(there)}, and this user may not change it ({message}): "
        "run `holdfast migrate --store URL` with its owner's URL"
    )
