"""The worker of docs/sql.md, a shell script of psql alone, beside a worker of the engine on one queue."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections import Counter

import psycopg
import pytest

import holdfast as hf
from holdfast.records import ANY, RunFilter
from holdfast.testing.contract.replay import replayed
from servers.plugin import need
from tests.docs import pages
from tests.stores.postgres.user_sql.user_sql import PAGE, statements

TYPE = "shop.count.v1"
RUNS = 50


@pytest.fixture
def shell(tmp_path, database):
    """The script and its statements as files, and the database."""
    need("psql")
    for name, text in statements().items():
        (tmp_path / f"{name}.sql").write_text(text, "utf-8")
    (script,) = [block.text for block in pages.blocks(PAGE) if block.language == "sh"]
    (tmp_path / "worker.sh").write_text(script, "utf-8")
    return Shell(tmp_path, database)


class Shell:
    def __init__(self, folder, database):
        self.folder = folder
        parts = psycopg.conninfo.conninfo_to_dict(database.dsn)
        names = {
            "host": "PGHOST",
            "port": "PGPORT",
            "user": "PGUSER",
            "dbname": "PGDATABASE",
            "password": "PGPASSWORD",
        }
        self.env = os.environ | {names[key]: str(value) for key, value in parts.items() if key in names}

    def begin(self, *command):
        return subprocess.Popen(
            ["sh", "worker.sh", TYPE, *command],
            cwd=self.folder,
            env=self.env,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def work(self, *command):
        worker = self.begin(*command)
        said = worker.communicate(timeout=60)[1]
        return worker.returncode, said


def start(admin, runs, **columns):
    names = "".join(f", {name}" for name in columns)
    values = "".join(f", {value}" for value in columns.values())
    insert = f"insert into workflow.workflow_run (type, payload{names}) values (%s, %s{values}) returning id"
    return [admin.execute(insert, (TYPE, f'{{"n": {n}}}')).fetchone()[0] for n in range(runs)]


@pytest.mark.slow
@pytest.mark.spec("SQL-4", "SQL-1", "MOVE-5")
def test_a_shell_script_and_an_engine_share_a_queue(shell, database, admin):
    """Each run is executed once, by one of the two, and the trail shows it."""
    start(admin, RUNS)

    async def main():
        app = hf.App(database.url)

        @app.workflow(TYPE)
        async def count(ctx, params):
            await asyncio.sleep(0.05)
            return {"n": params["n"], "by": "engine"}

        async with app.worker(slots=2, batch=2):
            answer = await asyncio.to_thread(shell.work, "sed", "-e", 's/}/, "by": "shell"}/')
            runs = await app.store.list(RunFilter(), limit=1000)
            while any(run.finished_at is None for run in runs):
                await asyncio.sleep(0.05)  # the last runs of the engine
                runs = await app.store.list(RunFilter(), limit=1000)
            trails = {run.id: await app.store.trail(run.id, ANY) for run in runs}
        await app.close()
        return answer, runs, trails

    answer, runs, trails = asyncio.run(main())
    assert answer == (0, "")
    assert sorted(run.result["n"] for run in runs) == list(range(RUNS))
    assert {run.result["by"] for run in runs} == {"engine", "shell"}
    for run in runs:
        assert Counter(entry.type for entry in trails[run.id]) == dict.fromkeys(
            ["created", "leased", "started", "succeeded"], 1
        )
        assert replayed(trails[run.id]) == (run.status, {})
        assert (run.attempt, run.status) == (1, "succeeded")


@pytest.mark.slow
@pytest.mark.spec("SQL-4")
def test_a_command_that_fails_is_tried_again_and_then_given_up(shell, admin):
    """The last line of its error becomes the run's error; a worker that finds nothing due ends."""
    (run,) = start(admin, 1, max_attempts=2)
    command = ("sh", "-c", "echo 'no stock' >&2; exit 1")
    look = "select status, last_error, attempt from workflow.workflow_run where id = %s"
    assert shell.work(*command) == (0, "")
    assert admin.execute(look, (run,)).fetchone() == ("pending", "no stock", 1)
    admin.execute("update workflow.workflow_run set run_at = statement_timestamp() where id = %s", (run,))
    assert shell.work(*command) == (0, "")
    assert admin.execute(look, (run,)).fetchone() == ("failed", "no stock", 2)


@pytest.mark.slow
@pytest.mark.spec("SQL-4", "LEASE-6")
def test_a_script_that_was_killed_is_followed_by_another(shell, admin):
    """The lease expires, a keeper puts the run back, and the next worker ends it."""
    (run,) = start(admin, 1)
    dead = shell.begin("sh", "-c", "echo begun >begun; sleep 60")
    while not (shell.folder / "begun").exists():
        assert dead.poll() is None
        time.sleep(0.01)  # another process, on the real clock
    os.killpg(dead.pid, signal.SIGKILL)
    dead.communicate()
    # The lease is shortened, as if half a minute had passed.
    soon = "statement_timestamp() + interval '1 millisecond'"
    admin.execute(f"update workflow.workflow_run set lease_until = {soon} where id = %s", (run,))
    while admin.execute("select workflow.expire(10) ->> 'done'").fetchone()[0] == "0":
        time.sleep(0.01)
    assert shell.work("echo", "7") == (0, "")
    row = admin.execute(
        "select status, result, crashes from workflow.workflow_run where id = %s", (run,)
    ).fetchone()
    assert row == ("succeeded", 7, 1)
