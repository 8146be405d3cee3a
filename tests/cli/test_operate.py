"""Commands that change a run, and illegal moves, which are refused."""

from __future__ import annotations

import asyncio
import getpass

import pytest

from holdfast import App, Backoff
from holdfast.records import Ask

SHOP = "shop.order.v1"


async def order(ctx):
    await ctx.step("reserve", lambda: 1)
    await ctx.step("charge", lambda: 2)
    await ctx.await_event("paid")


@pytest.fixture
def waiting(cli_, work):
    run = cli_.start(SHOP)
    work(order=order)
    return run


@pytest.mark.spec("CLI-1")
def test_pause_resume_and_cancel_say_what_the_run_is_now(cli_, waiting):
    short = waiting[-8:]
    assert cli_("pause", short).stdout == f"{short} ({SHOP}) is now paused\n"
    assert cli_("resume", short).stdout == f"{short} ({SHOP}) is now waiting\n"
    assert cli_("cancel", short).stdout == f"{short} ({SHOP}) is now cancelled\n"
    assert cli_.json("cancel", short)["status"] == "cancelled"


@pytest.mark.spec("CLI-1", "START-13")
def test_prioritize_says_the_priority_and_the_trail_who_gave_it(cli_, waiting):
    short = waiting[-8:]
    assert cli_("prioritize", short, "5").stdout == f"{short} ({SHOP}) has priority 5\n"
    assert cli_.json("prioritize", short, "7", "--by", "ada")["priority"] == 7
    assert "priority set to 7 by ada" in cli_("trail", short).stdout
    assert cli_("prioritize", short, "1000").exit_code == 2


@pytest.mark.spec("CLI-1", "PAUSE-1")
@pytest.mark.parametrize(("by", "whose"), [("ada", " by ada"), ("", "")])
def test_a_requested_pause_is_shown_with_the_name_of_the_requester(cli_, url, by, whose):
    run = cli_.start(SHOP)

    async def hold_and_pause():
        app = App(url)
        await app.store.open()
        await app.store.claim(Ask(worker="w", types=(SHOP,), limit=1))
        await app.pause(run, by=by)
        await app.close()

    asyncio.run(hold_and_pause())
    assert f"; a pause was requested{whose}\n" in cli_("show", run).stdout
    again = cli_("pause", run).stdout
    assert again.endswith(f"is still running; it pauses at its next step, as requested{whose}\n")


@pytest.mark.spec("CLI-1")
def test_rewind_forgets_a_step_and_all_later_ones(cli_, waiting):
    assert cli_.json("rewind", waiting, "charge")["status"] == "pending"
    assert [step["step"] for step in cli_.json("show", waiting)["steps"]] == ["reserve"]


@pytest.mark.spec("CLI-1", "REW-1")
def test_rewind_to_the_beginning_needs_its_own_option(cli_, waiting):
    """A step that was forgotten to be typed must not cost all of them."""
    for wrong in ([], ["charge", "--beginning"]):
        refused = cli_("rewind", waiting, *wrong)
        assert refused.exit_code == 2
        assert "name a STEP from `holdfast show`, or give --beginning" in refused.stderr
    cli_("cancel", waiting)
    assert cli_.json("rewind", waiting, "--beginning")["status"] == "pending"
    assert cli_.json("show", waiting)["steps"] == []


@pytest.mark.spec("CLI-3")
def test_rewind_to_an_unknown_step_names_the_known_ones(cli_, waiting):
    line = cli_.refused("rewind", waiting, "chrge", code=1)
    assert "reserve" in line
    assert "charge" in line


@pytest.mark.spec("CLI-1")
def test_retry_lets_a_failed_run_continue_where_it_failed(cli_, work):
    tries = []

    async def flaky(ctx):
        async def boom():
            tries.append(1)
            if len(tries) == 1:
                raise ValueError("not yet")
            return "now"

        return await ctx.step("boom", boom, retry=Backoff.none())

    run = cli_.start("shop.flaky.v1")
    work(flaky=flaky)
    assert cli_.json("show", run)["status"] == "failed"
    assert cli_.json("retry", run, "--by", "Ann")["status"] == "pending"
    work(flaky=flaky)
    assert cli_("result", run).stdout == '"now"\n'
    assert "retried by Ann" in cli_("trail", run).stdout


@pytest.mark.spec("CLI-3", "MOVE-1")
@pytest.mark.parametrize("verb", ["pause", "resume", "retry"])
def test_an_illegal_move_is_refused_with_the_true_status(cli_, waiting, verb):
    cli_("cancel", waiting)
    line = cli_.refused(verb, waiting, code=1)
    assert waiting in line
    assert "it is cancelled" in line


def test_by_is_the_systems_user_unless_given(cli_, waiting):
    cli_("pause", waiting)
    cli_("resume", waiting, "--by", "Ann")
    trail = cli_("trail", waiting).stdout
    assert f"paused by {getpass.getuser()}" in trail
    assert "resumed by Ann" in trail


@pytest.mark.spec("OPS-1")
def test_a_tick_prints_what_it_has_done(cli_):
    cli_.start(SHOP)
    assert cli_("tick").stdout == "nothing was due\n"
    ticked = cli_.json("tick")
    assert {"expired", "lapsed", "delivered", "timed_out", "fired", "failed"} <= set(ticked)
    assert not any(ticked.values())


@pytest.mark.spec("OPS-1")
def test_a_tick_wakes_due_runs_without_any_worker(cli_, work):
    async def short_sleep(ctx):
        await ctx.sleep(0.001)

    run = cli_.start("shop.short_sleep.v1", "--timeout", "1ms")
    ticked = cli_.json("tick")
    assert (ticked["timed_out"], ticked["failed"]) == (1, [run])
    assert cli_.json("show", run)["status"] == "failed"
