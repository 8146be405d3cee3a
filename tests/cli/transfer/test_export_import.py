"""`holdfast export` and `holdfast import`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.engine.app.client import StoreClient
from holdfast.errors import Unavailable
from tests.cli.conftest import Cli

pytestmark = pytest.mark.spec("STORE-6")


@pytest.fixture
def other(tmp_path):
    """The command line with another store."""
    return Cli(f"sqlite:///{tmp_path}/other.db")


def test_runs_go_into_a_file_and_into_another_store(cli_, other, tmp_path):
    run = cli_.start("shop.order.v1", '{"id": 42}', "--key", "order:42")
    file = tmp_path / "runs.jsonl"
    found = cli_("export", file)
    assert found.exit_code == 0, found.stderr
    assert found.stdout.startswith("1 run and 0 events in ")
    assert other("import", file).stdout == (
        "1 run imported, 0 events\nopen ones are paused: `holdfast resume RUN` lets one go on\n"
    )
    assert other("import", file).stdout == "0 runs imported, 1 there already, 0 events\n"
    shown = other.json("show", run)
    assert (shown["status"], shown["params"], shown["key"]) == ("paused", {"id": 42}, "order:42")
    assert other("resume", run).exit_code == 0
    assert other.json("show", run)["status"] == "pending"


@pytest.mark.spec("CLI-2")
def test_what_an_import_suggests_names_the_store_that_was_typed(cli_, other, tmp_path):
    cli_.start("shop.order.v1")
    cli_("schedule", "add", "nightly", "shop.order.v1", "--every", "1d")
    cli_("export", tmp_path / "runs.jsonl")
    said = cli_("import", tmp_path / "runs.jsonl", "--store", other.url).stdout
    assert f"`holdfast resume RUN --store {other.url}` lets one go on" in said
    assert f"1 schedule paused: `holdfast schedule resume NAME --store {other.url}` resumes one" in said


def test_filters_choose_runs_as_in_ls(cli_, tmp_path):
    cli_.start("shop.order.v1", "1", "--label", "team=a")
    cli_.start("shop.order.v1", "2")
    cli_.start("shop.refund.v1", "3")
    for words, count in (
        (("--type", "shop.order"), 2),
        (("--label", "team=a"), 1),
        (("--status", "failed"), 0),
    ):
        report = cli_.json("export", tmp_path / f"{words[1]}.jsonl", *words)
        assert report["runs"] == count


def test_a_copy_is_masked(cli_, tmp_path):
    cli_.start("shop.order.v1", '{"name": "Ann Lee"}')
    cli_("export", tmp_path / "masked", "--mask")
    assert "Ann Lee" not in (tmp_path / "masked").read_text()


def test_mistakes_get_one_line(cli_, other, tmp_path):
    cli_.start("shop.order.v1", '{"id": 42}', "--key", "k")
    file = tmp_path / "runs.jsonl"
    cli_("export", file)
    assert "is there already: give another name" in cli_.refused("export", file, code=2)
    assert "is complete: give another name" in cli_.refused("export", file, "--resume", code=2)
    assert "cannot be read" in other.refused("import", tmp_path / "missing", code=2)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], lines[1][:50] + b"\n", *lines[2:]]))
    assert "line 2 is damaged" in other.refused("import", file, code=1)
    report = json.loads(other("import", file, "--skip-damaged", "--json").stdout)
    assert (report["imported"], len(report["damaged"]), report["complete"]) == (0, 1, False)


def test_refused_runs_are_named(cli_, other, tmp_path):
    run = cli_.start("shop.order.v1", "1", "--key", "k")
    mine = other.start("shop.order.v1", "1", "--key", "k")
    cli_("export", tmp_path / "runs")
    found = other("import", tmp_path / "runs")
    assert found.exit_code == 1
    assert f"run {run}: its key 'k' belongs to run {mine}" in found.stdout
    assert found.stderr.strip() == "holdfast: 1 run refused"


def test_runs_go_on_at_once_only_when_confirmed(cli_, other, tmp_path):
    run = cli_.start("shop.order.v1", "1")
    cli_("export", tmp_path / "runs")
    assert "add --yes to confirm" in other.refused("import", tmp_path / "runs", "--no-hold", code=1)
    other("import", tmp_path / "runs", "--no-hold", "--yes")
    assert other.json("show", run)["status"] == "pending"


def test_a_file_is_a_file_that_can_be_read_again(cli_, other, tmp_path):
    cli_.start("shop.order.v1", "1")
    for name in ("-", ""):
        assert f"give the name of a file, not {name!r}" in cli_.refused("export", name, code=2)
        assert f"give the name of a file, not {name!r}" in other.refused("import", name, code=2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words in ((), ("--resume",)):
        assert "is no file that can be read again" in cli_.refused("export", pipe, *words, code=2)


def test_a_missing_file_makes_no_store(other, tmp_path):
    for words in ((), ("--release",)):
        assert "there is no such file" in other.refused("import", tmp_path / "missing", *words, code=2)
    assert not (tmp_path / "other.db").exists()


def test_a_file_that_was_cut_is_not_taken_for_whole(cli_, other, tmp_path):
    for n in range(3):
        cli_.start("shop.order.v1", str(n))
    file, cut = tmp_path / "runs", tmp_path / "cut"
    cli_("export", file)
    lines = file.read_bytes().splitlines(keepends=True)
    for kept, says in (
        (lines[:3], "\nthe file ends before its last line: what was behind it is missing\n"),
        ([*lines[:2], *lines[3:]], "\n3 lines are before the last one, and 4 were exported\n"),
    ):
        cut.write_bytes(b"".join(kept))
        assert says in other("import", cut, "--skip-damaged").stdout


def test_the_steps_of_a_move_by_a_file_stand_alone(cli_, other, tmp_path):
    cli_.start("shop.order.v1", "1")
    file = tmp_path / "runs"
    assert cli_("export", file, "--move").exit_code == 0
    for step in ("--confirm", "--undo"):
        assert "stand alone" in cli_.refused("export", file, step, "--status", "failed", code=2)
    for option in ("--no-hold", "--skip-damaged"):
        assert "stands alone" in other.refused("import", file, "--release", option, code=2)
    again = cli_("export", tmp_path / "again", "--move").stdout
    assert "0 runs and 0 events" in again
    assert "\n1 run on the way to a file of move " in again
    assert cli_("export", file, "--undo").stdout == "1 run came back\n"


def test_a_command_that_is_stopped_says_how_it_continues(cli_, tmp_path, monkeypatch):
    cli_.start("shop.order.v1", "1")

    async def stopped(*_args, **_fields):
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(10)

    async def full(*_args, **_fields):
        raise Unavailable("the disk is full")

    monkeypatch.setattr(StoreClient, "export", full)
    assert "the disk is full; runs is not complete: continue it by the same command with --resume" in (
        cli_.refused("export", "runs", code=3)
    )
    monkeypatch.setattr(StoreClient, "export", stopped)
    found = cli_("export", "runs", "--move")
    assert found.exit_code == 130
    assert "stopped; runs is not complete: " in found.stderr
    assert "its runs are stopped until then, or until `--undo`" in found.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_goes_to_a_full_disk_gets_one_line(cli_, tmp_path):
    cli_.start("shop.order.v1", "1")
    words = [sys.executable, "-m", "holdfast.cli", "export", tmp_path / "runs", "--store", cli_.url]
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (found.returncode, found.stderr) == (
        1, "holdfast: the output cannot be written: No space left on device\n")  # fmt: skip
    assert cli_("export", tmp_path / "runs", "--resume").stderr.endswith("is complete: give another name\n")
