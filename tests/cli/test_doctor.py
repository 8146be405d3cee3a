"""`holdfast doctor`: readable, for machines too, and calm about a store that is damaged."""

from __future__ import annotations

import asyncio
from contextlib import closing

import apsw
import pytest

from holdfast import App

SHOP = "shop.order.v1"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


@pytest.mark.spec("CLI-1", "LEASE-12")
def test_a_warning_says_how_to_fix_it_and_the_exit_code_is_0(cli_):
    cli_.start(SHOP)
    told = cli_("doctor")
    assert told.exit_code == 0
    lines = told.stdout.splitlines()
    at = lines.index(f"warning  no live worker can execute 1 due run: {SHOP} (1)")
    assert lines[at + 1].startswith("         to fix: start a worker with these types")
    assert "ok       no run is stuck" in lines
    assert lines[-1] == "2 warnings"


@pytest.mark.spec("CLI-2", "MOVE-7")
def test_the_report_is_one_document_for_machines(cli_):
    cli_.start(SHOP)
    told = cli_.json("doctor")
    assert told["level"] == "warning"
    assert {"level": "ok", "what": "no run is stuck", "mend": "", "runs": []} in told["findings"]


@pytest.mark.spec("CLI-2", "MOVE-7")
def test_an_error_is_exit_1_and_names_its_runs(cli_, monkeypatch):
    run = cli_.start(SHOP)
    from uuid import UUID

    from holdfast.stores.sqlite import SqliteStore

    async def stuck(self, limit):
        return [UUID(run)]

    monkeypatch.setattr(SqliteStore, "stuck", stuck)
    told = cli_("doctor")
    assert told.exit_code == 1
    assert f"error    1 open run stuck: nothing will ever wake them ({run[-8:]})" in told.stdout
    assert "1 error and 2 warnings" in told.stdout


@pytest.mark.spec("CLI-2", "CLI-3")
def test_a_store_that_cannot_be_opened_is_exit_3(cli_, path):
    assert "no store at" in cli_.refused("doctor", code=3)
    path.write_text("a letter, no database. " * 300)
    assert "no SQLite database" in cli_.refused("doctor", code=3)


@pytest.mark.spec("CLI-3")
def test_a_damaged_file_is_a_finding_and_not_a_traceback(cli_, url, path):
    """Pages in the middle are gone: what can be read is shown, what cannot is an error."""

    async def fill():
        app = App(url)
        await app.start_many([(SHOP, {"text": "x" * 2000}) for _ in range(200)])
        await app.close()

    asyncio.run(fill())
    size = path.stat().st_size
    with path.open("r+b") as file:
        for at in range(8 * 4096, size - 4096, 4096):
            file.seek(at)
            file.write(b"\x5a" * 4096)
    told = cli_("doctor")
    assert told.exit_code in (1, 3)
    assert "damaged" in told.stdout + told.stderr


def spoil(path):
    with closing(apsw.Connection(str(path))) as db:
        db.execute("update workflow_count_change set number = 7")


@pytest.mark.spec("READ-4", "CLI-1")
def test_counts_are_compared_with_the_runs_on_request_and_repaired(cli_, path):
    """Differences are an error in one line, until they are repaired."""
    cli_.start(SHOP)
    assert "kept counts" not in cli_("doctor").stdout
    assert "ok       the kept counts agree with all runs" in cli_("doctor", "--recount").stdout
    spoil(path)
    told = cli_("doctor", "--recount")
    line = f"1 kept count differs from the runs: 7 pending of {SHOP} for tenant default, in fact 1"
    assert (told.exit_code, f"error    {line}" in told.stdout.splitlines()) == (1, True)
    assert "to fix: `holdfast doctor --repair" in told.stdout
    told = cli_("doctor", "--repair")
    assert (told.exit_code, f"warning  {line}; it is repaired" in told.stdout.splitlines()) == (0, True)
    assert "ok       the kept counts agree with all runs" in cli_("doctor", "--recount").stdout
    assert "1 run: 1 pending" in cli_("doctor").stdout
