"""`holdfast stats` and `holdfast metrics`: numbers for people and for machines."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest
import yaml

from holdfast.cli.commands.telemetry import stats as command
from holdfast.records import Counted, Counts, Rate, Scope, instant
from holdfast.shown.counts import counts_data
from tests.cli.conftest import Cli
from tests.client.kit import Serving, shop

LINES = [
    "  runs       5: 3 pending, 2 succeeded",
    "  slots      no live worker",
    "  outbox     1 pending, the oldest for",
    "  last hour  5 started, 2 succeeded",
]


@pytest.fixture
def filled(url, work):
    """A store with runs of two types, two tenants, and a message that nobody takes."""

    async def order(ctx, params=None):
        return params

    async def mail(ctx, params=None):
        ctx.send("crm", {"a": 1})

    cli = Cli(url)
    cli.start("shop.order.v1", "--delay", "1h")
    cli.start("shop.order.v1")
    cli.start("shop.mail.v1")
    work(order=order, mail=mail)
    cli.start("shop.order.v1", "--tenant", "acme")
    cli.start("shop.order.v1")
    return cli


@pytest.mark.spec("CLI-1", "OPS-7")
def test_the_overview_says_how_many_what_is_due_and_the_last_hour(filled):
    told = filled("stats")
    assert told.exit_code == 0, told.stderr
    lines = told.stdout.splitlines()
    for expected in LINES:
        assert any(line.startswith(expected) for line in lines), (expected, told.stdout)
    assert any(line.startswith("  due        2, the oldest for ") for line in lines)
    head, row = (line.split() for line in lines[lines.index("") + 1 :][:2])
    assert head == ["TYPE", "DUE", "OLDEST", "PENDING", "SUCCEEDED", "STARTED/H"]
    assert (row[0], row[1], row[-3:]) == ("shop.order.v1", "2", ["3", "1", "4"])


@pytest.mark.spec("CLI-2", "OPS-7")
def test_the_document_for_machines_has_the_shapes_of_the_http_api(filled):
    told = filled.json("stats")
    assert told["counts"]["by_status"] == {"pending": 3, "succeeded": 2}
    assert (told["scale"]["due"], told["scale"]["leased"], told["scale"]["load"]) == (2, 0, 2)
    assert [(one["sink"], one["pending"], one["dead"]) for one in told["outbox"]] == [("crm", 1, 0)]
    assert (told["workers"], told["slots"]) == (0, 0)
    assert told["last_hour"]["shop.mail.v1"] == {"started": 1, "succeeded": 1}


@pytest.mark.spec("CLI-2")
def test_one_tenant_is_shown_without_what_belongs_to_the_store(filled):
    told = filled.json("stats", "--tenant", "acme")
    assert told["counts"]["by_type"] == {"shop.order.v1": {"pending": 1}}
    assert (told["workers"], told["outbox"]) == (None, None)
    assert "outbox" not in filled("stats", "--tenant", "acme").stdout


def test_an_empty_store_is_no_error(cli_):
    assert cli_("migrate").exit_code == 0
    told = cli_("stats")
    assert told.exit_code == 0
    assert [line.split(None, 1)[1].removeprefix("hour").strip() for line in told.stdout.splitlines()] == [
        "0", "none", "no live worker", "nothing pending", "nothing",
    ]  # fmt: skip


def test_many_types_are_cut_and_the_rest_is_counted(filled):
    lines = filled("stats", "--types", 1).stdout.splitlines()
    assert lines[-1] == "and 1 more type: give --types 2, or --json"
    assert "TYPE" not in filled("stats", "--types", 0).stdout


@pytest.mark.spec("CLI-1", "TEN-1")
def test_through_the_api_a_tenant_sees_its_own_runs_and_an_operator_all():
    with Serving(shop(), open=False) as server:
        server.run(server.app.start("shop.quick.v1", delay=60))
        server.run(server.app.of("acme").start("shop.quick.v1"))
        ended = server.run(server.app.of("acme").start("shop.quick.v1"))
        server.run(ended.cancel())
        for scopes, tenant, runs, workers in (
            ([Scope.METRICS], "acme", {"pending": 1, "cancelled": 1}, None),
            ([Scope.OPERATOR], "acme", {"pending": 2, "cancelled": 1}, 0),
        ):
            made = server.run(server.app.create_key(str(scopes[0]), scopes=scopes, tenant=tenant))
            told = Cli(server.url)("stats", "--json", env={"HOLDFAST_KEY": made.secret})
            assert told.exit_code == 0, told.stderr
            seen = json.loads(told.stdout)
            assert (seen["counts"]["by_status"], seen["workers"]) == (runs, workers)


def test_the_last_hour_is_read_to_its_end_page_by_page(monkeypatch):
    """Each page begins with the last minute of the one before; nothing is counted twice or left out."""
    now = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
    minute = 60_000_000
    first = instant(now.replace(minute=0, second=0))
    every = [
        Rate(minute=first + n * minute, type=type_, what=Counted.STARTED, number=1)
        for n in range(-59, 1)
        for type_ in ("a", "b", "c")
    ]
    monkeypatch.setattr(command, "RATES_MAX", 4)

    class Client:
        async def rates(self, since):
            return [one for one in every if one.minute > instant(since) - minute][:4]

    counts = counts_data(Counts(now=instant(now), by_type={}, totals={}))
    assert asyncio.run(command._last_hour(Client(), counts)) == every


@pytest.mark.spec("CLI-1", "OPS-2")
def test_the_dashboard_and_the_rules_are_printed_without_a_store(cli_):
    told = cli_("metrics", "dashboard")
    assert (told.exit_code, json.loads(told.stdout)["title"]) == (0, "Holdfast")
    told = cli_("metrics", "rules")
    assert (told.exit_code, list(yaml.safe_load(told.stdout))) == (0, ["groups"])
    assert cli_("metrics").stdout.startswith("Usage:")
