"""The choice of the store; a store that cannot be opened is exit 3, one line, and nothing is created."""

from __future__ import annotations

import tempfile
from pathlib import Path

import apsw
import pytest

from holdfast.stores.sqlite import migrate

SHOP = "shop.order.v1"
MINORS = migrate.minors()
READERS = [
    ["ls"], ["show", "abcdef"], ["trail"], ["explain", "abcdef"], ["result", "abcdef"], ["emit", "paid"],
    ["cancel", "abcdef"], ["pause", "abcdef"], ["resume", "abcdef"], ["rewind", "abcdef", "a"],
    ["retry", "abcdef"], ["delete", "abcdef"], ["restore", "abcdef"], ["purge", "--yes"], ["tick"],
    ["doctor"],
]  # fmt: skip


@pytest.mark.spec("CLI-2")
def test_the_store_is_chosen_by_option_then_environment_then_default(cli_, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two, three = (f"sqlite:///{name}.db" for name in ("one", "two", "three"))
    cli_("migrate", store=False)
    cli_("migrate", store=False, env={"HOLDFAST_STORE": one})
    cli_("--store", two, "migrate", store=False, env={"HOLDFAST_STORE": one})
    cli_("--store", two, "migrate", "--store", three, store=False)
    made = {path.name for path in tmp_path.glob("*.db")}
    assert made == {"holdfast.db", "one.db", "two.db", "three.db"}


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_reading_a_missing_store_does_not_create_it(cli_, tmp_path, command):
    line = cli_.refused(*command, code=3)
    assert line.startswith(f"holdfast: no store at {tmp_path / 'runs.db'}: start a run first")
    assert list(tmp_path.iterdir()) == []


def _foreign(file, mode):
    """Somebody else's database."""
    db = apsw.Connection(str(file))
    db.execute(
        f"pragma journal_mode = {mode}; create table theirs (name text); insert into theirs values ('Ann')"
    )
    db.close()


FOREIGN = {
    "empty": lambda file: file.touch(),
    "theirs": lambda file: _foreign(file, "delete"),
    "theirs, in WAL mode": lambda file: _foreign(file, "wal"),
}


@pytest.mark.spec("CLI-2", "CLI-3")
@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_only_commands_that_start_something_change_a_file_without_a_store(cli_, tmp_path, make):
    """Not a byte, not a file beside it; `migrate` makes a store of it, beside what is there."""
    file = tmp_path / "runs.db"
    make(file)
    before = file.read_bytes(), file.stat().st_mtime_ns
    for command in READERS:
        line = cli_.refused(*command, code=3)
        assert line.startswith(f"holdfast: {file}: there is no store in this file; name another one")
        assert "`holdfast migrate`" in line
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert list(tmp_path.iterdir()) == [file]
    assert cli_("migrate").exit_code == 0
    assert cli_("ls").exit_code == 0


@pytest.mark.spec("CLI-2", "STORE-5")
def test_only_commands_that_start_something_update_an_older_store(cli_, tmp_path):
    """Others say in one line that it is due; `doctor` reports it."""
    file, run = tmp_path / "runs.db", "018bcfe5-0000-7000-8000-000000000001"
    older = apsw.Connection(str(file))
    older.execute(migrate._META)
    older.execute(MINORS[0].read_text())
    older.execute(migrate._STAMP, ("1", "1"))
    older.execute(
        "insert into workflow_run (id, type, run_at, created_at, updated_at) values (?, ?, 1, 1, 1)",
        (run, SHOP),
    )
    older.close()
    before = file.read_bytes()
    for command in (["ls"], ["cancel", run], ["purge", "--yes"], ["tick"]):
        line = cli_.refused(*command, code=3)
        assert (
            f"its schema is of version 1.1, this library's is 1.{len(MINORS)}; run `holdfast migrate`" in line
        )
    told = cli_("doctor")
    assert (
        told.exit_code,
        told.stdout.startswith("error    this version of Holdfast cannot use the store"),
    ) == (1, True)
    assert "to fix:" in told.stdout
    assert "run `holdfast migrate`" in told.stdout
    assert cli_.json("doctor")["level"] == "error"
    assert file.read_bytes() == before
    cli_.start(SHOP)
    assert cli_("cancel", run).exit_code == 0


@pytest.mark.spec("CLI-2")
def test_a_file_that_is_not_a_database_is_exit_3_and_left_alone(cli_, tmp_path):
    file = tmp_path / "runs.db"
    file.write_text("dear diary, " * 100)
    for command in (["ls"], ["start", SHOP], ["migrate"]):
        assert "no SQLite database" in cli_.refused(*command, code=3)
    assert file.read_text() == "dear diary, " * 100


@pytest.mark.spec("CLI-2", "STORE-5")
def test_a_database_of_a_newer_major_version_is_exit_3_and_left_alone(cli_, tmp_path):
    run = cli_.start(SHOP)
    file = apsw.Connection(str(tmp_path / "runs.db"))
    file.execute("update workflow_meta set value = '2' where key = 'major'")
    line = cli_.refused("show", run, code=3)
    assert "major version 2" in line
    assert "upgrade holdfast" in line
    file.execute("update workflow_meta set value = '1' where key = 'major'")
    file.close()
    assert cli_("show", run).exit_code == 0


@pytest.mark.spec("CLI-2")
def test_a_read_only_folder_is_exit_3_and_works_when_it_is_writable(cli_, as_nobody):
    cli_.start(SHOP)
    with tempfile.TemporaryDirectory() as folder:
        cli_.url = f"sqlite:///{folder}/runs.db"
        Path(folder).chmod(0o555)
        with as_nobody():
            line = cli_.refused("start", SHOP, code=3)
        Path(folder).chmod(0o777)
        with as_nobody():
            cli_.start(SHOP)
    assert f"the folder {folder} is read-only for this user" in line


def test_a_missing_folder_is_exit_3(cli_, tmp_path):
    cli_.url = f"sqlite:///{tmp_path}/no/such/runs.db"
    assert "there is no folder" in cli_.refused("start", SHOP, code=3)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("sqlite://runs.db", "three slashes"),
        ("postgre://x", "is not known: write sqlite:///holdfast.db"),
        ("runs.db", "is not known"),
        ("memory://", "exists only inside one process"),
    ],
)
def test_a_wrong_url_is_refused_with_an_example(cli_, url, says):
    cli_.url = url
    assert says in cli_.refused("ls", code=2)
