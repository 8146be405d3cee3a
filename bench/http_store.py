"""The SQLite store's own statements for starts, in a loop without an engine or a server around them.

It executes what the store executes for a group of starts, on one connection with the same settings, and
commits after each group: the read of all that new runs depend on, the insert of the runs with its indexes and
triggers, the trail, the commit. Rows are made before. `bare` is an insert into a table with one row for each
start and no index beside its key, in a file with the same settings: the least that a durable start can cost
there. Prints one JSON line: processor time of one start, by the number of starts in a commit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.http_load import TYPE
from holdfast import stores
from holdfast.codec import digest
from holdfast.stores.sqlite import migrate
from holdfast.stores.sqlite.connection.database import Database, text
from holdfast.stores.sqlite.sql import statements
from holdfast.stores.sqlite.view.starts import START, TOGETHER, insert_many
from holdfast.world import RealWorld

TRAIL = statements("view/view")["trail_of_many"]
TYPES = text([TYPE])
SIZES = (16, 8, 1)
WORLD = RealWorld()


def group(name: str, first: int, size: int) -> tuple[str, str, list[Any], str]:
    """Return the values of one commit: keys, ids, the rows of runs, and the rows of the trail."""
    now, rows = WORLD.now(), list[list[Any]]()
    for n in range(first, first + size):
        params = json.dumps({"order": n, "amount": 12.5, "lines": ["a", "b"]}, separators=(",", ":"))
        row = [str(WORLD.uuid7()), "default", TYPE, "code", params, 100, now, f"{name} {n}"]
        rows.append([*row, digest(TYPE, params), 3, *[None] * 8, 0, 0, now, None, None, "k" * 12])
    trail = [(row[0], "created", text({"type": TYPE, "by": "bench"})) for row in rows]
    return text([row[7] for row in rows]), text([row[0] for row in rows]), rows, text(trail)


def start(db: Database, keys: str, ids: str, rows: list[Any], trail: str) -> None:
    """Execute the statements of one commit."""
    db.run("begin immediate")
    db.all(START["before"], (keys, ids, TYPES))
    while rows:
        count = next(size for size in TOGETHER if size <= len(rows))
        part, rows = rows[:count], rows[count:]
        db.run(insert_many(count), [value for row in part for value in row])
    db.run(TRAIL, (WORLD.now(), trail))
    db.run("commit")


def bare_us(folder: Path, requests: int, size: int) -> float:
    """Return the processor time of one row of a bare table, with the same durability."""
    db = migrate.connect(str(folder / f"bare{size}.db"))
    db.run("create table run (id text primary key, type text, payload text, created_at integer) strict")
    rows = [(row[0], TYPE, row[4], row[6]) for row in group("bare", 0, requests)[2]]
    used = time.process_time()
    for first in range(0, requests, size):
        db.run("begin immediate")
        db.many("insert into run values (?, ?, ?, ?)", rows[first : first + size])
        db.run("commit")
    spent = time.process_time() - used
    db.close()
    return spent / requests * 1e6


def cpu_us(db: Database, name: str, requests: int, size: int) -> float:
    """Return the processor time of one start."""
    groups = [group(name, first, size) for first in range(0, requests, size)]
    used = time.process_time()
    for one in groups:
        start(db, *one)
    return (time.process_time() - used) / (len(groups) * size) * 1e6


async def _made(url: str) -> str:
    store: Any = stores.make_store(url)
    await store.open()
    await store.close()
    return str(store.path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--requests", type=int, default=4000)
    args = parser.parse_args()
    found_at = asyncio.run(_made(args.url))
    found = migrate.connect(found_at)
    cpu_us(found, "floor warm", 400, 8)
    figures = {f"{size}": cpu_us(found, f"floor {size}", args.requests, size) for size in SIZES}
    found.close()
    with TemporaryDirectory(dir=Path(found_at).parent) as made:
        figures |= {f"bare {size}": bare_us(Path(made), args.requests, size) for size in SIZES}
    print(json.dumps(figures))
