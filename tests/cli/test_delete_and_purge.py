"""`delete`, `restore`, `purge` and `ls --deleted`: what is dangerous is asked for first."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime

import pytest

from holdfast import App
from holdfast.cli import questions
from holdfast.contract import DELETED_SECONDS

SHOP = "shop.order.v1"


async def order(ctx):
    return 7


@pytest.fixture
def done(cli_, work):
    run = cli_.start(SHOP, "--key", "7")
    work(order=order)
    return run


def listed(cli_, *args):
    return [json.loads(line)["id"] for line in cli_("ls", "--json", *args).stdout.splitlines()]


@pytest.mark.spec("CLI-1", "DEL-1")
def test_a_finished_run_is_deleted_and_restored_by_the_end_of_its_id(cli_, done):
    short = done[-8:]
    said = cli_("delete", short, "--by", "Ann").stdout
    assert said.startswith(
        f"{short} ({SHOP}) is deleted; it was succeeded. `holdfast restore {short}` shows it"
    )
    assert listed(cli_) == []
    assert listed(cli_, "--deleted") == [done]
    assert "deleted" in cli_("ls", "--deleted").stdout
    assert cli_("restore", short).stdout == f"{short} ({SHOP}) is restored: succeeded\n"
    assert cli_("restore", done).stdout == f"{short} ({SHOP}) is not deleted: succeeded\n"
    assert listed(cli_) == [done]
    assert "deleted by Ann" in cli_("trail", done).stdout


@pytest.mark.spec("CLI-1", "DEL-1", "TTL-1")
@pytest.mark.parametrize(
    ("ttl", "kept"), [(3600, 3600), (400 * 86400, DELETED_SECONDS), (None, DELETED_SECONDS)]
)
def test_a_deleted_run_can_be_restored_until_it_expires_by_its_own_ttl(cli_, url, ttl, kept):
    """A week, or what is left of its ttl: what is promised is kept."""

    async def scene():
        app = App(url)
        run = await app.start(SHOP, ttl=ttl)
        done = await app.cancel(run.id)
        await app.close()
        return done

    done = asyncio.run(scene())
    said = cli_("delete", done.id).stdout
    until = datetime.fromisoformat(said.strip().rpartition("until ")[2])
    assert 0 <= (until - done.finished_at).total_seconds() - kept + 1 < 20


@pytest.mark.spec("CLI-1", "DEL-1", "TTL-1")
def test_an_expired_run_is_not_promised_to_be_restorable(cli_, url):
    async def scene():
        app = App(url)
        run = await app.start(SHOP, ttl=0)
        await app.cancel(run.id)
        await app.close()
        return run.id

    assert cli_("delete", asyncio.run(scene())).stdout.endswith("until the next purge: it has expired\n")


@pytest.mark.spec("CLI-2", "CLI-4", "DEL-1")
def test_delete_prints_the_run_as_json(cli_, done):
    assert cli_.json("delete", done)["deleted_at"] is not None
    assert cli_.json("ls", "--deleted")["deleted_at"] is not None
    restored = cli_.json("restore", done[:13])
    assert (restored["id"], restored["deleted_at"]) == (done, None)


@pytest.mark.spec("CLI-3", "DEL-1")
def test_an_open_run_is_deleted_only_when_confirmed(cli_):
    run = cli_.start(SHOP)
    line = cli_.refused("delete", run, code=1)
    assert f"{run[-8:]} ({SHOP}) is pending: if it is deleted, it is not executed any more; add --yes" in line
    assert listed(cli_) == [run]
    assert cli_("delete", run, "--yes").exit_code == 0
    assert listed(cli_) == []


@pytest.mark.spec("CLI-3", "DEL-1")
def test_at_a_terminal_delete_asks_the_person(cli_, monkeypatch):
    monkeypatch.setattr(questions, "_at_a_terminal", lambda: True)
    run = cli_.start(SHOP)
    no = cli_("delete", run, stdin="n\n")
    assert no.exit_code == 1
    assert "it is not executed any more. Continue? [y/N]" in no.stderr
    assert "nothing was changed" in no.stderr
    assert listed(cli_) == [run]
    assert cli_("delete", run, stdin="y\n").exit_code == 0
    assert listed(cli_) == []


@pytest.mark.spec("CLI-3", "DEL-1")
def test_other_commands_say_of_a_deleted_run_that_it_is_deleted(cli_, done):
    cli_("delete", done)
    for command in (["show", done], ["cancel", done[-8:]], ["delete", done], ["trail", done]):
        line = cli_.refused(*command, code=1)
        assert f"{command[1]} is deleted: `holdfast restore {command[1]}` shows it again" in line
    assert "no run 0199c0de" in cli_.refused("restore", "0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10", code=1)


@pytest.mark.spec("CLI-1", "TTL-1")
def test_a_purge_asks_first_and_prints_how_much_was_removed(cli_, done):
    open_ = cli_.start(SHOP)
    line = cli_.refused("purge", "--older-than", "0", code=1)
    assert "removes for good: finished runs older than 0 ms" in line
    assert "add --yes" in line
    assert cli_("purge", "--dry-run").stdout == "0 of 2 runs would be removed\n"
    assert cli_("purge", "--yes").stdout == "nothing has expired\n"
    assert cli_("purge", "--older-than", "0", "--dry-run").stdout == "1 of 2 runs would be removed\n"
    assert cli_.json("purge", "--older-than", "0", "--dry-run") == {"runs": 1}
    assert cli_("purge", "--older-than", "0", "--yes").stdout == "1 run removed\n"
    assert listed(cli_, "--deleted") == [open_]
    cli_("delete", open_, "--yes")
    assert cli_.json("purge", "--deleted-after", "0s", "--yes")["runs"] == 1


@pytest.mark.spec("CLI-2", "CLI-3")
def test_a_purge_of_a_missing_store_creates_no_file(cli_, tmp_path):
    assert "no store at" in cli_.refused("purge", "--yes", code=3)
    assert "is not a duration" in cli_.refused("purge", "--older-than", "a month", code=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("CLI-3", "TTL-1", "START-10")
@pytest.mark.parametrize("ages", ["9999999w", "9" * 400])
def test_longer_than_any_calendar_is_refused(cli_, done, ages):
    cli_("delete", done)
    for option in ("--older-than", "--deleted-after"):
        for how in ("--dry-run", "--yes"):
            assert "is more than 1,000 years" in cli_.refused("purge", how, option, ages, code=2)


@pytest.mark.spec("CLI-3", "TTL-1")
def test_a_thousand_years_are_as_good_as_for_ever(cli_, done):
    cli_("delete", done)
    terms = ("--older-than", "365000d", "--deleted-after", "365000d")
    assert cli_("purge", "--dry-run", *terms).stdout == "0 of 1 run would be removed\n"
    assert cli_("purge", "--yes", *terms).stdout == "nothing has expired\n"
    assert "add --yes" in cli_.refused("purge", *terms, code=1)


@pytest.mark.spec("TTL-1")
def test_a_purge_removes_exactly_the_runs_that_a_dry_run_counts(cli_, url):
    async def scene():
        app = App(url)
        runs = [await app.start(SHOP, ttl=ttl) for ttl in (None, 0.001, 10**6)]
        for run in runs:
            await app.cancel(run.id)
        await app.delete((await app.start(SHOP)).id)
        await app.close()

    asyncio.run(scene())
    for options, count in (((), 1), (("--deleted-after", "0"), 2), (("--older-than", "0"), 2)):
        assert cli_.json("purge", "--dry-run", *options)["runs"] == count
    assert cli_.json("purge", "--yes", "--older-than", "0", "--deleted-after", "0")["runs"] == 3
