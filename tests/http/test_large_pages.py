"""Pages of large values: no answer has much more than BATCH_BYTES, and all pages together have everything."""

from __future__ import annotations

import json

import pytest

import holdfast as hf
from holdfast.bounds import BATCH_BYTES
from tests.http.kit import Kit, store_of

PART, PARTS = 3 * 2**20, 5
KINDS = ["memory", "sqlite", "postgres", "redis"]


@pytest.fixture(params=KINDS)
def kit(request, tmp_path):
    app = hf.App(store_of(request.param, request, tmp_path))

    @app.workflow("shop.large.v1")
    async def large(ctx):
        for n in range(PARTS):
            ctx.log("large", value="x" * PART)
            await ctx.step(f"s{n}", lambda: "y" * PART)

    with Kit(app, open=True) as kit:
        kit.large = kit.run(app.start, large).id
        kit.work(kit.large)
        yield kit


@pytest.mark.spec("LEASE-19")
@pytest.mark.slow
def test_a_page_of_the_newest_has_a_bounded_number_of_bytes(kit):
    asked = f"/runs/{kit.large}/steps?newest=true&limit=500&largest={2**31 - 1}"
    seen, before = [], ""
    while True:
        answer = kit.ask("GET", asked + before)
        assert len(answer.content) < BATCH_BYTES + 2 * PART
        page = json.loads(answer.content)
        seen += [one["step"] for one in page["items"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert seen == [f"s{n}" for n in reversed(range(PARTS))]

    answer = kit.ask("GET", f"/runs/{kit.large}/events?newest=true&limit=500")
    assert len(answer.content) < BATCH_BYTES + 2 * PART
    types = [one["type"] for one in json.loads(answer.content)["items"]]
    assert types[-1] == "succeeded"
    assert 1 <= types.count("log") <= BATCH_BYTES // PART
