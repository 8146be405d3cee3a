"""The largest values that are legal: every reader answers within two seconds, and says what it has cut."""

from __future__ import annotations

import json
import sqlite3
import time
from uuid import UUID

import pytest

from holdfast.bounds import VALUE_BYTES

NOW = 1_900_000_000_000_000
LARGE = json.dumps("日" * (VALUE_BYTES // 6 - 2))  # in ASCII: as large as a value may be
NESTED = "[" + ",".join(["[]"] * (VALUE_BYTES // 3 - 2)) + "]"
STEPS, WAITS, CHILDREN, ROWS = 10_000, 5_000, 800, 20_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A store in which each run has one thing that is as large as it may be."""
    from tests.cli.conftest import Cli

    path = tmp_path_factory.mktemp("large") / "runs.db"
    cli = Cli(f"sqlite:///{path}")
    assert cli("migrate").exit_code == 0
    db = sqlite3.connect(path)
    runs = {}

    def add(table, rows):
        rows = list(rows)
        names, marks = ", ".join(rows[0]), ", ".join("?" * len(rows[0]))
        db.executemany(f"insert into {table} ({names}) values ({marks})", [[*row.values()] for row in rows])

    def run(name, status, **more):
        runs[name] = str(UUID(int=(0x0199 << 112) + 0xAAAAAA0000 + len(runs)))
        final = NOW if status in ("succeeded", "failed") else None
        add("workflow_run", [{
            "id": runs[name], "type": "shop.large.v1", "status": status, "run_at": NOW, "created_at": NOW,
            "updated_at": NOW, "finished_at": final, **more,
        }])  # fmt: skip
        return runs[name]

    def steps(of, count, **more):
        common = {"run_id": of, "kind": "task", "status": "succeeded", "started_at": NOW, **more}
        add("workflow_step", ({**common, "seq": seq, "key": f"{'k' * 600} {seq}"} for seq in range(count)))

    error = json.dumps({
        "kind": "error", "type": "T" * 100_000, "message": "日" * 500_000, "traceback": "File x\n" * 100_000,
    })  # fmt: skip
    run("values", "succeeded", payload=LARGE, result=NESTED)
    run("failed", "failed", payload=NESTED, error=error, last_error="日" * 60_000)
    steps(run("steps", "waiting"), STEPS, finished_at=NOW, output=json.dumps("x" * 100))
    steps(run("waits", "waiting"), WAITS, kind="event", status="waiting", topic="t" * 512)
    steps(run("family", "waiting"), CHILDREN, kind="child", status="waiting", child_id=runs["values"])
    ask = json.dumps({"ask": "日" * 10_000, "data": "d" * 60_000})
    steps(run("gates", "waiting"), 30, kind="approval", status="waiting", ask=ask)
    note = json.dumps({"done": 1, "total": 3, "note": "日" * 60_000})
    run("progress", "leased", leased_by="w" * 1_000, lease_until=NOW, progress=note)
    rows = {"workflow_id": run("trail", "succeeded"), "event_type": "log", "created_at": NOW}
    add("workflow_event", ({**rows, "data": json.dumps({"message": f"row {n}"})} for n in range(ROWS)))
    db.commit()
    db.close()
    return cli, runs


def asked(cli, *args):
    """The output of a command; it must take little processor time, because the machine may be busy."""
    began = time.process_time()
    found = cli(*args)
    assert time.process_time() - began < 2, args
    assert len(found.stdout) < 300_000 or {"--json", "--all", "result"} & {*args}
    return found


@pytest.mark.spec("CLI-3")
@pytest.mark.slow
def test_every_reader_answers_soon_whatever_the_values_are(large):
    cli, runs = large
    for args in (["ls"], ["approvals"], ["doctor"], ["trail"]):
        asked(cli, *args)
    for run in runs.values():
        for command in ("show", "explain", "trail"):
            asked(cli, command, run)
        asked(cli, "show", run, "--json")
        asked(cli, "result", run, "--timeout", "0")


@pytest.mark.spec("CLI-3")
@pytest.mark.slow
def test_a_cut_value_says_so_and_how_to_see_all(large):
    cli, runs = large
    shown = asked(cli, "show", runs["values"]).stdout
    assert f"… ({len(LARGE):,} characters; --json prints all)" in shown
    assert cli.json("show", runs["values"])["params"] == json.loads(LARGE)
    shown = asked(cli, "show", runs["steps"])
    assert shown.stdout.count("\n") < 230
    assert "9,800 of 10,000 steps are not shown; all: holdfast show" in shown.stderr
    assert asked(cli, "show", runs["steps"], "--all").stdout.count("\n") > STEPS
    assert f"and {WAITS - 5:,} more" in asked(cli, "show", runs["waits"]).stdout
    assert f"and {CHILDREN - 5:,} more" in asked(cli, "ls", "--status", "waiting").stdout
    assert "(60,000 characters)" in asked(cli, "show", runs["failed"]).stdout


@pytest.mark.spec("CLI-3")
@pytest.mark.slow
def test_a_long_trail_is_shown_in_pages(large):
    cli, runs = large
    first = asked(cli, "trail", runs["trail"])
    assert first.stdout.count("\n") == 1 + 1_000  # a heading with the date
    assert f"more: holdfast trail {runs['trail']} --after 1000" in first.stderr
    second = asked(cli, "trail", runs["trail"], "--after", "1000", "--limit", "2")
    assert [line.split()[-1] for line in second.stdout.splitlines()[1:]] == ["1000", "1001"]
    assert asked(cli, "trail", runs["trail"], "--json").stdout.count("\n") == ROWS
