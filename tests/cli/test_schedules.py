"""Schedules on the command line: what they say, in words and as data, and how mistakes are refused."""

from __future__ import annotations

import asyncio
import getpass
import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from holdfast.records import NewSchedule
from holdfast.sealing import Encrypt
from holdfast.stores.sqlite import SqliteStore

NIGHTLY = ("schedule", "add", "nightly", "shop.report.v1", '{"n": 1}', "--cron", "0 3 * * *")


@pytest.mark.spec("SCHED-1", "CLI-1")
def test_a_schedule_is_made_shown_listed_and_removed(cli_):
    """It is shown with its next times, in its time zone and in UTC."""
    added = cli_(*NIGHTLY, "--zone", "Europe/Berlin", "--jitter", "10m", "--overlap", "queue").stdout
    assert "nightly  shop.report.v1" in added
    assert "0 3 * * * Europe/Berlin, up to 10 min later" in added
    assert "NEXT TIMES, Europe/Berlin" in added
    assert added.count(" 03:00:00 +0") == 5
    assert cli_("schedule", "show", "nightly").stdout.splitlines()[:7] == added.splitlines()[:7]
    listed = cli_("schedule", "ls").stdout.splitlines()
    assert listed[0].split() == ["NAME", "WHEN", "NEXT", "LAST", "STARTS"]
    assert listed[1].startswith("nightly  0 3 * * * Europe/Berlin")
    assert cli_("schedule", "rm", "nightly").stdout == "schedule nightly is removed\n"
    assert "no schedules yet" in cli_("schedule", "ls").stderr


@pytest.mark.spec("SCHED-1", "CLI-2")
def test_a_schedule_as_json(cli_):
    """Stable keys, instants in UTC."""
    made = cli_.json(*NIGHTLY, "--zone", "Asia/Tokyo", "--label", "team=billing", "--priority", "7")
    assert (made["name"], made["tenant"], made["type"]) == ("nightly", "default", "shop.report.v1")
    assert (made["params"], made["labels"], made["priority"]) == ({"n": 1}, {"team": "billing"}, 7)
    assert (made["cron"], made["zone"], made["every_seconds"]) == ("0 3 * * *", "Asia/Tokyo", None)
    assert (made["overlap"], made["catch_up"], made["paused"]) == ("skip", "one", False)
    assert made["next_times"][0] == made["next_at"]
    assert len(made["next_times"]) == 5
    assert all(time.endswith("T18:00:00Z") for time in made["next_times"])
    assert cli_.json("schedule", "ls") == cli_.json("schedule", "show", "nightly")
    assert cli_.json("schedule", "rm", "nightly") == {"name": "nightly", "tenant": "default", "removed": True}


@pytest.mark.spec("SCHED-1")
def test_adding_the_same_schedule_again_changes_nothing(cli_):
    """A deploy script may say it each time."""
    made = cli_.json(*NIGHTLY)
    assert cli_.json(*NIGHTLY)["updated_at"] == made["updated_at"]
    assert cli_.json(*NIGHTLY, "--priority", "3")["priority"] == 3


@pytest.mark.spec("SCHED-1")
def test_options_that_are_not_given_keep_their_values(cli_):
    """A change of the times keeps the limits and budgets that the app has set."""
    said = ("--limit-key", "shop", "--budget", "1.5", "--ttl", "1d", "--timeout", "5m", "--max-attempts", "2")
    made = cli_.json(*NIGHTLY, *said)
    kept = ("limit_key", "budget", "ttl_seconds", "timeout_seconds", "max_attempts")
    assert [made[key] for key in kept] == ["shop", 1.5, 86400, 300, 2]
    other = cli_.json(*NIGHTLY[:-1], "0 4 * * *")
    assert (other["cron"], [other[key] for key in kept]) == ("0 4 * * *", [made[key] for key in kept])
    assert cli_.json(*NIGHTLY, "--budget", "2")["budget"] == 2


