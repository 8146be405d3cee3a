"""The database roles that send user SQL, with the grants of docs/sql.md and grants.sql, and their answers."""

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
from verify.environment.cli_reader import steering

from .functions import Statements
from .statements import Statement
from .values import seeds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sql.md"
GRANTS = re.compile(r"^-- (grants\w*)\n(.*?)```", re.MULTILINE | re.DOTALL)
SLOW_SECONDS = 15.0
APP_SHARE = 0.4  # share of the app's role among the statements; the rest are by the smaller roles
# Clean refusals: bad values, constraints, missing rights, errors of Holdfast, lost races; and JSON that is
# nested too deep for the server: `commit` leaves that check to the server, because it is called often.
CLEAN = re.compile(r"HF\d\d\d|22\w\w\w|23\w\w\w|42501|P0001|40\w\w\w|54001")
# Errors of the server when it parses a statement: clean only outside of Holdfast's functions.
PARSED = re.compile(r"42\w\w\w|54\w\w\w|0A000")
INSIDE = "PL/pgSQL function"

Answer = tuple[str, str, str]  # kind, SQLSTATE or nothing, fault or nothing


@contextmanager
def sender(url: str, seed: int) -> Iterator[Callable[[int], list[Answer]]]:
    """Return a function that sends a number of statements of the stream."""
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
    return app if stream.values.chance(APP_SHARE) else stream.values.one(small)


@contextmanager
def _roles(dsn: str) -> Iterator[list[str]]:
    """Make roles: the app's role, then one with the first block of grants on the page, one with two, and so
    on.
    """
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
    """Return the second part of grants.sql, without default privileges, which only the owner can set."""
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
    """Return what is wrong with a refusal; empty: nothing."""
    state, said = error.sqlstate, error.diag.message_primary or str(error)
    if state is None:  # the driver itself refused a value
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
