"""One workflow for all: four ways to start it, four kinds of workers that execute it, on one Postgres.

Each worker has one slot, and the first step of each run is held: so each of four workers has one of four
runs.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import holdfast as hf
from servers.plugin import need
from tests.clients import golang
from tests.clients.golang import Go
from tests.clients.kit import until
from tests.stores.postgres.user_sql.user_sql import statements

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

GO, TYPESCRIPT, REMOTE, DIRECT = KINDS = ("go", "typescript", "remote", "direct")
LEASE_MS = 30_000
INVOICE = "billing.invoice.v1"
INSERT = "insert into workflow.workflow_run (type, payload) values (:'type', :'payload') returning id;"

# A worker of the engine for the one-shot type; the ledger holds its run.
INVOICES = """
import urllib.request

import holdfast as hf

app = hf.App()


@app.workflow("billing.invoice.v1")
async def invoice(ctx: hf.Context, params: dict) -> dict:
    call = b'{"run": "%s", "step": "print", "key": ""}' % str(ctx.run_id).encode()
    await ctx.step("print", lambda: urllib.request.urlopen(params["ledger"], call).read().decode())
    return {"number": "E"}
"""


@pytest.fixture
def site(postgres_site):
    with postgres_site.workers() as one:
        yield one


@pytest.fixture
def psql(site):
    """A function that runs a statement with psql and returns what it prints."""
    need("psql")

    def ask(statement, **values):
        given = [word for name, value in values.items() for word in ("-v", f"{name}={value}")]
        argv = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", *given, site.dsn]
        done = subprocess.run(argv, input=statement, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return ask


@pytest.fixture
def programs(go, typescript):
    """The command of each kind of worker; all execute the type of the conformance kit."""
    python = [sys.executable, "-m", "holdfast.cli", "worker", "verify.languages.script:app", "--slots", "1"]
    return {
        GO: [go.build("conformance")],
        TYPESCRIPT: typescript.program("conformance/worker"),
        REMOTE: [*python, "--name", REMOTE],
        DIRECT: [*python, "--name", DIRECT],
    }


def begin(site, programs, kind):
    """Start a worker of this kind with one slot; its name begins with the kind."""
    settings = {"HOLDFAST_WORKER": kind, "HOLDFAST_SLOTS": "1", "HOLDFAST_LEASE_MS": str(LEASE_MS)}
    settings["PYTHONPATH"] = f"{hf.__path__[0]}/..:{golang.kit.ROOT}"
    if kind == DIRECT:
        settings["HOLDFAST_STORE"] = site.store
    return site.worker(programs[kind], **settings)


def holders(site, run):
    """Return the kinds that have held a run, in their order."""
    return [row["data"]["worker"].partition(":")[0] for row in site.trail(run) if row["type"] == "leased"]


def started(site, psql, script, type_):
    """Start a run in each of four ways: by Python, curl, psql and the command line."""
    app = hf.App(site.store).sync
    try:
        by_python = str(app.start(type_, script(0)).id)
    finally:
        app.close()
    need("curl")
    body = json.dumps({"type": type_, "params": script(1)})
    argv = ["curl", "-sSf", f"{site.url}/runs", "-H", "Content-Type: application/json", "-d", body]
    argv += ["-H", f"Authorization: Bearer {site.key}"]
    by_curl = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["id"]
    by_psql = psql(INSERT, type=type_, payload=json.dumps(script(2)))
    line = site.holdfast("start", type_, json.dumps(script(3)), "--json")
    return [by_python, by_curl, by_psql, json.loads(line)["id"]]


@pytest.mark.spec("HTTP-3", "REG-2")
def test_one_order_for_every_language(site, psql, programs, book):
    """A run that is parked by one language is finished by another: the registry says by which."""

    def order(n):
        label = book.script({"step": "label", "value": f"parcel-{n}"})
        return book.script(
            {"step": "charge", "value": 2**53 + n},
            {"event": f"packed:{n}"},
            {"child": label},
            {"step": "mail"},
        )

    hold = book.hold("charge")
    for kind in KINDS:
        begin(site, programs, kind)
    runs = started(site, psql, order, book.type)
    until(lambda: book.step_keys().count("charge") == 4, hint=site.logs)
    assert sorted(holders(site, run)[0] for run in runs) == sorted(KINDS)
    hold.set()
    for run in runs:
        site.until(run, "waiting")

    parked_by = {holders(site, run)[0]: n for n, run in enumerate(runs)}
    finished_by = {
        GO: ("python", {REMOTE, DIRECT}),
        DIRECT: ("typescript", {TYPESCRIPT}),
        TYPESCRIPT: ("go", {GO}),
    }
    for kind, (runtime, kinds) in finished_by.items():
        n = parked_by[kind]
        site.must("PUT", f"/registry/{book.type}", {"runtime": runtime})
        site.emit(f"packed:{n}", n)
        site.ended(runs[n])
        assert set(holders(site, runs[n])[1:]) <= kinds
    site.must("DELETE", f"/registry/{book.type}")
    site.emit(f"packed:{parked_by[REMOTE]}", parked_by[REMOTE])

    results = [site.ended(run)["result"] for run in runs]
    assert results == [[2**53 + n, n, [f"parcel-{n}"], None] for n in range(4)]
    assert sorted(book.step_keys()) == ["charge"] * 4 + ["label"] * 4 + ["mail"] * 4
    assert len({one["key"] for one in book.calls}) == 12


@pytest.mark.spec("SQL-4", "SQL-12")
def test_a_one_shot_type_is_shared_by_sql_and_the_engine(site, psql, book, tmp_path):
    """A worker of the engine, psql and a worker in Go each have a run of the type at the same time."""
    folder = tmp_path / "go-sql"
    folder.mkdir()
    go = Go("go-sql", folder, golang.with_debian_packages("go-sql", folder))
    printer = go.build("examples/invoice")
    (tmp_path / "invoices.py").write_text(INVOICES, "utf-8")
    hold = book.hold("print")
    runs = [site.start(INVOICE, {"order": n, "cents": 1, "ledger": book.url}) for n in range(4)]

    argv = [sys.executable, "-m", "holdfast.cli", "worker", "invoices:app", "--slots", "1"]
    site.worker(argv, HOLDFAST_STORE=site.store, PYTHONPATH=f"{tmp_path}:{hf.__path__[0]}/..")
    until(lambda: book.calls, hint=site.logs)
    taken = psql(statements()["take"], type=INVOICE, me="psql").partition("|")[0]
    site.worker([printer], DATABASE_URL=site.dsn)
    by_engine = book.calls[0]["run"]
    by_go = [run for run in runs if run not in {by_engine, taken}]
    for run in by_go:
        site.ended(run)
    assert psql(statements()["succeed"], id=taken, me="psql", result='{"number": "P"}') == taken
    hold.set()

    numbers = {run: site.ended(run)["result"]["number"] for run in runs}
    assert numbers == {by_engine: "E", taken: "P"} | {run: f"R-{runs.index(run)}" for run in by_go}
    assert len(by_go) == 2
    assert all([row["type"] for row in site.trail(run)].count("leased") == 1 for run in runs)
