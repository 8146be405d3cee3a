"""`holdfast move`."""

from __future__ import annotations

import os

import pytest

from holdfast.sealing import Encrypt
from holdfast.sealing.encrypt import ENVIRONMENT
from tests.cli.conftest import Cli

pytestmark = pytest.mark.spec("STORE-6")


@pytest.fixture
def ends(tmp_path, cli_):
    """The URLs of two stores, as options; and the command line with the second one."""
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("from", "to")]
    return Cli(urls[0]), Cli(urls[1]), ("--from", urls[0], "--to", urls[1])


def test_runs_move_and_the_source_says_where_they_went(ends):
    here, there, words = ends
    run, other = here.start("shop.order.v1", "1", "--key", "k"), here.start("shop.refund.v1", "2")
    preview = here("move", *words, "--preview")
    assert preview.stdout == "2 runs would move, with their parents, children and chains\n  pending: 2\n"
    found = here("move", *words, "--yes", "--type", "shop.order")
    assert found.exit_code == 0, found.stderr
    assert found.stdout.startswith("1 run moved, 1 compared, 0 events, 0 schedules")
    assert (there.json("show", run)["status"], here.json("show", other)["status"]) == ("pending", "pending")
    shown = here.json("show", run)
    assert (shown["status"], shown["error"]["kind"]) == ("cancelled", "moved")
    assert "moved      1 of the newest 1 cancelled run, to another store" in here("stats").stdout
    assert "moved " not in there("stats").stdout
    assert here.json("move", *words, "--yes")["moved"] == 1
    assert "0 runs came back" in here("move", *words, "--undo").stdout


def test_mistakes_are_told_in_one_line(ends, cli_):
    here, _, words = ends
    here.start("shop.order.v1")
    assert "add --yes to confirm" in here.refused("move", *words, code=1)
    assert "both stores are" in here.refused("move", *words[:2], "--to", words[1], "--yes", code=2)
    assert "give it without --undo" in here.refused("move", *words, "--preview", "--undo", code=2)
    assert "exists only inside one process" in here.refused(
        "move", *words[:2], "--to", "memory:", "--yes", code=2
    )


def test_an_undo_needs_no_target(ends, tmp_path):
    here, _, words = ends
    run = here.start("shop.order.v1")
    gone = f"sqlite:///{tmp_path}/gone/to.db"
    assert here("move", *words[:2], "--to", gone, "--undo").stdout.startswith(
        "0 runs came back\nthe target cannot be"
    )
    assert here("move", *words[:2], "--to", gone, "--undo", "--lost").stdout == "0 runs came back\n"
    assert here.json("show", run)["status"] == "pending"
    assert "--lost goes with --undo" in here.refused("move", *words, "--lost", code=2)


def test_the_two_stores_may_have_other_keys(ends, monkeypatch):
    here, there, words = ends
    for name in ("ONE", "TWO"):
        monkeypatch.setenv(name, f"{name.lower()}={Encrypt.new_key()}")
    monkeypatch.setenv(ENVIRONMENT, os.environ["ONE"])
    run = here.start("shop.order.v1", '{"card": 4242}')
    apart = ("--from-keys", "ONE", "--to-keys", "TWO")
    assert "add --reseal" in here.refused("move", *words, *apart, "--yes", code=2)
    assert "THREE is not set" in here.refused(
        "move", *words, "--from-keys", "THREE", "--reseal", "--yes", code=2
    )
    found = here("move", *words, *apart, "--reseal", "--yes")
    assert found.exit_code == 0, found.stderr
    monkeypatch.setenv(ENVIRONMENT, os.environ["TWO"])
    assert there.json("show", run)["params"] == {"card": 4242}
