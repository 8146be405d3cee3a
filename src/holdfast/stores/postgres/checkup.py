"""checkup: whether the server's settings make commits durable, and what may soon cause trouble."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from holdfast.records import SECOND, Finding, Instant

from . import declared_indexes
from .address import Address
from .migrate import ours, schemas

OLDEST = 130000  # the first version that has everything the functions use
CROWDED = 0.8  # share of the possible connections
SKEW_SECONDS = 1.0  # between the server's clock and this host's
DEAD_ROWS, DEAD_SHARE = 50_000, 0.5  # a table with more of both lacks vacuum
SHOWN = 3  # sessions that a finding names


class Idle(msgspec.Struct):
    """A session that keeps a transaction open and does nothing."""

    pid: int
    name: str
    seconds: int


class Table(msgspec.Struct):
    """The numbers of live and dead rows of a table."""

    rows: int
    dead: int
    vacuumed: bool


class Facts(msgspec.Struct):
    """The facts that the SQL function `checkup` returns."""

    version: int
    settings: dict[str, str]
    schema: tuple[int, int, int]
    standby: bool
    connections: int
    connections_max: int
    idle: list[Idle]
    prepared: int
    tables: dict[str, Table]
    indexes: dict[str, bool]
    now: Instant
    unique: list[str] = []  # unique indexes; older functions do not return them
    sees_all: bool = True  # False: sessions of other roles are hidden


def host_clock() -> Instant:
    return time.time_ns() // 1000


def findings(facts: Facts, address: Address, asked: tuple[Instant, Instant]) -> list[Finding]:
    """Turn facts into findings. `asked`: when the question was sent and when the answer came, by this host's
    clock.
    """
    return [
        *_server(facts),
        *_schema(facts.schema),
        *_durability(facts, spared=address.allow_fsync_off),
        *_sessions(facts),
        *_tables(facts),
        *_indexes(facts),
        *_clock(facts.now, asked),
        *_hints(address),
    ]


def _ok(what: str) -> Finding:
    return Finding(level="ok", what=what)


def _warning(what: str, mend: str) -> Finding:
    return Finding(level="warning", what=what, mend=mend)


def _error(what: str, mend: str) -> Finding:
    return Finding(level="error", what=what, mend=mend)


def _server(facts: Facts) -> Iterator[Finding]:
    version = f"{facts.version // 10000}.{facts.version % 10000}"
    if facts.version < OLDEST:
        yield _error(f"the server is Postgres {version}", f"use Postgres {OLDEST // 10000} or newer")
    else:
        yield _ok(f"the server is Postgres {version}")
    if facts.standby or facts.settings["default_transaction_read_only"] == "on":
        why = "the server is a standby" if facts.standby else "default_transaction_read_only is on"
        yield _error(f"{why}: nothing can be written", "name the primary in the store's URL")
    if (encoding := facts.settings["server_encoding"]) != "UTF8":
        yield _error(
            f"the database's encoding is {encoding}: it cannot keep every text",
            "make a database with `create database … encoding 'UTF8' template template0`",
        )
    if (isolation := facts.settings["default_transaction_isolation"]) != "read committed":
        yield _error(
            f"default_transaction_isolation is {isolation}: after a lock a statement would see old rows",
            "set it to 'read committed' for this role or database",
        )


def _schema(found: tuple[int, int, int]) -> Iterator[Finding]:
    here, shown = ours(), ".".join(map(str, found))
    if found == here[:3]:
        yield _ok(f"the schema is of version {shown}")
    else:
        newer = found > here[:3]
        yield _warning(
            f"the schema is of version {shown}, this library's is {here.version}{': it can be used' * newer}",
            "upgrade holdfast here too" if newer else "run `holdfast migrate`",
        )


def _durability(facts: Facts, *, spared: bool) -> Iterator[Finding]:
    for name, loss in (
        ("fsync", "a power failure may undo commits, or leave the database damaged"),
        ("full_page_writes", "a power failure may leave the database damaged"),
    ):
        if facts.settings[name] == "on":
            yield _ok(f"{name} is on")
        else:
            tell = _warning if spared else _error
            yield tell(f"{name} is off: {loss}", f"set {name} = on in postgresql.conf, and reload")
    mode = facts.settings["synchronous_commit"]
    if mode == "off":
        yield _warning(
            "synchronous_commit is off: a crash of the server may undo the last commits",
            "set synchronous_commit = on for this role or database",
        )
    else:
        yield _ok(f"synchronous_commit is {mode}: every commit is on disk")


def _sessions(facts: Facts) -> Iterator[Finding]:
    used = f"{facts.connections} of {facts.connections_max} connections are in use"
    if facts.connections > facts.connections_max * CROWDED:
        yield _warning(used, "run fewer processes, put a pooler in front, or raise max_connections")
    else:
        yield _ok(used)
    if facts.idle:
        some = ", ".join(f"pid {one.pid} ({one.name}, {one.seconds} s)" for one in facts.idle[:SHOWN])
        more = len(facts.idle) - SHOWN
        yield _warning(
            f"sessions keep a transaction open and do nothing: {some}{f' and {more} more' * (more > 0)}; "
            "vacuum cannot remove rows that changed since",
            "end them with `select pg_terminate_backend(pid)`, and set idle_in_transaction_session_timeout",
        )
    elif facts.sees_all:
        yield _ok("no session keeps a transaction open for long")
    else:
        yield _ok(
            "no session of this role keeps a transaction open for long; "
            "sessions of other roles are visible only with pg_read_all_stats"
        )
    if facts.prepared:
        yield _warning(
            f"{facts.prepared} prepared transactions are open for more than a minute",
            "look into pg_prepared_xacts, and commit or roll them back",
        )


def _tables(facts: Facts) -> Iterator[Finding]:
    still = sorted(name for name, table in facts.tables.items() if not table.vacuumed)
    if "off" in {facts.settings["autovacuum"], facts.settings["track_counts"]}:
        name = "autovacuum" if facts.settings["autovacuum"] == "off" else "track_counts"
        yield _warning(
            f"{name} is off: dead rows accumulate, and every call gets slower",
            f"set {name} = on in postgresql.conf, and reload",
        )
    elif still:
        yield _warning(
            f"autovacuum is off for {', '.join(still)}",
            f"alter table {still[0]} reset (autovacuum_enabled)",
        )
    else:
        yield _ok("autovacuum is on")
    full = {
        name: table for name, table in facts.tables.items()
        if table.dead > DEAD_ROWS and table.dead > table.rows * DEAD_SHARE
    }  # fmt: skip
    for name, table in sorted(full.items()):
        yield _warning(
            f"{name} has {table.dead:,} dead rows beside {table.rows:,}: vacuum is late, or held back",
            f"look for old transactions (pg_stat_activity, replication slots), then `vacuum {name}`",
        )
    if not full:
        yield _ok(f"{sum(table.dead for table in facts.tables.values()):,} dead rows are left for vacuum")


def _indexes(facts: Facts) -> Iterator[Finding]:
    text = "\n".join(schemas())
    named, keys = declared_indexes.indexes(text), declared_indexes.keys(text)
    undone = sorted(set(keys) - set(facts.indexes))
    lacking = sorted(set(named) - set(facts.indexes))
    broken = sorted(name for name, valid in facts.indexes.items() if not valid)
    loose = sorted(_unique(named, keys) & set(facts.indexes) - set(facts.unique or facts.indexes))
    if undone:
        yield _error(
            f"primary keys or unique constraints are missing: {', '.join(undone)}",
            f"`{keys[undone[0]]}`, as in schema/*.sql of this library",
        )
    if lacking:
        yield _error(
            f"indexes are missing: {', '.join(lacking)}", "create them as in schema/*.sql of this library"
        )
    if loose:
        yield _error(
            f"indexes are not unique: {', '.join(loose)}",
            "drop them, and create them as in schema/*.sql of this library",
        )
    if broken:
        yield _error(f"indexes are invalid: {', '.join(broken)}", f"run `reindex index {broken[0]}`")
    if not (undone or lacking or loose or broken):
        yield _ok(f"all {len(facts.indexes)} indexes exist")


def _unique(named: dict[str, bool], keys: dict[str, str]) -> set[str]:
    return {name for name, unique in named.items() if unique} | set(keys)


def _clock(server: Instant, asked: tuple[Instant, Instant]) -> Iterator[Finding]:
    """Compare the clocks. The time between question and answer is not counted as a difference."""
    sent_at, answered_at = asked
    off = max(sent_at - server, server - answered_at, 0) / SECOND
    if off > SKEW_SECONDS:
        yield _warning(
            f"this host's clock and the server's differ by {off:.1f} s; only the server's counts",
            "synchronise both clocks by NTP: the times that people read here come from the server's clock",
        )
    else:
        yield _ok("this host's clock and the server's agree")


def _hints(address: Address) -> Iterator[Finding]:
    if address.listen:
        yield _ok("notifications (LISTEN) are used")
    else:
        yield _ok("listen is off in the store's URL: changes are found by polling only")
