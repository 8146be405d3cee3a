"""Replacement of one set of functions by another, within the transaction of a migration.

`create or replace` refuses a function that has another return type or other argument names, and creates a
second function when the argument types differ. Here the old function is dropped, so that there is never a
second one. A function whose name is not in the new set stays: it may belong to somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

import asyncpg

# Other return type or argument names; a procedure; an ambiguous call.
_NOT_REPLACED = frozenset({"42P13", "42809", "42725"})
_BEGINS = re.compile(r'^create or replace function "?(\w+)', re.MULTILINE)

_THERE = "select p.oid from pg_proc as p where p.pronamespace = current_schema()::regnamespace"
_DROP = """
select p.oid::regprocedure::text from pg_proc as p
where p.pronamespace = current_schema()::regnamespace and p.proname = any($1) and p.oid = any($2)
    and ($3 or exists (
        select 1 from pg_proc as n
        where n.pronamespace = p.pronamespace and n.proname = p.proname and n.oid <> all($2)
    ))
"""

Run = Callable[[str, str], Awaitable[None]]


class FunctionReplacement:
    """Replacement of functions. `run` executes the text of a file, and names the file when it fails."""

    def __init__(self, session: asyncpg.Connection, run: Run) -> None:
        self._session, self._run = session, run
        self._before: list[int] = []

    async def replace(self, files: Mapping[str, str]) -> None:
        self._before = [row[0] for row in await self._session.fetch(_THERE)]
        for file, text in files.items():
            try:
                await self._run_whole(file, text)
            except asyncpg.PostgresError as error:
                pieces = _pieces(text)
                if error.sqlstate not in _NOT_REPLACED or not pieces:
                    raise
                await self._run_apart(file, pieces)

    async def _run_whole(self, file: str, text: str) -> None:
        async with self._session.transaction():
            await self._run(file, text)
            await self._drop(file, _BEGINS.findall(text), doubled=True)

    async def _run_apart(self, file: str, pieces: list[tuple[str, str]]) -> None:
        """Run one function after the other, to find the one that cannot be replaced."""
        for name, piece in pieces:
            try:
                await self._run_whole(file, piece)
            except asyncpg.PostgresError as error:
                if error.sqlstate not in _NOT_REPLACED:
                    raise
                await self._drop(file, [name], doubled=False)
                await self._run_whole(file, piece)

    async def _drop(self, file: str, names: list[str], *, doubled: bool) -> None:
        """Drop the old functions with these names; `doubled`: only where a new function exists beside the old
        one.
        """
        for row in await self._session.fetch(_DROP, names, self._before, not doubled):
            try:
                await self._session.execute(f"drop routine {row[0]}")
            except asyncpg.DependentObjectsStillExistError as error:
                error.add_note((error.detail or "").partition("\n")[0])
                error.add_note(f"in {file}")
                raise


def _pieces(text: str) -> list[tuple[str, str]]:
    """Split a file into its functions, each with the text that follows it; the first also with the text
    before it.
    """
    begins = list(_BEGINS.finditer(text))
    places = [0, *(one.start() for one in begins[1:]), len(text)]
    return [(one[1], text[places[n] : places[n + 1]]) for n, one in enumerate(begins)]
