"""The sorted sets of a Redis namespace, compared with the runs and steps that they lead to; and `writes`.

All entries follow from the rows alone, and so does `writes`. After an outage the log may be shorter, and each
change of the log is whole or missing: so no set may have another entry than its rows say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from uuid import UUID

from holdfast.stores.redis import indexes, rows
from holdfast.stores.redis.names import Names

# Sets whose entries follow from the rows of runs and steps. The others are of events, messages and the trail.
KINDS = frozenset({
    "status", "queue", "lane", "pending", "leases", "leased", "timeouts", "owing", "children", "stopped",
    "open", "expiring", "ended", "deleted", "waiting", "timers", "approvals", "suspended", "runs", "tenant",
    "type", "label", "labelled", "chain",
})  # fmt: skip
SHOWN = 5
BATCH = 500  # keys that are read in one round trip


def drift(client: Any, names: Names) -> list[str]:
    """Return each set that has other entries than its rows say, and each run whose `writes` differs."""
    wanted: dict[str, dict[str, float]] = defaultdict(dict)
    stored = list(_runs(client, names))
    for row, steps in stored:
        for (key, member), score in _entries(names, row, steps):
            wanted[key][member] = float(score)
    sets = [
        key
        for key in client.scan_iter(match=f"{names.tag}:*", count=1000, _type="zset")
        if key in wanted or key.removeprefix(f"{names.tag}:").partition(":")[0] in KINDS
    ]
    asked = ([("ZRANGE", key, 0, -1, "WITHSCORES")] for key in sets)
    found = {key: dict(entries) for key, (entries,) in zip(sets, _answers(client, asked), strict=True)}
    return [f"run {row.id}: `writes` is {row.writes}" for row, _ in stored if not _is_right(row)] + [
        f"{key}: {_differing(found.get(key, {}), wanted.get(key, {}))}"
        for key in sorted({*found, *wanted})
        if found.get(key, {}) != wanted.get(key, {})
    ]


def _runs(client: Any, names: Names) -> Iterator[tuple[rows.RunRow, list[str]]]:
    """Yield each run with its steps as they are stored."""
    keys = list(client.scan_iter(match=f"{names.tag}:run:*", count=1000))
    ids = [UUID(key.rpartition(":")[2]) for key in keys]
    asked = (
        [("HMGET", key, *rows.FIELDS), ("HVALS", names.steps(id_))]
        for key, id_ in zip(keys, ids, strict=True)
    )
    for key, id_, (fields, steps) in zip(keys, ids, _answers(client, asked), strict=True):
        row = rows.decoded(id_, fields, small=False)
        assert row is not None, f"{key} is no run"
        yield row, steps


def _answers(client: Any, asked: Iterable[list[tuple[Any, ...]]]) -> Iterator[list[Any]]:
    """Send groups of commands, many in one round trip; yield the answers of each group."""
    groups = iter(asked)
    while batch := list(islice(groups, BATCH)):
        with client.pipeline(transaction=False) as pipeline:
            for command in (command for group in batch for command in group):
                pipeline.execute_command(*command)
            answers = iter(pipeline.execute())
        yield from ([next(answers) for _ in group] for group in batch)


def _is_right(row: rows.RunRow) -> bool:
    """Return True when `writes` is as the row says. Scripts may leave the last number at 1."""
    wanted = rows.writes_text(row)
    return row.writes in {wanted, f"{wanted[:-1]}1"}


def _entries(names: Names, row: rows.RunRow, steps: list[str]) -> Iterator[tuple[tuple[str, str], int]]:
    yield from indexes.of_run(names, row).items()
    for fixed in indexes.fixed(names, row, row.labels):
        yield (fixed, str(row.id)), 0
    for text in steps:
        yield from indexes.of_step(names, row, rows.step_row(text)).items()


def _differing(found: dict[str, float], wanted: dict[str, float]) -> str:
    more = [member for member in found if member not in wanted][:SHOWN]
    less = [member for member in wanted if member not in found][:SHOWN]
    other = [member for member in wanted if found.get(member, wanted[member]) != wanted[member]][:SHOWN]
    return f"without a row {more}, missing {less}, other score {other}"


def found_drift(url: str) -> list[str]:
    """Return the drift in the namespace of a store URL."""
    import redis

    from holdfast.stores.redis.address import parsed

    address = parsed(url)
    with redis.Redis.from_url(address.url, decode_responses=True) as client:
        return drift(client, Names(address.prefix))