@pytest.mark.spec("SCHED-1", "CLI-3")
def test_a_schedule_whose_zone_is_not_known_here_breaks_no_list(cli_, url):
    """Its row says what is wrong with it."""
    cli_(*NIGHTLY)

    async def spoil():
        store = SqliteStore(url.removeprefix("sqlite:///"))
        await store.open()
        new = NewSchedule(
            id=uuid4(), name="lost", type="shop.report.v1", cron="0 3 * * *", zone="No/Where", next_at=1
        )
        await store.schedule(new)
        await store.close()

    asyncio.run(spoil())
    lost, nightly = map(json.loads, cli_("schedule", "ls", "--json").stdout.splitlines())
    assert (lost["name"], lost["next_times"]) == ("lost", [])
    assert "zone 'No/Where' is not known" in lost["trouble"]
    assert (nightly["trouble"], len(nightly["next_times"])) == (None, 5)
    listed = cli_("schedule", "ls")
    assert "zone 'No/Where' is not known" in listed.stdout
    assert "it cannot fire here: zone 'No/Where' is not known" in cli_("schedule", "show", "lost").stdout


@pytest.mark.spec("SCHED-1")
def test_an_interval_needs_no_zone(cli_):
    """It counts from when it was made."""
    made = cli_.json("schedule", "add", "often", "shop.report.v1", "--every", "15m")
    assert (made["every_seconds"], made["cron"], made["zone"]) == (900, None, None)
    assert "every 15 min" in cli_("schedule", "show", "often").stdout


@pytest.mark.spec("SCHED-1")
def test_a_schedule_is_paused_resumed_and_fired_by_hand(cli_):
    """The name of the person who paused it is shown; a run by hand has an id."""
    cli_(*NIGHTLY)
    paused = cli_("schedule", "pause", "nightly").stdout
    assert f"by {getpass.getuser()}" in paused
    assert "it does not fire by itself while it is paused: `holdfast schedule resume nightly`" in paused
    assert cli_.json("schedule", "pause", "nightly", "--by", "Ann")["paused_by"] == getpass.getuser()
    assert "paused" in cli_("schedule", "ls").stdout
    run = cli_("schedule", "fire", "nightly").stdout.strip()
    shown = cli_.json("show", run)
    assert (shown["type"], shown["params"]) == ("shop.report.v1", {"n": 1})
    assert shown["labels"]["schedule"] == "nightly"
    resumed = cli_.json("schedule", "resume", "nightly")
    assert (resumed["paused"], resumed["last_run"], resumed["fired"]) == (False, run, 1)


@pytest.mark.spec("SCHED-1", "OPS-1")
def test_a_tick_fires_due_schedules_without_any_worker(cli_, monkeypatch):
    """By the store's clock."""
    made = cli_.json(*NIGHTLY)
    assert cli_.json("tick")["fired"] == 0
    due = datetime.fromisoformat(made["next_at"]) + timedelta(seconds=1)
    monkeypatch.setattr("holdfast.stores.sqlite._wall_clock", lambda: int(due.timestamp() * 1_000_000))
    assert "1 run started by schedules" in cli_("tick").stdout
    assert cli_("tick").stdout == "nothing was due\n"
    run = cli_.json("ls")
    assert datetime.fromisoformat(run["labels"]["fire_at"]) == due - timedelta(seconds=1)
    assert datetime.fromisoformat(run["created_at"]).astimezone(UTC) == due


@pytest.mark.spec("SCHED-1")
def test_tenants_have_their_own_schedules(cli_):
    """The same name, and not each other's."""
    cli_(*NIGHTLY)
    cli_(*NIGHTLY, "--tenant", "acme")
    assert "TENANT" in cli_("schedule", "ls").stdout
    assert cli_.json("schedule", "ls", "--tenant", "acme")["tenant"] == "acme"
    cli_("schedule", "rm", "nightly", "--tenant", "acme")
    assert cli_.json("schedule", "ls")["tenant"] == "default"


def test_a_type_that_no_worker_has_published_gives_a_warning(cli_):
    """It is accepted all the same."""
    found = cli_(*NIGHTLY)
    assert found.exit_code == 0
    assert "no worker has published shop.report.v1 in this store" in found.stderr


