"""The plain-SQL worker in Go on a real Postgres: one-shot runs, by the statements of docs/sql.md."""

from __future__ import annotations

import signal

import psycopg
import pytest

from tests.clients import golang, kit
from tests.clients.golang import Go
from tests.clients.kit import until
from tests.docs import pages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180), pytest.mark.spec("SQL-4", "SQL-12")]

SHORT = {"LEASE": "1500ms"}
LONG = {"LEASE": "30s"}


@pytest.fixture(scope="session")
def go(tmp_path_factory):
    folder = tmp_path_factory.mktemp("go-sql")
    return Go("go-sql", folder, golang.with_debian_packages("go-sql", folder))


@pytest.fixture
def site(postgres_site):
    with postgres_site.workers() as one:
        yield one


@pytest.fixture
def worker(go, site):
    """A function that starts a worker."""
    return lambda **env: site.worker([go.build("examples/invoice")], DATABASE_URL=site.dsn, **env)


@pytest.fixture
def sql(site):
    """A function that runs a statement and returns its first row."""
    with psycopg.connect(site.dsn, autocommit=True) as connection:

        def ask(statement, **values):
            found = connection.execute(statement, values)
            return found.fetchone() if found.description else None

        yield ask


def test_the_code_is_formatted_and_vetted(go):
    assert go.unformatted() == ""
    go("vet", "./...")
    go("test", "-race", "./...")


def test_a_run_from_sql_is_executed_and_told(site, sql, worker):
    worker(**SHORT)
    start = "insert into workflow.workflow_run (type, payload) values ('billing.invoice.v1', %(payload)s)"
    (run,) = sql(f"{start} returning id", payload='{"order": 9007199254740993, "cents": 1}')
    assert site.ended(run)["result"] == {"number": "R-9007199254740993"}
    trail = site.trail(run)
    assert [one["type"] for one in trail if one.get("told")] == ["printing"]
    assert [one["data"]["order"] for one in trail if one.get("told")] == [9007199254740993]


def test_only_types_of_the_prefix_and_of_the_runtime_are_taken(site, worker):
    site.must("PUT", "/registry/billing.python.v1", {"runtime": "python"})
    site.must("PUT", "/registry/billing.off.v1", {"runtime": "go", "enabled": False})
    not_mine = "billing.python.v1", "billing.off.v1", "billings.x.v1", "shop.x.v1"
    others = [site.start(one, {}) for one in not_mine]
    worker(**SHORT)
    mine = site.start("billing.other.v1", {"order": 1, "cents": 1}, priority=999)
    assert site.ended(mine)["status"] == "succeeded"
    assert [site.run(one)["status"] for one in others] == ["pending"] * 4


def test_a_failed_run_waits_the_square_of_its_attempts_in_minutes(site, sql, worker):
    worker(**SHORT)
    run = site.start("billing.invoice.v1", {"order": 7, "cents": 0}, max_attempts=3)
    wait = "select extract(epoch from run_at - now()) from workflow.workflow_run where id = %(run)s"
    tried = f"{wait} and status = 'pending' and attempt = %(n)s and last_error is not null"
    for n in (1, 2):
        (seconds,) = until(lambda n=n: sql(tried, run=run, n=n))
        assert n * n * 60 - 10 < seconds <= n * n * 66
        sql(
            "update workflow.workflow_run set run_at = now() where id = %(run)s and status = 'pending'",
            run=run,
        )
    ended = site.ended(run)
    assert (ended["status"], ended["error"]["message"]) == ("failed", "the printer is out of paper")


def test_a_fatal_error_fails_the_run_at_once(site, worker):
    worker(**SHORT)
    ended = site.ended(site.start("billing.invoice.v1", {"order": 7, "cents": -1}))
    assert (ended["status"], ended["error"]["kind"]) == ("failed", "fatal")
    assert ended["error"]["message"] == "an invoice has no negative sum"


def test_a_heartbeat_keeps_a_long_run(site, worker):
    program = worker(**SHORT)
    run = site.start("billing.invoice.v1", {"order": 1, "cents": 1, "seconds": 4})
    assert site.ended(run)["status"] == "succeeded"
    assert program.log.count("printing") == 1
    assert site.run(run)["crashes"] == 0


def test_a_cancel_interrupts_the_function(site, worker):
    program = worker(**SHORT)
    run = site.start("billing.invoice.v1", {"order": 1, "cents": 1, "seconds": 60})
    program.said(f"printing {run}")
    site.must("POST", f"/runs/{run}/cancel", {})
    program.said(f"interrupted {run}")
    program.said(f"run {run} was cancelled or lost")
    assert site.run(run)["status"] == "cancelled"


def test_an_execution_that_lost_its_run_to_its_own_worker_writes_nothing(site, sql, worker):
    """Somebody gives the run back, and the same worker takes it again: only the fence tells the two apart."""
    program = worker(**SHORT)
    run = site.start("billing.invoice.v1", {"order": 1, "cents": 1, "seconds": 3})
    program.said(f"printing {run}")
    sql("update workflow.workflow_run set status = 'pending' where id = %(run)s", run=run)
    program.said(f"interrupted {run}")
    assert site.ended(run)["status"] == "succeeded"
    assert program.log.count(f"printing {run}") == 2
    assert [one["type"] for one in site.trail(run)].count("leased") == 2


def test_a_killed_worker_is_replaced(site, worker):
    first = worker(**SHORT)
    run = site.start("billing.invoice.v1", {"order": 1, "cents": 1, "seconds": 2})
    first.said(f"printing {run}")
    first.kill()
    site.command("tick", "--loop")  # the keeper: the server keeps only for workers that use it
    second = worker(**SHORT)
    assert site.ended(run)["status"] == "succeeded"
    assert second.log.count(f"printing {run}") == 1
    assert [one["type"] for one in site.trail(run)].count("lease_expired") == 1


def test_a_worker_that_stops_lets_its_run_end(site, worker):
    program = worker(**LONG)
    run = site.start("billing.invoice.v1", {"order": 1, "cents": 1, "seconds": 1})
    program.said(f"printing {run}")
    program.signal(signal.SIGTERM)
    assert program.process.wait(20) == 0
    assert site.run(run)["status"] == "succeeded"


def test_two_workers_never_take_the_same_run(site, worker):
    programs = [worker(**SHORT) for _ in range(2)]
    runs = [site.start("billing.invoice.v1", {"order": n, "cents": 1}) for n in range(60)]
    for run in runs:
        site.ended(run)
    assert sorted(line.split()[-1] for one in programs for line in one.log.splitlines()) == sorted(runs)
    assert all(one.log for one in programs)


def test_the_readme(site, go, tmp_path):
    texts = {one.language: one.text for one in pages.blocks(kit.CLIENTS / "go-sql" / "README.md")}
    code, statement = texts["go"], texts["sql"]
    (tmp_path / "main.go").write_text(code)
    env = golang.with_debian_packages("go-sql", tmp_path)
    (tmp_path / "go.mod").write_text(
        (tmp_path / "go.mod").read_text().replace("module holdfast.internal/holdfastsql", "module shop")
        + "require holdfast.internal/holdfastsql v0.1.0\n"
        + f"replace holdfast.internal/holdfastsql => {kit.CLIENTS / 'go-sql'}\n"
    )
    site.worker([Go(tmp_path, tmp_path, env).build(".")], DATABASE_URL=site.dsn)
    with psycopg.connect(site.dsn, autocommit=True) as connection:
        (run,) = connection.execute(statement.rstrip().rstrip(";") + " returning id").fetchone()
    assert site.ended(run)["result"] == {"printed": str(run)}
