"""No stored text breaks a reader, or reaches a terminal unescaped."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
import unicodedata
from datetime import UTC, datetime
from uuid import UUID

import pytest

from holdfast import Backoff
from holdfast.cli.trail_lines import TrailLines
from holdfast.records import TrailEntry
from holdfast.shown import trail as words
from tests.cli.output import hostile

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def steering(said):
    """Return the characters that control a terminal."""
    rest = {char for char in said if not char.isprintable() and unicodedata.category(char) != "Zs"}
    return sorted(rest - {"\n"})


def readers(runs):
    """Every command that reads."""
    yield from (["ls"], ["ls", "--deleted", "--limit", "2"], ["trail"], ["trail", "--limit", "3"])
    yield from (["approvals"], ["approvals", "--limit", "1"], ["doctor"], ["sink", "ls"], ["limit", "ls"])
    yield from (
        ["registry", "ls"],
        ["schedule", "ls"],
        ["schedule", "show", "every", "--tenant", hostile.TEXT],
    )
    yield from (["schedule", "show", hostile.TEXT, "--tenant", hostile.TEXT], ["outbox", "ls", "--all"])
    yield from (["outbox", "ls", "--limit", "1"], ["outbox", "show", f"{hostile.TEXT}{runs[0]}0"])
    for run in runs:
        yield from (["show", run], ["explain", run], ["trail", run], ["result", run, "--timeout", "0"])
    yield from (["trail", runs[-1], "--follow"], ["show", hostile.TEXT], ["show", "abcdef"])
    yield from (["registry", "rm", "no.such.v1"], ["start", "no.such"], ["ls", "--type", hostile.TEXT])


@pytest.mark.spec("CLI-3")
@pytest.mark.spec("OPS-6")
@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 4, 8])
def test_no_stored_text_breaks_a_reader_or_steers_a_terminal(cli_, tmp_path, first):
    assert cli_("migrate").exit_code == 0
    runs = hostile.fill(tmp_path / "runs.db", first)
    for args in readers(runs):
        found = cli_(*args)
        assert found.exit_code in (0, 1, 2), (args, found.stderr)
        assert not steering(found.stdout + found.stderr), args
        as_json = cli_(*args, "--json")
        assert not steering(as_json.stdout + as_json.stderr), args
        for line in as_json.stdout.splitlines():
            json.loads(line)


@pytest.mark.spec("CLI-3")
@pytest.mark.slow
def test_on_a_terminal_nothing_but_our_own_colours_is_there(cli_, url, tmp_path):
    assert cli_("migrate").exit_code == 0
    runs = hostile.fill(tmp_path / "runs.db")
    script = """
import sys
from holdfast.cli.main import cli
for args in eval(sys.stdin.readline()):
    try:
        cli.main(args)
    except SystemExit:
        pass
"""
    ours, theirs = pty.openpty()
    told = repr([args for args in readers(runs) if "abcdef" not in args])
    env = {**os.environ, "HOLDFAST_STORE": url, "COLUMNS": "100"}
    env.pop("NO_COLOR", None)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=env) as one:
        os.close(theirs)
        one.stdin.write(told.encode() + b"\n")
        one.stdin.close()
        said = _read_all(ours)
    plain = COLOURS.sub("", said).replace("\r\n", "\n")
    assert plain != said.replace("\r\n", "\n"), "there are colours on a terminal"
    assert "forged line" in plain
    assert "Traceback (most recent" not in re.sub(
        r"(?m)^    Traceback.*$", "", plain
    )  # but for those of runs
    # The line that shows for how long `result` waits is written over itself.
    assert not steering(plain.replace("\r\x1b[K", ""))


def _read_all(end):
    parts = []
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(end, 65_536):
            parts.append(part)
    os.close(end)
    return b"".join(parts).decode()


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize("shape", hostile.SHAPES)
def test_every_row_of_a_trail_is_a_line_whatever_its_data_are(shape):
    for type_ in (*words._SENTENCES, hostile.TEXT):
        entry = TrailEntry(
            seq=1, run=UUID(int=1), type=type_, at=datetime.max.replace(tzinfo=UTC),
            data_json=hostile.SHAPES[shape],
        )  # fmt: skip
        heading, line = (COLOURS.sub("", text) for text in TrailLines(with_run=True).lines(entry))
        assert "9999" in heading
        assert not steering(line)
        assert "\n" not in line
        assert len(line) < 10_000


@pytest.mark.spec("OPS-6")
@pytest.mark.slow
def test_no_text_of_a_user_forges_a_line_of_a_workers_log(cli_, work, url, tmp_path, caplog):
    for name in ("holdfast", "holdfast.worker", "holdfast.keeper"):
        caplog.set_level("DEBUG", name)  # `dev` sets the last two, and another test may have called it

    async def fails(ctx, params: int):
        raise ValueError(hostile.TEXT)

    async def fails_at(ctx):
        async def boom():
            raise ValueError(hostile.TEXT)

        ctx.log(hostile.TEXT)
        await ctx.step(hostile.TEXT.replace("\x00", ""), boom, retry=Backoff.none())

    for name in ("fails", "fails_at", "fails", "fails_at"):
        cli_.start(f"shop.{name}.v1", "7", "--max-attempts", "1")
    db = sqlite3.connect(tmp_path / "runs.db")
    forged = hostile.SHAPES["a forged envelope"]
    db.execute(
        "update workflow_run set payload = ?, trace = ? where type = 'shop.fails.v1'", (forged, forged)
    )
    db.commit()
    db.close()
    work(fails=fails, fails_at=fails_at)
    assert len(caplog.records) > 3
    assert any("forged line" in record.getMessage() for record in caplog.records)
    for record in caplog.records:
        assert not steering(record.getMessage())
        assert "\n" not in record.getMessage()
        assert not steering(record.exc_text or "")


@pytest.mark.spec("OPS-6")
@pytest.mark.slow
def test_the_traceback_of_a_bug_is_escaped_too(process, url):
    script = f"""
from holdfast.cli import main, session
def bug(*_, **__):
    raise RuntimeError({hostile.TEXT!r})
session.run = bug
main.main()
"""
    one = process("-c", script, "ls", "--store", url, module=False)
    said, told = one.communicate(timeout=30)
    assert (one.returncode, said) == (1, "")
    assert "RuntimeError: \\x1b]0;x\\x07" in told
    assert not steering(told)