@pytest.mark.spec("SCHED-1", "CLI-3")
def test_a_bare_name_that_nobody_has_published_is_kept_and_says_so(cli_, work):
    """The list and the schedule itself say so, until a worker has published a version."""
    made = cli_("schedule", "add", "nightly", "shop.report", "--cron", "0 3 * * *")
    assert made.exit_code == 0, made.stderr
    assert "it cannot fire here: no version of shop.report is published yet: start a worker" in made.stdout
    assert "no worker has published shop.report in this store; it does not fire until" in made.stderr
    assert "no version of shop.report is published yet" in cli_("schedule", "ls").stdout
    assert cli_.json("schedule", "ls")["trouble"].startswith("no version of shop.report is published yet")
    assert "no version of shop.report is published" in cli_.refused("schedule", "fire", "nightly", code=1)
    work(report=lambda _: None)
    assert cli_.json("schedule", "ls")["trouble"] is None
    assert "shop.report" in cli_("schedule", "ls").stdout


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("add", "x", "shop.report.v1"), 2, "give --cron '0 3 * * *' or --every 15m"),
        (("add", "x", "shop.report.v1", "--cron", "99 * * * *"), 2, "cron '99 * * * *': bad minute"),
        (("add", "x", "shop.report.v1", "--cron", "0 0 31 2 *"), 2, "never fires"),
        (("add", "x", "shop.report.v1", "--cron", "0 3 * * *", "--zone", "Mars"), 2, "--zone 'Mars' is not"),
        (("add", "x", "shop.report.v1", "--every", "0.1s"), 2, "--every is 0.1 s: give at least 1"),
        (("add", "x", "shop.report.v1", "--every", "60", "--cron", "0 3 * * *"), 2,
         "needs either --cron or --every, as in --cron '0 3 * * *' or --every 900"),
        (("add", "x", "shop.report.v1", "--every", "60", "--zone", "UTC"), 2, "no meaning for --every"),
        (("add", "x", "shop.report.v1", "--every", "60", "--catch-up", "two"), 2, "'two': give one"),
        (("add", "x", "shop.report.v1", "--every", "soon"), 2, "'soon' is not a duration"),
        (("add", "x", "shop.report.v1", "{", "--every", "60"), 2, "is not JSON"),
        (("add", "x", "shop.report.v1", "--every", "60", "--overlap", "maybe"), 2, "one of skip, allow"),
        (("add", "x", "shop.v1", "--every", "60"), 2, "'shop.v1' is not a workflow type"),
        (("show", "x"), 1, "no schedule 'x': `holdfast schedule ls` lists"),
        (("pause", "x"), 1, "no schedule 'x'"),
        (("resume", "x"), 1, "no schedule 'x'"),
        (("fire", "x"), 1, "no schedule 'x'"),
        (("rm", "x"), 1, "no schedule 'x'"),
        (("remove", "x"), 2, "schedule has no command 'remove'"),
    ],
)  # fmt: skip
def test_every_mistake_is_one_line(cli_, args, code, said):
    """The line says what is wrong and how to fix it."""
    cli_("migrate")
    assert said in cli_.refused("schedule", *args, code=code)


def test_without_keys_nothing_plain_is_added_to_an_encrypted_store(cli_):
    """No app would take what it starts; with them, what is added is sealed."""
    keys = {"HOLDFAST_KEYS": f"2026-11={Encrypt.new_key()}"}
    cli_("start", "shop.report.v1", env=keys)
    assert "values in this store are encrypted" in cli_.refused(*NIGHTLY, code=2)
    cli_(*NIGHTLY, env=keys)
    assert '{"n":1}' in cli_("schedule", "show", "nightly", env=keys).stdout
    assert '{"n":1}' not in cli_("schedule", "show", "nightly").stdout
    assert "sealed" in cli_.refused("schedule", "fire", "nightly", code=1)


@pytest.mark.spec("SCHED-1", "LIMIT-1", "COST-2", "TTL-1")
def test_the_options_of_the_runs_of_a_schedule_are_set_and_shown(cli_):
    """Limit key, budget and how long it is kept; and `show` says it."""
    cli_(*NIGHTLY, "--limit-key", "api", "--budget", 2.5, "--ttl", "2d")
    made = cli_.json("schedule", "show", "nightly")
    assert [made[name] for name in ("limit_key", "budget", "ttl_seconds")] == ["api", 2.5, 172800]
    shown = cli_("schedule", "show", "nightly").stdout
    assert "limit key  api\n" in shown
    assert "budget     2.5\n" in shown
    assert "runs kept  2 d after their end\n" in shown
    assert "fired      0 times\n" in shown
    cli_("schedule", "fire", "nightly")
    assert "fired       1 time\n" in cli_("schedule", "show", "nightly").stdout
