"""Commands that the output tells people to type work when they are pasted, wherever the store is."""

from __future__ import annotations

import json
import re
import shlex

import pytest

import holdfast as hf
from holdfast.engine.app.client import StoreClient
from tests.cli.conftest import Cli

SHOP = "shop.order.v1"


async def order(ctx, how=None):
    if how == "fail":
        raise hf.Fatal("no stock")
    return await ctx.approval("is it ok?")


def told(found):
    """The commands in what was printed, without the program's name."""
    said = found.stdout + found.stderr
    lines = re.findall(r"`holdfast ([^`]*)`|(?:more|one): holdfast (.*)", said)
    return [shlex.split(one or other) for one, other in lines]


def typed(cli_, found):
    """Each of them, typed where nothing else says which store is meant."""
    return [(words[0], cli_(*words, store=False)) for words in told(found)]


def pasted(cli_, *args):
    """Run every command that the output of this one suggests."""
    done = typed(cli_, cli_(*args, "--store", cli_.url, store=False))
    assert done
    return done


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("ls",), ["start"]),
        (("ls", "--status", "failed"), ["ls"]),
        (("show", "0199c0de-7a31"), ["ls"]),
        (("schedule", "show", "nightly"), ["schedule"]),
        (("outbox", "show", "msg_0199c0de"), ["outbox"]),
        (("limit", "rm", "--type", "shop.%"), ["limit"]),
        (("sink", "rm", "carrier"), ["sink"]),
    ],
)
def test_the_command_to_type_on_an_empty_store_works(cli_, args, expected):
    cli_("migrate")
    done = pasted(cli_, *args)
    assert [(name, found.exit_code) for name, found in done] == [(name, 0) for name in expected]


@pytest.mark.spec("CLI-2")
def test_commands_to_type_for_a_waiting_a_failed_and_a_deleted_run_work(cli_, work):
    failed, gated = cli_.start(SHOP, '"fail"'), cli_.start(SHOP)
    work(order=order)
    for args, expected in (
        (("result", failed), ["show", "retry"]),
        (("delete", gated, "--yes"), ["restore"]),
        (("explain", gated), ["approve"]),
    ):
        done = pasted(cli_, *args)
        assert [(name, one.exit_code) for name, one in done] == [(name, 0) for name in expected], args
    rows = [json.loads(line) for line in cli_("ls", "--json").stdout.splitlines()]
    assert [row["status"] for row in rows] == ["pending", "pending"]


@pytest.mark.spec("CLI-2", "CLI-4")
def test_the_next_page_has_the_options_of_this_one(cli_):
    for n in range(4):
        cli_.start(SHOP, "--tenant", "a b", "--label", f"n={n}")
        cli_.start("shop.refund.v1", "--tenant", "a b")
    options = ("--type", "shop.order", "--tenant", "a b", "--status", "pending", "--status", "failed")
    first = cli_("ls", *options, "--limit", 3, "--store", cli_.url, store=False)
    ((_, second),) = pasted(cli_, "ls", *options, "--limit", 3)
    assert second.exit_code == 0
    assert [len(page.stdout.splitlines()) for page in (first, second)] == [4, 2]
    assert "refund" not in second.stdout
    assert second.stderr == ""


@pytest.mark.spec("CLI-2")
def test_a_store_of_the_environment_is_not_repeated(cli_):
    cli_("migrate")
    assert told(cli_("show", "0199c0de-7a31")) == [["ls"]]
    assert "--store" not in cli_("ls").stderr


@pytest.mark.spec("CLI-2", "CLI-3")
def test_on_a_server_every_option_is_named_and_the_password_is_not(postgres_database):
    """Its place is shown; this server lets everyone in, so that what was told can be tried."""
    there = Cli(postgres_database.url.replace("postgres@", "postgres:open-sesame@") + "&schema=mine")
    found = there("ls", "--store", there.url, store=False)
    assert "open-sesame" not in found.stderr
    assert ":PASSWORD@" in found.stderr
    assert [(name, one.exit_code) for name, one in pasted(there, "ls")] == [("migrate", 0)]
    assert [(name, one.exit_code) for name, one in pasted(there, "ls")] == [("start", 0)]


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize("command", ["result", "start"])
def test_when_the_store_goes_down_during_a_wait_the_command_to_continue_is_printed(
    cli_, monkeypatch, command
):
    async def final(*_):
        raise hf.Unavailable("the server is away")

    run = cli_.start(SHOP)
    monkeypatch.setattr(StoreClient, "final", final)
    args = ("result", run) if command == "result" else ("start", SHOP, "--wait")
    found = cli_(*args, "--store", cli_.url, store=False)
    monkeypatch.undo()
    assert found.exit_code == 3
    ((verb, which, *_),) = told(found)
    assert (verb, len(which)) == ("result", 8)
    assert found.stderr.endswith("holdfast: the server is away\n")
    cli_("cancel", which)
    assert [(name, one.exit_code) for name, one in typed(cli_, found)] == [("result", 1)]
