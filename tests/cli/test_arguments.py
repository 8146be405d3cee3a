"""Odd numbers, times and names on the command line: one clear line, exit code 2, and nothing is changed."""

from __future__ import annotations

import pytest

LONG = "x" * 5000
DIGITS = "9" * 5000  # more than Python reads
START = ("start", "shop.order.v1")
ADD = ("schedule", "add", "s", "shop.order.v1", "--every", "60")
LIMIT = ("limit", "set", "--key", "k")

WRONG = [
    (*START, "--max-attempts", "2147483648"),
    (*START, "--max-attempts", DIGITS),
    (*START, "--priority", "1000"),
    (*START, "--priority", DIGITS),
    *((*START, option, "99999999d") for option in ("--delay", "--timeout", "--ttl")),
    (*START, "--delay", DIGITS),
    *((*START, "--budget", value) for value in ("nan", "inf", "1e400", "-1")),
    *((*START, "--run-at", at) for at in ("9999-12-31T23:59-12:00", "0001-01-01T00:00+14:00", LONG)),
    *((*START, option, LONG) for option in ("--key", "--tenant", "--limit-key")),
    ("start", f"shop.{LONG}.v1"),
    ("start", f"shop.order.v{DIGITS}"),
    (*LIMIT, "--concurrency", str(2**40)),
    (*LIMIT, "--concurrency", DIGITS),
    *((*LIMIT, "--rate", rate) for rate in ("99999999999/1s", f"{DIGITS}/1s", "1/99999999d", "²/1s")),
    ("limit", "set", "--tenant", "k", "--weight", "nan"),
    ("limit", "set", "--key", LONG, "--concurrency", "1"),
    ("limit", "pause", "k", "--for", "99999999d"),
    ("limit", "pause", "k", "--until", "9999-12-31T23:59-12:00"),
    (*ADD[:-1], "99999999d"),
    (*ADD, "--jitter", "99999999d"),
    (*ADD, "--max-attempts", "2147483648"),
    ("schedule", "add", LONG, "shop.order.v1", "--every", "60"),
    ("schedule", "add", "s", "shop.order.v1", "--cron", LONG),
    ("ls", "--limit", str(2**40)),
    ("ls", "--limit", DIGITS),
    ("purge", "--yes", "--older-than", "99999999d"),
    ("purge", "--dry-run", "--deleted-after", DIGITS),
    ("emit", LONG),
    ("emit", "t", "--id", LONG),
    ("registry", "set", LONG),
]


@pytest.mark.slow
@pytest.mark.spec("START-10", "CLI-2")
def test_invalid_numbers_times_and_names_are_refused_in_one_line(cli_):
    cli_("start", "shop.order.v1")
    before = cli_("ls", "--json").stdout
    for args in WRONG:
        said = cli_.refused(*args, code=2)
        assert len(said) < 500, args
        assert not said.endswith("99"), said
    assert cli_("ls", "--json").stdout == before
    assert cli_("limit", "ls", "--json").stdout == cli_("schedule", "ls", "--json").stdout == ""


@pytest.mark.spec("START-10")
def test_a_worker_refuses_invalid_options_before_it_starts(cli_, tmp_path, monkeypatch):
    code = (
        "import holdfast as hf\napp = hf.App()\n\n@app.workflow('shop.order.v1')\nasync def order(ctx): ...\n"
    )
    (tmp_path / "odd_app.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    worker = ("worker", "odd_app:app")
    for option, value in (
        ("--slots", str(2**40)),
        ("--slots", DIGITS),
        ("--lease", "99999999d"),
        ("--lease", "0.1"),
        ("--grace", "99999999d"),
        ("--poll", "0"),
        ("--poll", "99999999d"),
        ("--batch", "0"),
        ("--batch", str(2**40)),
        ("--runtime", LONG),
        ("--name", LONG),
        ("--tenant", LONG),
        ("--pattern", LONG),
    ):
        said = cli_.refused(*worker, option, value, code=2)
        assert len(said) < 500, option
        assert option[2:] in said


@pytest.mark.spec("CLI-1")
def test_a_worker_takes_its_runtime_its_poll_and_its_batch_from_the_command_line(cli_, tmp_path, monkeypatch):
    code = (
        "import holdfast as hf\napp = hf.App()\n\n@app.workflow('shop.order.v1')\nasync def order(ctx): ...\n"
    )
    (tmp_path / "options_app.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    given = {}
    monkeypatch.setattr("holdfast.engine.app.app.App.run", lambda _, **options: given.update(options))
    found = cli_("worker", "options_app:app", "--runtime", "gpu", "--poll", "500ms", "--batch", "7")
    assert found.exit_code == 0, found.stderr
    assert {name: given[name] for name in ("runtime", "poll", "batch")} == {
        "runtime": "gpu",
        "poll": 0.5,
        "batch": 7,
    }


@pytest.mark.spec("START-10", "RETRY-7")
def test_a_mistake_inside_a_workflow_is_named_by_show(cli_, work):
    run = cli_.start("shop.order.v1")

    async def order(ctx):
        await ctx.call("shop.else.v1", max_attempts=2**31)

    work(order=order)
    said = cli_("show", run).stdout
    assert "usage: max_attempts is 2147483648: give a whole number from 1 to 2,147,483,647" in said
    assert cli_.json("show", run)["error"]["kind"] == "usage"
