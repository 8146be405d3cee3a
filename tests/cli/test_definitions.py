"""`holdfast definitions`: the published workflows, and their schemas."""

from __future__ import annotations

import pytest


async def order(ctx, number: int) -> str:
    """Sell something."""


async def report(ctx):
    pass


@pytest.mark.spec("START-11", "CLI-1", "CLI-2")
def test_published_workflows_are_listed_and_one_is_shown_with_its_schemas(cli_, work):
    work(order=order, report=report)
    head, *rows = cli_("definitions").stdout.splitlines()
    assert head.split() == ["TYPE", "KIND", "ATTEMPTS", "TIMEOUT", "DESCRIPTION"]
    assert [row.split()[:2] for row in rows] == [["shop.order.v1", "code"], ["shop.report.v1", "code"]]
    assert rows[0].endswith("Sell something.")
    shown = cli_("definitions", "shop.order").stdout
    assert '  params  {"type":"integer"}' in shown
    assert '  result  {"type":"string"}' in shown
    found = cli_.json("definitions", "shop.order.v1")
    assert (found["params_schema"], found["result_schema"]) == ({"type": "integer"}, {"type": "string"})
    assert "did you mean shop.order" in cli_.refused("definitions", "shop.ordr", code=1)
    assert "no worker has published shop.order.v2" in cli_.refused("definitions", "shop.order.v2", code=1)
