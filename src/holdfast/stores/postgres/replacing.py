"""One set of functions in place of another, within the transaction of whoever migrates.

`create or replace` refuses a function that answers otherwise or names its arguments otherwise, and makes a
second one beside it where their types are others. Here the one of before goes, and there is never a second
one. What stands under a name that the new set does not have stays: it may be somebody else's.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping

import asyncpg

# Another answer or other names of arguments; a procedure; two that a call could mean.
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


class Replacing:
    """`run` executes the text of a file, and names that file where it fails."""

    def __init__(self, link: asyncpg.Connection, run: Run) -> None:
        self._link, self._run = link, run
        self._before: list[int] = []

    async def replace(self, files: Mapping[str, str]) -> None:
        self._before = [row[0] for row in await self._link.fetch(_THERE)]
        for file, text in files.items():
            try:
                await self._run_whole(file, text)
            except asyncpg.PostgresError as error:
                pieces = _pieces(text)
                if error.sqlstate not in _NOT_REPLACED or not pieces:
                    raise
                await self._run_apart(file, pieces)

    async def _run_whole(self, file: str, text: str) -> None:
        async with self._link.transaction():
            await self._run(file, text)
            await self._drop(file, _BEGINS.findall(text), doubled=True)

    async def _run_apart(self, file: str, pieces: list[tuple[str, str]]) -> None:
        """One function after the other, so that it is known which one is not replaced."""
        for name, piece in pieces:
            try:
                await self._run_whole(file, piece)
            except asyncpg.PostgresError as error:
                if error.sqlstate not in _NOT_REPLACED:
                    raise
                await self._drop(file, [name], doubled=False)
                await self._run_whole(file, piece)

    async def _drop(self, file: str, names: list[str], *, doubled: bool) -> None:
        """Those of before under these names; `doubled`: where a new one stands beside them."""
        for row in await self._link.fetch(_DROP, names, self._before, not doubled):
            try:
                await self._link.execute(f"drop routine {row[0]}")
            except asyncpg.DependentObjectsStillExistError as error:
                error.add_note((error.detail or "").partition("\n")[0])
                error.add_note(f"in {file}")
                raise


def _pieces(text: str) -> list[tuple[str, str]]:
    """The functions of a file by name, each with what follows it, the first also with what comes before."""
    begins = list(_BEGINS.finditer(text))
    places = [0, *(one.start() for one in begins[1:]), len(text)]
    return [(one[1], text[places[n] : places[n + 1]]) for n, one in enumerate(begins)]
