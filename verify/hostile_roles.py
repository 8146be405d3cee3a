"""The roles that send plain SQL, with the rights of docs/sql.md and grants.sql, and the answers they get."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path

import psycopg
from psycopg import sql

from holdfast.stores.postgres.address import parsed

from .readers import steering
from .spite import seeds
from .spite_functions import Statements
from .spite_sql import Statement

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sql.md"
GRANTS = re.compile(r"^-- (grants\w*)\n(.*?)```", re.MULTILINE | re.DOTALL)
SLOW_SECONDS = 15.0
APP_SHARE = 0.4  # of the statements; the rest are by the smaller roles
# Refusals: bad values, constraints, no right, our own, no such type of value, a lost race; and JSON that is
# nested so deep that the server does not read it: `commit` leaves that to the server, for it is called often.
CLEAN = re.compile(r"HF\d\d\d|22\w\w\w|23\w\w\w|42501|P0001|40\w\w\w|54001")
# The server's own reading of a statement: not of one inside our functions.
PARSED = re.compile(r"42\w\w\w|54\w\w\w|0A000")
INSIDE = "PL/pgSQL function"

Answer = tuple[str, str, str]  # kind, SQLSTATE or nothing, fault or nothing


@contextmanager
def sender(url: str, seed: int) -> Iterator[Callable[[int], list[Answer]]]:
    """A function that sends so many statements of a stream."""
    dsn, turns, streams = parsed(url).dsn, seeds(seed), dict[int, Statements]()
    with _roles(dsn) as roles, ExitStack() as stack:
        sessions = [stack.enter_context(_session(dsn, role)) for role in roles]

        def next_sent() -> Answer:
            turn = next(turns)
            stream = streams[turn] = streams.get(turn) or Statements(turn)
            return _sent(_chosen(stream, sessions), stream.next())

        def send(count: int) -> list[Answer]:
            return [next_sent() for _ in range(count)]

        yield send


def _chosen(stream: Statements, sessions: list[psycopg.Connection]) -> psycopg.Connection:
    app, *small = sessions
    return app if stream.spite.chance(APP_SHARE) else stream.spite.one(small)


@contextmanager
def _roles(dsn: str) -> Iterator[list[str]]:
    """The app's role, then one with the first block of grants on the page, one with two, and so on."""
    blocks = [*itertools.accumulate(text for _, text in GRANTS.findall(PAGE.read_text("utf-8")))]
    with psycopg.connect(dsn, autocommit=True) as admin:
        names = [f"{admin.info.dbname}_role{n}" for n in range(len(blocks) + 1)]
        for name in names:
            admin.execute(sql.SQL("create role {}").format(sql.Identifier(name)))
        try:
            admin.execute(_app_grants(names[0]))
            for name, text in zip(names[1:], blocks, strict=True):
                admin.execute(text.replace(':"role"', f'"{name}"'))
            yield names
        finally:
            for name in names:
                admin.execute(sql.SQL("drop owned by {} cascade").format(sql.Identifier(name)))
                admin.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def _app_grants(name: str) -> str:
    """The second part of grants.sql, but for the defaults, which are another role's to set."""
    text = (files("holdfast.stores.postgres") / "grants.sql").read_text("utf-8")
    lines = re.split(r"-- Once, by holdfast_owner.*?\n", text)[1].splitlines()
    kept = [line for line in lines if not line.startswith(("alter default", "--"))]
    return "\n".join(kept).replace("holdfast_app", f'"{name}"')


@contextmanager
def _session(dsn: str, role: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
        connection.execute(f"set statement_timeout = '{SLOW_SECONDS:.0f}s'")
        yield connection


def _sent(connection: psycopg.Connection, one: Statement) -> Answer:
    began = time.monotonic()
    try:
        connection.execute(one.sql, one.values).close()
    except psycopg.Error as error:
        return one.kind, error.sqlstate or type(error).__name__, _fault(error, one)
    took = time.monotonic() - began
    return one.kind, "", "" if took < SLOW_SECONDS else f"{took:.1f} s for {_shown(one)}"


def _fault(error: psycopg.Error, one: Statement) -> str:
    """What is wrong with a refusal; empty: nothing."""
    state, said = error.sqlstate, error.diag.message_primary or str(error)
    if state is None:  # the driver itself did not take a value
        return (
            ""
            if isinstance(error, psycopg.ProgrammingError | psycopg.DataError)
            else f"{error} for {_shown(one)}"
        )
    inside = INSIDE in (error.diag.context or "")
    if not CLEAN.fullmatch(state) and (inside or not PARSED.fullmatch(state)):
        return f"{state} {said} for {_shown(one)}; {error.diag.context}"[:600]
    if state.startswith("HF") and ("\n" in said or steering(said)):
        return f"{state} has raw text: {said!r}"[:300]
    return ""


def _shown(one: Statement) -> str:
    values = ", ".join(ascii(value)[:80] for value in one.values)
    return f"{' '.join(one.sql.split())[:200]} ({values})"
