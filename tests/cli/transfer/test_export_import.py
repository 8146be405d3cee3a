"""`holdfast export` and `holdfast import`."""

from __future__ import annotations

import json

import pytest

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
