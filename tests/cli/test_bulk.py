"""Commands on many runs: `--where`, its preview and question, its progress and report; `holdfast bulk`."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from holdfast import App, Fatal, RunCancelled, RunFilter, Status
from holdfast.cli import bulk
from holdfast.cli.bulk import progress_line, report_lines
from holdfast.cli.commands.bulk import _facts, _row
from holdfast.engine.app.bulk import BulkOperations
from holdfast.engine.bulk.asked import BulkReport

SHOP = "shop.order.v1"


async def order(ctx):
    raise Fatal("out of stock")


@pytest.fixture
def failed(cli_, work):
    """Three failed runs."""
    runs = [cli_.start(SHOP) for _ in range(3)]
    work(order=order)
    return runs


def statuses(cli_):
    return sorted(
        json.loads(line)["status"] for line in cli_("ls", "--type", SHOP, "--json").stdout.splitlines()
    )


@pytest.mark.spec("READ-3", "CLI-1")
def test_where_starts_an_operation_that_tick_executes_and_bulk_reports(cli_, failed):
    started = cli_("retry", "--where", "status=failed", "--yes", "--no-wait", "--by", "ann")
    run = started.stdout.strip()
    assert started.exit_code == 0, started.stderr
    assert f"bulk show {run[-8:]}" in started.stderr
    assert statuses(cli_) == ["failed"] * 3
    assert cli_("tick").stdout == "1 bulk operation executed\n"
    assert statuses(cli_) == ["pending"] * 3
    listed = cli_("bulk", "ls").stdout.splitlines()[1].split()
    assert listed[:4] == [run[-8:], "succeeded", "retry", "default"]
    shown = cli_("bulk", "show", run[-8:]).stdout
    assert "retry by ann" in shown
    assert "statuses: failed" in shown
    assert "3 of 3 runs (100%): 3 done" in shown
    assert shown.splitlines()[-1] == "  3 runs done"


@pytest.mark.spec("READ-3", "CLI-1")
def test_it_is_watched_to_its_end_and_reported(cli_, url, failed, process):
    worker = process("tick", "--loop", env={"HOLDFAST_STORE": url, "PATH": "/bin"})
    done = cli_("delete", "--where", "type=shop.order", "--where", "status=failed", "--yes")
    worker.terminate()
    assert (done.exit_code, done.stdout) == (0, "3 runs done\n")
    assert statuses(cli_) == []


@pytest.mark.spec("READ-3", "CLI-3")
def test_without_a_terminal_a_question_is_a_refusal_after_the_preview(cli_, failed):
    refused = cli_("retry", "--where", "status=failed")
    assert refused.exit_code == 1
    assert [line.split()[:3] for line in refused.stderr.splitlines()[1:4]] == [
        [run[-8:], "failed", SHOP] for run in reversed(failed)
    ]
    assert refused.stderr.splitlines()[-1] == (
        "holdfast: retry 3 runs of tenant default; add --yes to confirm"
    )
    assert cli_("bulk", "ls").stdout == ""


@pytest.mark.spec("READ-3")
def test_nothing_is_started_when_nothing_matches(cli_, failed):
    found = cli_("resume", "--where", "type=shop.order", "--yes")
    assert (found.exit_code, found.stdout) == (0, "")
    assert found.stderr == "no run of tenant default matches that `resume` could change\n"
    assert cli_.json("resume", "--where", "type=shop.order", "--yes") == {"count": 0}
    assert cli_("bulk", "ls").stdout == ""


@pytest.mark.spec("READ-3", "CLI-3")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["retry"], "name a RUN, or choose many runs with --where, as in --where status=failed"),
        (["retry", "abcdef12", "--where", "status=failed"], "give a RUN, or --where to choose many runs"),
        (["retry", "abcdef12", "--rate", "5"], "--rate belongs to --where, which is not given"),
        (["retry", "--where", "colour=red"], "there is no filter 'colour'; use status, type, tenant, key"),
        (["retry", "--where", "status"], "write --where status=STATUS"),
        (["retry", "--where", "deleted"], "there is no filter 'deleted'"),
        (["cancel", "--where", "status=odd"], "'odd' is not a status"),
        (["cancel", "--where", "parent="], "the value is empty, which would match every run"),
        (["cancel", "--where", "type= "], "the value is empty, which would match every run"),
        (["cancel", "--where", "by=changed"], "give one of them, as in since=2h"),
        (["cancel", "--where", "type=a", "--where", "type=b"], "there is another type; give it only once"),
        (["rewind", "--where", "status=failed"], "name a STEP from `holdfast show`, or give --beginning"),
        (["rewind", "--where", "status=failed", "abc", "pack"], "give a RUN, or --where to choose many runs"),
        (["pause", "--where", "type=shop", "--rate", "0"], "0 is not in the range"),
        (
            ["pause", "--where", "tenant=acme", "--all-tenants"],
            "give --where tenant=NAME or --all-tenants, not both",
        ),
    ],
)
def test_wrong_words_are_refused_in_one_line(cli_, failed, words, why):
    assert why in cli_.refused(*words, code=2)


def test_blanks_around_a_filter_do_not_count_and_a_status_may_be_repeated(cli_, failed):
    words = ["--where", " status = failed ", "--where", "status=pending", "--yes", "--no-wait"]
    assert cli_("delete", *words).exit_code == 0
    cli_("tick")
    assert statuses(cli_) == []


@pytest.mark.spec("READ-3", "TEN-5")
def test_other_tenants_are_touched_only_when_named(cli_, url, failed):
    for tenant in ("acme", "beta"):
        cli_.start(SHOP, "--tenant", tenant)
    paused = {}
    for words in (
        ["--where", "status=pending"],
        ["--where", "tenant=acme"],
        ["--all-tenants", "--where", "type=shop.%"],
    ):
        cli_("pause", *words, "--yes", "--no-wait")
        cli_("tick")
        found = [json.loads(line) for line in cli_("ls", "--status", "paused", "--json").stdout.splitlines()]
        paused[words[-1]] = sorted(run["tenant"] for run in found)
    assert paused == {"status=pending": [], "tenant=acme": ["acme"], "type=shop.%": ["acme", "beta"]}


@pytest.mark.spec("READ-3")
def test_stop_and_resume_an_operation(cli_, failed):
    run = cli_("retry", "--where", "status=failed", "--yes", "--no-wait").stdout.strip()
    assert cli_("bulk", "stop", run).stdout.startswith(f"{run[-8:]} stops; `holdfast bulk resume {run[-8:]}`")
    cli_("tick")
    assert statuses(cli_) == ["failed"] * 3
    assert cli_("bulk", "resume", run).stdout == f"{run[-8:]} continues\n"
    cli_("tick")
    assert statuses(cli_) == ["pending"] * 3
    assert "cannot be repeated: start a new one" in cli_.refused("rerun", run, code=2)
    assert "is no bulk operation" in cli_.refused("bulk", "stop", failed[0], code=2)


@pytest.mark.spec("READ-3", "CLI-3")
def test_refusals_and_a_stop_end_the_command_with_1(cli_, url, failed, process, monkeypatch):
    worker = process("tick", "--loop", env={"HOLDFAST_STORE": url, "PATH": "/bin"})
    refused = cli_("rewind", "--where", "type=shop.order", "nope", "--yes")
    worker.terminate()
    worker.wait()
    assert refused.exit_code == 1
    assert "3 runs refused: it has no step 'nope'" in refused.stdout
    retry = BulkOperations.retry

    async def stopped(self, *args, **options):
        handle = await retry(self, *args, **options)
        await self._client.pause(handle.id)
        return handle

    monkeypatch.setattr(BulkOperations, "retry", stopped)
    found = cli_("retry", "--where", "status=failed", "--yes")
    assert (found.exit_code, "is stopped; `holdfast bulk resume" in found.stdout) == (1, True)


@pytest.mark.parametrize("limited", [True, False])
def test_while_it_waits_the_reason_is_told_whatever_it_is(cli_, failed, monkeypatch, limited):
    said = []

    def say(text):
        said.append(text)
        raise RunCancelled("seen enough")

    monkeypatch.setattr(bulk, "say", say)
    monkeypatch.setattr(bulk, "WORKER_CHECK_SECONDS", 0)
    if limited:
        assert cli_("limit", "set", "--tenant", "default", "--concurrency", "0").exit_code == 0
    assert cli_("retry", "--where", "status=failed", "--yes").exit_code == 1
    (text,) = said
    assert ("It is due, but" in text and "tenant default" in text) is limited
    assert text.endswith("`holdfast tick` executes it too.") is not limited


def test_an_operation_that_still_runs_after_a_stop_is_shown_as_stopping(cli_, url, failed):
    run = cli_("retry", "--where", "status=failed", "--rate", "1", "--yes", "--no-wait").stdout.strip()

    async def found():
        app = App(url)
        seen = await app.get(run)
        await app.close()
        return seen

    leased = msgspec.structs.replace(asyncio.run(found()), status=Status.LEASED)
    stopped = msgspec.structs.replace(leased, pause_asked_by="ann")
    now = leased.created_at
    assert "running" in dict(_facts(leased, now))["status"]
    assert dict(_facts(stopped, now))["status"] == _row(stopped, now)[1] == "stopping"


@pytest.mark.spec("READ-3")
def test_rewind_takes_the_only_word_as_the_step(cli_, url, failed):
    cli_("rewind", "--where", "type=shop.order", "pack", "--yes", "--no-wait")
    cli_("rewind", "--where", "type=shop.order", "--beginning", "--yes", "--no-wait")
    cli_("tick")

    async def reports():
        app = App(url)
        found = await app.list(RunFilter(type="holdfast.%"))
        await app.close()
        return [run.result for run in found]

    beginning, pack = asyncio.run(reports())
    assert (beginning["done"], pack["refused"]) == (3, {"it has no step 'pack'": 3})
    assert Status.PENDING.value in statuses(cli_)


def test_the_progress_is_a_bar_on_a_terminal_and_words_elsewhere():
    progress = {"done": 1200, "total": 5000, "note": "1,190 done, 10 refused"}
    words = "1,200 of 5,000 runs (24%): 1,190 done, 10 refused"
    assert progress_line(progress, bar=False) == words
    assert progress_line(progress, bar=True) == f"[{'#' * 7}{'-' * 23}] {words}"
    assert progress_line({"done": 7, "total": None, "note": "7 done"}, bar=True) == "7 runs: 7 done"
    assert progress_line(None, bar=False) == progress_line({"done": "x"}, bar=False) == ""


def test_the_report_names_each_reason_with_a_few_runs():
    report = BulkReport(done=1).counting("refused", "cannot retry: it is running", 2, ())
    assert report_lines(report) == ["1 run done", "2 runs refused: cannot retry: it is running"]
