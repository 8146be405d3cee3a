"""Gates and children on the command line: what waits, who decides, what a run has started."""

from __future__ import annotations

import asyncio
import getpass
import re
import shlex
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast import App
from holdfast.http.gate_links import read_link
from holdfast.http.signing import Signing
from holdfast.world import RealWorld

SHOP = "shop.order.v1"


async def order(ctx, total: int | None):
    gate = await ctx.approval("big-order", ask=f"Ship for {total}?", data={"total": total}, timeout=3600)
    return [gate.approved, gate.by, gate.comment]


@pytest.fixture
def gated(cli_, work):
    run = cli_.start(SHOP, "2000")
    work(order=order)
    return run


@pytest.mark.spec("CLI-1", "APPR-7")
def test_approvals_lists_what_waits_for_a_decision(cli_, gated):
    told = cli_("approvals").stdout
    assert gated[-8:] in told
    assert "big-order" in told
    assert "Ship for 2000?" in told
    gate = cli_.json("approvals")
    assert (gate["run"], gate["step"], gate["data"]) == (gated, "big-order", {"total": 2000})
    assert gate["digest"]
    assert cli_("approvals", "--tenant", "acme").stdout == "no gate waits for a decision\n"
    assert cli_("approvals", "--after", gated, "big-order").stdout == "no gate waits for a decision\n"


def test_approvals_prints_signed_links_to_gates(cli_, gated):
    told = cli_("approvals", "--link", "https://flows.example.org/", "--valid", "2h").stdout
    link = told.splitlines()[-1].partition(": ")[2]
    assert link.startswith("https://flows.example.org/ui/approvals/gate?link=")
    assert cli_.json("approvals", "--link", "https://flows.example.org")["link"].partition("?")[0] in link

    async def facts():
        app = App(cli_.url)
        await app.store.open()
        try:
            signing = Signing(app.store, RealWorld())
            await signing.read()
            return await read_link(signing, parse_qs(urlsplit(link).query)["link"][0], datetime.now(UTC))
        finally:
            await app.close()

    found = asyncio.run(facts())
    assert (str(found.run), found.step, found.tenant) == (gated, "big-order", "default")
    assert 7190 < (found.until - datetime.now(UTC)).total_seconds() <= 7200
    assert "URL of a server" in cli_("approvals", "--link", "flows.example.org").stderr
    assert "--link URL" in cli_("approvals", "--valid", "2h").stderr


@pytest.mark.spec("CLI-1", "APPR-7")
def test_the_next_page_of_approvals_is_a_command_to_copy(cli_, work):
    """Each word quoted, with the options of this page; and none where there is no more."""

    async def two(ctx):
        await asyncio.gather(ctx.approval("is it ok?"), ctx.approval("and $this"))

    cli_.start("shop.two.v1", "--tenant", "a b")
    work(two=two)
    told = cli_("approvals", "--tenant", "a b", "--limit", "1", "--store", cli_.url, store=False)
    more, holdfast, *words = shlex.split(told.stderr)
    assert (more, holdfast, len(told.stdout.splitlines())) == ("more:", "holdfast", 2)
    again = cli_(*words, store=False)
    assert again.exit_code == 0
    listed = {name for name in ("is it ok?", "and $this") for page in (told, again) if name in page.stdout}
    assert listed == {"is it ok?", "and $this"}
    assert again.stderr == ""


@pytest.mark.spec("CLI-1", "APPR-7")
def test_approvals_names_the_tenant_when_there_are_several(cli_, gated, work):
    assert "TENANT" not in cli_("approvals").stdout
    cli_.start(SHOP, "5", "--tenant", "acme")
    work(order=order)
    head, *rows = cli_("approvals").stdout.splitlines()
    assert head.split()[:4] == ["RUN", "GATE", "TYPE", "TENANT"]
    assert [row.split()[3] for row in rows] == ["default", "acme"]


@pytest.mark.spec("CLI-1", "APPR-7")
def test_approvals_shows_data_as_json(cli_, work):
    async def ask(ctx):
        await ctx.approval("gate", ask="Ship?", data={"to": "Zürich", "gift": True, "note": None})

    cli_.start("shop.ask.v1")
    work(ask=ask)
    assert 'Ship?  {"to":"Zürich","gift":true,"note":null}' in cli_("approvals").stdout


@pytest.mark.spec("CLI-1", "APPR-6")
def test_approve_says_what_was_decided_by_whom_and_the_new_status(cli_, gated, work):
    short = gated[-8:]
    said = cli_("approve", short, "--comment", "fine").stdout
    assert (
        said
        == f"{short} ({SHOP}): gate 'big-order' approved by {getpass.getuser()}; the run is now pending\n"
    )
    work(order=order)
    assert cli_.json("result", gated)["result"] == [True, getpass.getuser(), "fine"]
    again = cli_("approve", short, "big-order", "--by", "Ann").stdout
    assert "it was decided before, nothing changed" in again
    assert f"gate big-order approved by {getpass.getuser()}: fine" in cli_("trail", gated).stdout
    assert f"approved by {getpass.getuser()}: fine" in cli_("show", gated).stdout


@pytest.mark.spec("CLI-1", "APPR-4")
def test_reject_is_a_decision_too(cli_, gated, work):
    told = cli_.json("reject", gated, "big-order", "--by", "Ann")
    assert (told["approved"], told["by"], told["repeated"], told["status"]) == (
        False,
        "Ann",
        False,
        "pending",
    )
    work(order=order)
    assert cli_.json("result", gated)["result"] == [False, "Ann", ""]


