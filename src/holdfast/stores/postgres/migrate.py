"""The schema: forward only, under a lock, safe when many open at once."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files

import asyncpg

_LOCK = 1752132454  # beside those of topics and lines


@cache
def functions() -> dict[str, str]:
    """The files of functions, `words` first."""
    folder = files(__package__) / "functions"
    found = {entry.name: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".sql")}
    return dict(sorted(found.items(), key=lambda pair: (pair[0] != "words.sql", pair[0])))


@cache
def digest() -> str:
    """Tells one set of functions from another."""
    return sha256("\0".join(functions().values()).encode()).hexdigest()[:16]


def schemas() -> list[str]:
    """The schema files, in order."""
    folder = files(__package__) / "schema"
    return [one.read_text() for one in sorted(folder.iterdir(), key=lambda entry: entry.name) if one.name.endswith(".sql")]


async def up_to_date(connection: asyncpg.Connection, schema: str) -> None:
    """Bring schema and functions up to date."""
    if await _is_current(connection, schema):
        return
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1::bigint)", _LOCK)
        if await _is_current(connection, schema):
            return
        await connection.execute(f'create schema if not exists "{schema}"')
        await connection.execute(f'set local search_path = "{schema}", pg_temp')
        await connection.execute(
            "create table if not exists workflow_schema (id integer primary key check (id = 1), version integer not null, functions text not null)"
        )
        version = await connection.fetchval("select version from workflow_schema") or 0
        steps = schemas()
        for step in steps[version:]:
            await connection.execute(step)
        for text in functions().values():
            await connection.execute(text)
        await connection.execute(
            "insert into workflow_schema values (1, $1, $2) on conflict (id) do update set version = $1, functions = $2",
            len(steps),
            digest(),
        )


async def _is_current(connection: asyncpg.Connection, schema: str) -> bool:
    if await connection.fetchval("select to_regclass($1)", f'"{schema}".workflow_schema') is None:
        return False
    row = await connection.fetchrow(f'select version, functions from "{schema}".workflow_schema')  # noqa: S608 - checked name
    return row is not None and tuple(row) == (len(schemas()), digest())
