"""The Postgres guide matches the package: its statements, its options and its restore from a backup."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from importlib.resources import files

import psycopg
import pytest
from psycopg import sql

from holdfast import App
from holdfast.stores.postgres import address
from tests.docs import pages

PAGE = pages.ROOT / "docs" / "guide" / "postgres.md"
TEXT = PAGE.read_text("utf-8")


def _statements():
    return [block.text for block in pages.blocks(PAGE) if block.language == "sql"]


def test_the_statements_for_roles_match_the_package():
    """Other tests run the statements of the package."""
    shown, *_ = _statements()
    assert shown == (files("holdfast.stores.postgres") / "grants.sql").read_text("utf-8")


def test_the_statements_for_monitoring_find_their_rows(postgres_database):
    """A waiting run, a session of Holdfast, and a transaction that blocks another one."""
    _, *asked = _statements()

    async def look():
        app = App(postgres_database.url)
        run = await app.start("shop.order.v1")
        with psycopg.connect(postgres_database.dsn) as holder:
            lock = sql.SQL("select from workflow.workflow_run where id = {} for update").format(run.id)
            holder.execute(lock)
            waiting = asyncio.create_task(app.cancel(run.id))
            found = await asyncio.to_thread(_answers, postgres_database.dsn, asked, holder.info.backend_pid)
        await waiting
        await app.close()
        return found

    stats, backlog, sessions, blocked, tables = asyncio.run(look())
    assert stats[0][0]["by_status"]["pending"] == 1
    assert backlog == [([],)]
    assert sum(count for *_, count, _ in sessions) >= 1
    assert blocked
    assert {name for name, *_ in tables} >= {"workflow_run", "workflow_event"}


def _answers(dsn, asked, holder):
    """Repeat the query until a session waits: a server publishes it with a delay."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        waits = "select count(*) from pg_stat_activity where %s = any(pg_blocking_pids(pid))"
        while not connection.execute(waits, (holder,)).fetchone()[0]:
            pass
        return [connection.execute(statement.encode()).fetchall() for statement in asked]


def test_the_guide_names_every_option_of_a_url():
    documented = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert set(documented) == address._OURS


@pytest.fixture
def shell(postgres_database):
    """Type a line of the page, with a database of this test instead of the page's."""
    name, again = postgres_database.name, f"{postgres_database.name}_again"
    admin = psycopg.connect(postgres_database.dsn, autocommit=True)
    where = admin.info.get_parameters()
    env = os.environ | {"PGHOST": where["host"], "PGPORT": str(admin.info.port), "PGUSER": where["user"]}

    def type_(line, folder):
        words = [
            re.sub(r"\bshop(_again)?$", lambda found: again if found[1] else name, word)
            for word in line.split()
        ]
        done = subprocess.run(
            words, cwd=folder, env=env, capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 0, done.stderr

    yield type_, postgres_database.url.replace(name, again)
    admin.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(again)))
    admin.close()


@pytest.mark.slow
def test_a_backup_beside_live_workers_can_be_restored_and_runs_continue(postgres_database, shell, tmp_path):
    type_, restored = shell
    lines = [line for line in pages.commands(PAGE) if line.startswith(("pg_", "createdb shop_again"))]
    assert len(lines) == 3

    async def lives():
        app, copy = App(postgres_database.url), App(restored)

        @app.workflow("shop.order.v1")
        async def order(ctx):
            await ctx.step("reserve", lambda: "B4")
            return (await ctx.await_event("packed", timeout=600)).payload

        async with app.worker():
            run = await app.start(order, key="order:7")
            while (await app.get(run.id)).status != "waiting":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            for line in lines:
                await asyncio.to_thread(type_, line, tmp_path)
        copy.workflows = app.workflows
        async with asyncio.timeout(30), copy.worker():
            await copy.emit("packed", "a box")
            found = await copy.final(run.id)
            again = await copy.start(order, key="order:7")
        assert (found.status, found.error) == ("succeeded", None)
        assert (found.result, again.created) == ("a box", False)
        assert (await app.get(run.id)).status == "waiting"
        assert (await copy.doctor()).level != "error"
        await app.close()
        await copy.close()

    asyncio.run(lives())