@pytest.mark.spec("CLI-3", "APPR-3")
def test_a_decision_that_is_not_possible_is_refused_in_one_line(cli_, gated, work):
    assert "its gates so far: 'big-order'" in cli_.refused("approve", gated, "other", code=1)
    assert "digest" in cli_.refused("approve", gated, "--digest", "x", code=1)
    cli_("approve", gated)
    assert "has been approved" in cli_.refused("reject", gated, code=1)
    lonely = cli_.start("shop.later.v1")
    assert "no open gate" in cli_.refused("approve", lonely, code=1)
    assert "no run" in cli_.refused("approve", "0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10", code=1)


@pytest.mark.spec("CLI-4", "EXPL-1")
def test_show_and_explain_say_what_a_gate_asks_and_how_to_decide_it(cli_, gated):
    shown = cli_("show", gated).stdout
    assert "a decision at gate big-order" in shown
    assert "asks: Ship for 2000?" in shown
    said = cli_("explain", gated).stdout
    assert f"`holdfast approve {gated} big-order`" in said


@pytest.fixture
def family(cli_, work):
    async def ship(ctx):
        await ctx.await_event("shipped")

    async def parent(ctx):
        await ctx.start("shop.ship.v1", key="loose")
        await ctx.call("shop.ship.v1", key="awaited")

    run = cli_.start("shop.parent.v1")
    work(parent=parent, ship=ship)
    work(parent=parent, ship=ship)
    return run


@pytest.mark.spec("CLI-4", "EXPL-1")
def test_show_names_parent_and_children(cli_, family):
    told = cli_.json("show", family)
    children = [one["id"] for one in told["children"]]
    assert len(children) == 2
    shown = cli_("show", family).stdout
    assert all(child[-8:] in shown for child in children)
    child = cli_.json("show", children[0])
    assert (child["parent"], child["parent_step"]) == (family, "awaited")
    assert "parent" in cli_("show", children[0]).stdout
    said = cli_.json("explain", family)
    assert said["data"]["waiting_on"][0]["child_status"] == "waiting"
    assert "(shop.ship.v1, waiting)" in said["text"]


@pytest.mark.spec("CLI-1", "CANC-5")
@pytest.mark.parametrize(("option", "status"), [([], "cancelled"), (["--keep-children"], "waiting")])
def test_cancel_also_cancels_children_unless_they_are_kept(cli_, family, option, status):
    cli_("cancel", family, *option)
    assert [one["status"] for one in cli_.json("show", family)["children"]] == [status] * 2


@pytest.mark.spec("CLI-1", "REW-3")
@pytest.mark.parametrize(("option", "status"), [([], "cancelled"), (["--keep-children"], "waiting")])
def test_rewind_cancels_forgotten_children_unless_they_are_kept(cli_, family, option, status):
    cli_("rewind", family, "loose", *option)
    assert [one["status"] for one in cli_.json("show", family)["children"]] == [status] * 2


@pytest.mark.spec("COST-2", "EXPL-1")
def test_a_budget_is_given_at_start_and_shown(cli_, work):
    async def spend(ctx):
        await ctx.step("one", lambda: ctx.cost(2))
        await ctx.step("two", lambda: ctx.cost(2))

    run = cli_.start("shop.spend.v1", "--budget", "1.5")
    work(spend=spend)
    assert cli_.json("show", run)["status"] == "paused"
    assert re.search(r"^ +cost +2\.00 of 1\.50$", cli_("show", run).stdout, re.MULTILINE)
    for command in (["ls"], ["show", run]):
        assert "paused: budget 1.50 reached" in cli_(*command).stdout
    said = cli_.json("explain", run)
    assert (said["reason"], said["data"]["cost"], said["data"]["budget"]) == ("budget", 2, 1.5)
    assert "paused: budget 1.50 reached" in said["text"]
    assert cli_.json("show", run)["pause_asked_by"] == "budget"
    assert "it has spent 2.00 of its budget of 1.50" in cli_.refused("resume", run, code=1)
    assert "it has spent 2.00: a budget of 2.00 is too low" in cli_.refused(
        "resume", run, "--budget", 2, code=1
    )
    assert "is now pending; its budget is 5.00" in cli_("resume", run, "--budget", 5).stdout
    assert "budget set to 5" in cli_("trail", run).stdout
    work(spend=spend)
    assert cli_.json("show", run)["status"] == "succeeded"
    assert "budget" in cli_.refused("start", "shop.spend.v1", "--budget", "-1", code=2)


@pytest.mark.spec("COST-2", "EXPL-1")
def test_explain_names_the_least_budget_for_a_step_that_may_cost_too_much(cli_, work):
    async def dear(ctx):
        await ctx.step("one", lambda: ctx.cost(0.3))
        await ctx.step("two", lambda: ctx.cost(0.1), cost_max=1)

    run = cli_.start("shop.dear.v1", "--budget", "1.25")
    work(dear=dear)
    text = cli_.json("explain", run)["text"]
    assert "It has cost 0.30." in text
    assert "with a budget of at least 1.30." in text
    assert "its budget is 1.30" in cli_("resume", run, "--budget", 1.3).stdout
    work(dear=dear)
    assert cli_.json("show", run)["status"] == "succeeded"


@pytest.mark.spec("EXPL-1")
def test_a_deleted_run_is_explained(cli_, gated):
    cli_("delete", gated, "--yes")
    said = cli_.json("explain", gated)
    assert said["reason"] == "deleted"
    assert f"holdfast restore {gated}" in said["text"]
