"""User SQL and verbs on the same runs at the same time: whoever wins, the trail shows it."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from holdfast.lifecycle import FINAL
from holdfast.records import ANY, RunFilter
from holdfast.testing.contract.driver import TYPE
from holdfast.testing.contract.replay import replayed
from tests.stores.postgres.sessions.opened import opened
from tests.stores.postgres.user_sql.user_sql import UserSqlSession

RUNS, HANDS, TURNS = 6, 4, 120
VALUES = {"result": "1", "error": "no", "seconds": 0, "what": "note", "data": "{}", "fence": 1, "digest": "d"}
# User SQL may be refused, or collide with another transaction; nothing else may happen.
EXPECTED = ("HF", "40P01")
ENDS = ["heartbeat", "succeed", "fail", "retry", "give_back"]
MOVES = [
    *ENDS,
    *ENDS,
    *["take"] * 6,
    *["start"] * 4,
    "claim",
    "complete",
    "tell",
    "hurry",
    "cancel",
    "pause",
    "keep",
]


class Player:
    """A player that does anything to any run, and remembers the leases that it has by verbs."""

    def __init__(self, dsn, number):
        self.plain, self.me, self.chance = (
            UserSqlSession(dsn, lambda: ""),
            f"p{number}",
            random.Random(number),
        )
        self.held, self.taken, self.odd = [], [], []

    def play(self, runs):
        for _ in range(TURNS):
            try:
                self.turn(self.chance.choice(MOVES), runs)
            except psycopg.Error as error:
                code = error.sqlstate or ""
                if not code.startswith(EXPECTED):
                    self.odd.append(str(error))
        self.plain.close()
        return self.odd

    def turn(self, move, runs):
        mine = self.chance.choice(self.taken[-3:] or [None])
        run = mine if move in ENDS and mine and self.chance.random() < 0.7 else self.chance.choice(runs)
        values = {**VALUES, "id": run, "me": self.me, "type": TYPE, "payload": "1", "key": None}
        if move == "claim":
            self.held += self.plain.one("claim", **values)
        elif move == "complete" and self.held:
            claim = self.held.pop()
            self.plain("commit", **{**values, "id": claim["id"], "fence": claim["fence"]})
        elif move == "take":
            self.taken += [row[0] for row in self.plain("take", **values)]
        elif move == "start":
            runs.append(self.plain.one("start", **values))
        elif move != "complete":
            self.plain(move, **values)


@pytest.mark.slow
@pytest.mark.spec("MOVE-5", "MOVE-7", "SQL-4")
def test_whatever_user_sql_and_verbs_do_to_the_same_runs_the_trail_shows_it(database):
    """Any statement of the page against any other: no run is stuck or leased without a holder, and each
    replays.
    """
    with psycopg.connect(database.dsn, autocommit=True) as admin:
        insert = "insert into workflow.workflow_run (type, max_attempts) values (%s, 1000) returning id"
        runs = [admin.execute(insert, (TYPE,)).fetchone()[0] for _ in range(RUNS)]
    with ThreadPoolExecutor(HANDS) as pool:
        players = [Player(database.dsn, number) for number in range(HANDS)]
        odd = [one for found in pool.map(lambda player: player.play(runs), players) for one in found]
    assert odd == []

    async def look():
        async with opened(database.url) as store:
            found = await store.list(RunFilter(), limit=1000)
            trails = {run.id: await store.trail(run.id, ANY, limit=100_000) for run in found}
            return found, trails, await store.stuck()

    found, trails, stuck = asyncio.run(look())
    assert stuck == []
    types = {entry.type for trail in trails.values() for entry in trail}
    assert {"leased", "succeeded", "retried", "released", "cancelled", "failed", "note"} <= types
    for run in found:
        assert replayed(trails[run.id])[0] is run.status, [(one.type, one.data) for one in trails[run.id]]
        assert (run.status in FINAL) == (run.finished_at is not None)
        fences = [entry.data["fence"] for entry in trails[run.id] if entry.type == "leased"]
        assert fences == sorted(set(fences)), "one lease, one fence"
