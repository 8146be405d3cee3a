"""`ls`, `show`, `trail`, `explain`, `result`: what people see, and what machines get."""

from __future__ import annotations

import json
import re

import pytest

from holdfast import Backoff
from holdfast.lifecycle import ALIASES, Status

SHOP = "shop.order.v1"


async def order(ctx, params=None):
    ctx.progress(1, 4, "reserving")
    await ctx.step("reserve", lambda: "shelf B4")
    await ctx.await_event("paid", timeout=3600)
    return "done"


async def broken(ctx):
    async def boom():
        raise ValueError("out of stock\nsorry")

    await ctx.step("boom", boom, retry=Backoff.none())


@pytest.fixture
def waiting(cli_, work):
    run = cli_.start(SHOP, '{"order": 7}')
    work(order=order)
    return run


@pytest.fixture
def failed(cli_, work):
    run = cli_.start("shop.broken.v1")
    work(broken=broken)
    return run


async def stubborn(ctx):
    await ctx.step("boom", lambda: 1 // 0, retry=Backoff.fixed(0.01, attempts=4))


@pytest.mark.spec("RETRY-10")
def test_a_run_that_failed_by_a_step_shows_the_attempts_of_that_step(cli_, work):
    run = cli_.start("shop.stubborn.v1")
    work(stubborn=stubborn)
    assert "4 of 4" in next(line for line in cli_("show", run).stdout.splitlines() if "attempts" in line)
    assert "boom: ZeroDivisionError: integer division or modulo by zero (4 of 4)" in cli_("ls").stdout
    shown, (listed,) = cli_.json("show", run), map(json.loads, cli_("ls", "--json").stdout.splitlines())
    for one in (shown, listed):
        assert (one["attempt"], one["max_attempts"]) == (4, 4)
    told = [line for line in cli_("trail", run).stdout.splitlines() if "attempt" in line]
    assert [line.count(f"attempt {n} of 4") for n, line in enumerate(told, 1)] == [1, 1, 1, 1]


@pytest.mark.spec("CLI-4")
def test_ls_lists_the_newest_first_with_its_news(cli_, waiting, failed):
    lines = cli_("ls").stdout.splitlines()
    assert lines[0].split() == ["RUN", "STATUS", "TYPE", "STARTED", "NEWS"]
    assert lines[1].split()[:3] == [failed[-8:], "failed", "shop.broken.v1"]
    assert "out of stock sorry" in lines[1]
    assert lines[2].split()[:3] == [waiting[-8:], "waiting", SHOP]
    assert "an event on 'paid'" in lines[2]


@pytest.mark.spec("CLI-4")
def test_ls_filters_by_status_type_and_tenant(cli_, waiting, failed):
    other = cli_.start("billing.invoice.v2", "--tenant", "acme")

    def listed(*filters):
        return [json.loads(line)["id"] for line in cli_("ls", "--json", *filters).stdout.splitlines()]

    assert listed() == [other, failed, waiting]
    assert listed("--status", "waiting") == [waiting]
    assert listed("--status", "failed", "--status", "waiting") == [failed, waiting]
    assert listed("--type", "shop.%") == [failed, waiting]
    assert listed("--type", "shop.order") == [waiting]
    assert listed("--type", "billing.invoice.v2") == [other]
    assert listed("--tenant", "acme") == [other]
    assert listed("--status", "waiting_approval") == []
    keyed = [cli_.start(SHOP, "--key", "order:7"), cli_.start(SHOP, "--key", "order:7", "--tenant", "acme")]
    assert listed("--key", "order:7") == keyed[::-1]
    assert listed("--key", "order:7", "--tenant", "acme") == keyed[1:]
    assert listed("--key", "order:8") == []


@pytest.mark.spec("CLI-4")
def test_ls_lists_the_children_of_a_run(cli_, work):
    async def family(ctx):
        await ctx.start("shop.order.v1")
        await ctx.start("shop.order.v1")

    parent, other = cli_.start("shop.family.v1"), cli_.start(SHOP)
    work(family=family, order=order)
    found = [json.loads(line) for line in cli_("ls", "--json", "--parent", parent[-8:]).stdout.splitlines()]
    assert [one["parent"] for one in found] == [parent, parent]
    assert cli_("ls", "--parent", other).stderr.startswith("no run matches")


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_status_words_of_other_engines_are_accepted(cli_, waiting, alias):
    assert cli_("ls", "--status", alias).exit_code == 0


@pytest.mark.spec("CLI-3")
def test_an_unknown_status_is_refused_with_all_known_ones(cli_, waiting):
    line = cli_.refused("ls", "--status", "sleeping", code=2)
    assert all(status in line for status in [*Status, *ALIASES])


@pytest.mark.spec("CLI-4")
def test_ls_pages_by_limit_and_after(cli_):
    runs = [cli_.start(SHOP) for _ in range(5)][::-1]
    first = cli_("ls", "--limit", 2)
    assert [line.split()[0] for line in first.stdout.splitlines()[1:]] == [run[-8:] for run in runs[:2]]
    assert first.stderr == f"more: holdfast ls --limit 2 --after {runs[1]}\n"
    rest = cli_("ls", "--json", "--after", runs[1][-8:]).stdout.splitlines()
    assert [json.loads(line)["id"] for line in rest] == runs[2:]


def test_an_empty_list_says_what_to_type(cli_):
    cli_("migrate")
    assert "start shop.order.v1" in cli_("ls").stderr
    assert "no run matches" in cli_("ls", "--status", "done").stderr


@pytest.mark.spec("CLI-4", "FLOW-23")
def test_show_has_all_facts_of_a_waiting_run(cli_, waiting):
    text = cli_("show", waiting).stdout
    facts = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert text.startswith(f"{waiting}  {SHOP}\n")
    assert "waiting" in facts["status"]
    assert "an event on 'paid', began " in facts["waits"]
    assert ", deadline " in facts["waits"]
    assert "last step  reserve (1 step finished)" in facts["last"]
    assert "attempts" not in facts, "no execution has begun since the last finished step"
    assert "1 of 4 (25%): reserving" in facts["progress"]
    assert '{"order":7}' in facts["params"]
    assert facts["reserve"].split()[1:4] == ["task", "succeeded", "1"]
    assert '"shelf B4"' in facts["reserve"]
    assert "waiting" in facts["event:paid"]


@pytest.mark.spec("CLI-4")
def test_show_says_why_a_run_failed(cli_, failed):
    text = cli_("show", failed).stdout
    assert "error        exhausted: " in text
    assert "attempts     1 of 1\n" in text
    assert "out of stock sorry" in text
    assert "raise ValueError" in text  # the place in the code
    boom = next(line for line in text.splitlines() if line.startswith("  boom"))
    assert "failed" in boom


@pytest.mark.spec("CLI-2")
def test_the_keys_of_a_run_as_json_are_stable(cli_, waiting):
    """Scripts live on these names."""
    shown = cli_.json("show", waiting)
    assert list(shown) == [
        "id", "type", "kind", "status", "tenant", "key", "priority", "run_at", "attempt", "max_attempts",
        "crashes", "fence", "cursor",
        "current_step_seq", "current_step_name", "waiting_on", "leased_by", "lease_until",
        "pause_asked_by", "last_error", "fingerprint", "progress",
        "cost", "budget", "shared_budget", "limit_key", "labels", "chain", "present", "parent", "parent_step",
        "origin", "timeout_at",
        "timeout_seconds",
        "ttl_seconds", "created_at", "updated_at", "started_at", "finished_at", "expires_at", "deleted_at",
        "params", "result", "error", "running", "children", "steps", "child_counts",
    ]  # fmt: skip
    assert list(shown["steps"][0]) == [
        "seq", "step", "kind", "status", "attempts", "max_attempts", "output", "error", "cost", "topic",
        "due_at", "started_at", "finished_at", "child", "ask", "digest",
    ]  # fmt: skip
    assert list(shown["waiting_on"][0]) == ["step", "kind", "topic", "child", "since", "due_at"]
    assert shown["created_at"].endswith("Z")


@pytest.mark.spec("TRAIL-3")
def test_the_trail_is_shown_in_words_and_in_data(cli_, waiting):
    heading, *lines = cli_("trail", waiting).stdout.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d, local time \(UTC[+-]\d\d:\d\d\)", heading)
    words = [line.split("  ", 1)[1] for line in lines]
    assert words[0] == "started as shop.order.v1"
    assert words[-2:] == ["step reserve succeeded", "waits for event 'paid'"]
    rows = [json.loads(line) for line in cli_("trail", waiting, "--json").stdout.splitlines()]
    assert [list(row) for row in rows] == [["seq", "run", "type", "at", "data"]] * len(rows)
    later = cli_("trail", waiting, "--json", "--after", rows[2]["seq"]).stdout.splitlines()
    assert [json.loads(line) for line in later] == rows[3:]


def test_the_trail_of_all_runs_names_each(cli_, waiting, failed):
    text = cli_("trail").stdout
    assert waiting[-8:] in text
    assert failed[-8:] in text


def test_following_an_ended_run_ends(cli_, failed):
    assert "failed, attempt 1 of 1 (exhausted)" in cli_("trail", failed, "--follow").stdout.splitlines()[-1]


@pytest.mark.spec("EXPL-1")
def test_explain_says_why_in_words_and_in_data(cli_, work):
    later = cli_.start(SHOP, "--delay", "1h")
    lonely = cli_.start(SHOP)
    told = {run: cli_.json("explain", run) for run in (later, lonely)}
    assert told[later]["reason"] == "scheduled"
    assert told[later]["data"]["run_at"] == cli_.json("show", later)["run_at"]
    assert told[lonely]["reason"] == "no_worker"
    assert f"No live worker can run {SHOP}" in cli_("explain", lonely).stdout
    work(order=order)
    waiting = cli_.json("explain", lonely)
    assert waiting["reason"] == "waiting"
    assert waiting["data"]["waiting_on"][0]["topic"] == "paid"
    assert waiting["data"]["waiting_on"][0]["since"] is not None
    assert "an event on 'paid' since " in cli_("explain", lonely).stdout
    cli_("cancel", lonely)
    assert cli_("explain", lonely).stdout.startswith("It was cancelled at ")


@pytest.mark.spec("EXPL-1")
def test_explain_says_of_a_paused_run_who_paused_it(cli_):
    run = cli_.start(SHOP)
    cli_("pause", run, "--by", "Ann")
    assert cli_.json("explain", run)["reason"] == "paused"
    assert "Ann" in cli_("explain", run).stdout


@pytest.mark.spec("EXPL-1")
def test_explain_says_of_an_ended_run_how_it_ended(cli_, failed):
    told = cli_("explain", failed).stdout
    assert "out of stock" in told
    assert "holdfast retry" in told


@pytest.mark.spec("CLI-2")
def test_the_result_of_a_failed_run_is_exit_1_with_the_reason(cli_, failed):
    line = cli_.refused("result", failed, code=1)
    assert f"run {failed} failed, exhausted: " in line
    found = cli_("result", failed, "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["error"]["kind"] == "exhausted"


def test_a_timeout_of_result_is_exit_1_and_the_run_continues(cli_, waiting):
    assert "the run itself is not affected" in cli_.refused("result", waiting, "--timeout", "0", code=1)
    assert cli_.json("show", waiting)["status"] == "waiting"


@pytest.mark.parametrize("of_it", [slice(None), slice(-6, None), slice(-12, None), slice(0, 23)])
def test_a_run_may_be_named_by_its_beginning_or_its_end(cli_, waiting, of_it):
    assert cli_.json("show", waiting[of_it].upper())["id"] == waiting


def test_a_beginning_that_several_runs_share_lists_them(cli_):
    runs = [cli_.start(SHOP) for _ in range(2)]
    line = cli_.refused("show", runs[0][:6], code=2)
    assert "names several runs" in line
    assert all(run in line for run in runs)


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize("verb", ["show", "trail", "explain", "result", "cancel", "pause", "resume", "retry"])
def test_an_unknown_run_is_one_line_that_says_where_to_look(cli_, waiting, verb):
    missing = "0199c0de-7a31-7c3e-b1de-4b9a5d0c8f10"
    assert (
        cli_.refused(verb, missing, code=1)
        == f"holdfast: there is no run {missing}: `holdfast ls` lists the runs of this store"
    )
    assert "no run abcdef12" in cli_.refused(verb, "abcdef12", code=1)
    assert "is not a run id" in cli_.refused(verb, "the-first-one", code=2)
    assert "at least 6 characters" in cli_.refused(verb, waiting[-4:], code=2)


@pytest.mark.spec("CLI-4")
def test_show_of_a_cancelled_run_without_steps_says_who_cancelled_it(cli_):
    run = cli_.start(SHOP)
    assert "no steps recorded yet" in cli_("show", run).stdout
    cli_("cancel", run, "--by", "ann")
    shown = cli_("show", run).stdout
    assert re.search(r"status +cancelled by ann after ", shown)
    assert re.search(r"last step +no steps recorded\n", shown)
    assert "yet" not in shown


async def typed(ctx, number: int):
    return number


async def twice(ctx):
    await ctx.step("", lambda: 1)


@pytest.mark.spec("EXPL-1")
def test_wrong_params_ask_for_a_rerun_and_no_tries_are_told(cli_, work):
    """A retry would read the same params again."""
    run = cli_.start("shop.typed.v1", '"seven"')
    work(typed=typed)
    text = cli_("explain", run).stdout
    assert f"a retry would fail again: `holdfast rerun {run} --params …` starts a run with right ones" in text
    assert "holdfast retry" not in text
    assert "attempts " not in cli_("show", run).stdout
    for command in (("ls",), ("trail", run), ("explain", run)):
        assert " of 3" not in cli_(*command).stdout


@pytest.mark.spec("EXPL-1")
def test_a_usage_error_says_that_the_code_has_to_be_mended_first(cli_, work):
    run = cli_.start("shop.twice.v1")
    work(twice=twice)
    assert cli_.json("show", run)["error"]["kind"] == "usage"
    text = cli_("explain", run).stdout
    assert f"a retry helps only when the code is mended: `holdfast retry {run}`; " in text
    assert f"`holdfast rerun {run} --params …`" in text


@pytest.mark.spec("ROUTE-1", "CLI-3")
def test_a_type_with_a_misplaced_percent_sign_is_refused_in_one_line(cli_):
    cli_.start("shop.order.v1")
    found = cli_("ls", "--type", "shop%order")
    assert found.exit_code == 2
    assert found.stderr == "holdfast: type 'shop%order': % is allowed only at the end, as in 'billing.%'\n"
    assert cli_.refused("ls", "--type", "shop.*", code=2).endswith("a prefix ends in %, as in shop.%")
