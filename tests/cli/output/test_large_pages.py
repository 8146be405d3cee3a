"""Lists of runs, gates and messages whose values fill many pages: nothing is left out where one page ends."""

from __future__ import annotations

import json

import pytest

from holdfast import App
from holdfast.testing import Rehearsal

LARGE = "x" * 4_000


@pytest.fixture(autouse=True)
def small_pages(monkeypatch):
    """Two large values fill a page."""
    monkeypatch.setattr("holdfast.bounds.BATCH_BYTES", 10_000)


@pytest.mark.spec("READ-1", "CLI-4")
def test_ls_and_find_go_on_after_a_page_that_ended_early(cli_):
    runs = [cli_.start("shop.order.v1", json.dumps(LARGE)) for _ in range(7)][::-1]
    listed = [json.loads(line)["id"] for line in cli_("ls", "--json", "--limit", "100").stdout.splitlines()]
    assert listed == runs
    first = cli_("ls", "--limit", "5")
    assert [line.split()[0] for line in first.stdout.splitlines()[1:]] == [run[-8:] for run in runs[:5]]
    assert first.stderr == f"more: holdfast ls --limit 5 --after {runs[4]}\n"
    assert json.loads(cli_("show", runs[-1][-8:], "--json").stdout)["id"] == runs[-1]


async def gated(ctx, n):
    ctx.log("much", text=LARGE)
    await ctx.approval("ship", ask="Ship it?", data=[n, LARGE])


@pytest.mark.spec("READ-1", "APPR-7")
def test_a_rehearsal_shows_all_runs_gates_and_trail_rows():
    app = App()
    app.workflow("shop.gated.v1")(gated)
    with Rehearsal(app) as stage:
        runs = [stage.start("shop.gated.v1", n) for n in range(7)]
        stage.advance(1)
        assert len(stage.approvals()) == 7
        assert [run.id for run in stage.runs()] == [run.id for run in runs]
        assert [row.type for row in runs[0].trail()] == [
            "created", "leased", "started", "log", "approval_opened",
        ]  # fmt: skip
