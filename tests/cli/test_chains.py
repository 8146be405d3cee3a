"""Chains on the command line: by the id of any of its runs, a chain is one run."""

from __future__ import annotations

import json

import pytest

SHOP = "shop.order.v1"


async def order(ctx, n: int = 0):
    """It takes an event a run, and ends with the third."""
    event = await ctx.await_event("paid")
    if n < 2:
        ctx.continue_as(n + 1)
    return event.payload


@pytest.fixture
def ids(cli_, work):
    """A chain of three runs, oldest first; the last one waits."""
    first = cli_.start(SHOP, "0")
    for n in (1, 2):
        cli_("emit", "paid", str(n))
        work(order=order)
    listed = [line["id"] for line in reversed(_lines(cli_("ls", "--json").stdout))]
    assert listed[0] == first
    return listed


def _lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.spec("FLOW-24", "CLI-1")
def test_a_chain_is_shown_and_its_present_run_is_named(cli_, ids):
    first, middle, last = ids
    shown = [cli_.json("show", run) for run in ids]
    assert [(one["chain"], one["present"]) for one in shown] == [(first, last)] * 3
    assert f"continued  as run {last}" in cli_("show", first).stdout
    assert f"began with run {first}" in cli_("show", middle).stdout
    assert "continued  as run" not in cli_("show", last).stdout
    assert cli_("ls").stdout.count(f"continued as run {last[-8:]}") == 2
    assert cli_.json("explain", first)["id"] == last


@pytest.mark.spec("FLOW-24", "CLI-1")
def test_verbs_by_the_first_id_act_on_the_present_run(cli_, ids, work):
    first, _, last = ids
    assert cli_.json("pause", first)["id"] == last
    assert cli_.json("resume", first)["id"] == last
    assert str(last) in cli_.refused("rewind", first, "event:paid", code=1)
    assert cli_.json("emit", "paid", "7", "--run", first)["woken"] == 1
    work(order=order)
    assert cli_.json("result", first) | {"error": None} == {
        "id": last, "type": SHOP, "status": "succeeded", "result": 7, "error": None,
    }  # fmt: skip
    assert "deleted" in cli_("delete", first).stdout
    assert cli_("ls", "--json").stdout == ""
    cli_("restore", first)
    assert len(_lines(cli_("ls", "--json").stdout)) == 3


@pytest.mark.spec("FLOW-24", "CLI-1")
def test_a_chain_is_cancelled_by_its_first_id(cli_, ids):
    assert cli_.json("cancel", ids[0])["id"] == ids[2]
    assert cli_.refused("result", ids[0], code=1)


@pytest.mark.spec("FLOW-24", "CLI-1")
def test_an_open_chain_is_not_deleted_by_its_first_id_without_asking(cli_, ids):
    """The named run has succeeded; its chain is open, and goes as a whole."""
    first, _, last = ids
    refused = cli_("delete", first)
    assert refused.exit_code != 0
    assert "add --yes" in refused.stderr
    assert f"its whole chain up to {last[-8:]}" in refused.stderr
    assert cli_("delete", first, "--yes").exit_code == 0
