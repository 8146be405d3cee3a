"""`holdfast rerun`."""

from __future__ import annotations

import pytest


async def order(ctx, n: int = 0):
    return n


@pytest.mark.spec("RERUN-1", "CLI-1")
def test_a_rerun_prints_the_new_run_and_show_names_the_one_that_it_repeats(cli_, work):
    first = cli_.start("shop.order.v1", "7", "--key", "once", "--priority", "5", "--label", "team=a")
    again = cli_("rerun", first).stdout.strip()
    shown = cli_.json("show", again)
    assert [shown[name] for name in ("origin", "params", "priority", "labels", "key")] == [
        first, 7, 5, {"team": "a"}, None,
    ]  # fmt: skip
    assert f"run {first}" in cli_("show", again).stdout
    assert f"repeats run {first}" in cli_("trail", again).stdout
    assert cli_.json("show", first)["origin"] is None


@pytest.mark.spec("RERUN-1", "CLI-1")
def test_a_rerun_takes_other_params_and_prints_json(cli_):
    first = cli_.start("shop.order.v1", "7")
    said = cli_.json("rerun", first, "--params", '{"n": 8}', "--key", "k")
    assert (said["origin"], said["type"], said["created"]) == (first, "shop.order.v1", True)
    assert cli_.json("show", said["id"])["params"] == {"n": 8}
    assert "--params" in cli_.refused("rerun", first, "--params", "{", code=2)


@pytest.mark.spec("RERUN-1")
def test_a_deleted_run_cannot_be_repeated(cli_):
    first = cli_.start("shop.order.v1")
    cli_("delete", first, "--yes")
    cli_.refused("rerun", first, code=1)
