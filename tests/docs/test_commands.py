"""Commands on the pages of the documentation: they exist, and they have the described effect."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.main import COMMANDS, cli
from tests.docs import pages

README = pages.ROOT / "README.md"
TUTORIAL = pages.ROOT / "docs" / "tutorial.md"
HOLDFAST = [sys.executable, "-m", "holdfast.cli"]
DOCS = [page for page in pages.PAGES if "decisions" not in page.parts]


def _typed() -> list[str]:
    return [line for page in DOCS for line in pages.commands(page) if line.startswith("holdfast ")]


def _inline() -> list[str]:
    return [
        command_line
        for page in DOCS
        for command_line in re.findall(r"`(holdfast [a-z].*?)`", page.read_text("utf-8"))
    ]


def _parts(line: str) -> tuple[click.Command | None, list[str]]:
    _, name, *rest = shlex.split(line)
    command = cli.get_command(click.Context(cli), name)
    while isinstance(command, click.Group) and rest:  # a group of commands
        command = command.get_command(click.Context(command), rest.pop(0))
    return command, rest


@pytest.mark.parametrize("line", sorted(set(_typed())))
def test_every_command_line_in_a_fence_is_accepted(line):
    """The command has these names, these options and this number of arguments."""
    command, rest = _parts(line)

    assert command is not None, f"no such command: {line}"
    command.make_context(command.name, rest)


@pytest.mark.parametrize("command_line", sorted(set(_inline())))
def test_every_command_in_a_sentence_exists_with_its_options(command_line):
    command, rest = _parts(command_line)

    assert command is not None, f"no such command: {command_line}"
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in rest if word.startswith("--")} - {"--"} <= known


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_documented(name):
    text = "\n".join(page.read_text("utf-8") for page in DOCS)
    assert re.search(rf"\bholdfast {name}\b", text), f"`holdfast {name}` is on no page"


def test_the_test_command_stands_alone_on_its_line_of_the_readme():
    assert pages.commands(README).count("./hf test") == 1


def test_the_readme_is_short():
    assert len(README.read_text("utf-8").splitlines()) < 120


class Desk:
    """A folder with the page's file, a worker that can be killed, and a shell."""

    def __init__(self, folder: Path, page: Path) -> None:
        self.folder = folder
        self._env = {k: v for k, v in os.environ.items() if k != "HOLDFAST_STORE"}
        self._env |= {"PYTHONPATH": str(pages.ROOT / "src"), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self._worker: subprocess.Popen[bytes] | None = None
        for block in pages.python(page):
            if block.file:
                (folder / block.file).write_text(block.text, "utf-8")

    def type(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*HOLDFAST, *arguments], cwd=self.folder, env=self._env, capture_output=True, text=True,
            timeout=40, check=False,
        )  # fmt: skip

    def dev(self) -> None:
        log = (self.folder / "dev.log").open("ab")
        self._worker = subprocess.Popen(
            [*HOLDFAST, "dev", "shop:app"], cwd=self.folder, env=self._env, stdout=log, stderr=log
        )
        log.close()

    def kill(self) -> None:
        if self._worker is not None:
            self._worker.send_signal(signal.SIGKILL)
            self._worker.wait()

    def runs(self) -> dict[str, str]:
        """Return the status of each run by id."""
        output = self.type("ls", "--json").stdout
        rows = (
            json.loads(output)
            if output.lstrip().startswith("[")
            else [json.loads(row) for row in output.splitlines()]
        )
        return {row["id"]: row["status"] for row in rows}

    def until(self, holds: Callable[[], object], seconds: float = 30) -> None:
        """Wait in real time, because real processes have no clock that a test can turn."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, (self.folder / "dev.log").read_text("utf-8")
            time.sleep(0.1)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Callable[[Path], Desk]]:
    desks: list[Desk] = []

    def at(page: Path) -> Desk:
        desks.append(Desk(tmp_path, page))
        return desks[-1]

    yield at
    for one in desks:
        one.kill()


@pytest.mark.slow
def test_the_readme_can_be_followed_from_dev_to_show(desk):
    here = desk(README)
    here.dev()
    here.until(lambda: here.type("start", "shop.order", '{"id": 1}').returncode == 0)

    started = here.type("start", "shop.order", '{"id": 42}', "--wait")
    assert started.returncode == 0, started.stderr
    assert "receipt for order 42, shipped" in started.stdout

    run = max(here.runs())
    shown = here.type("show", run[-6:])
    assert shown.returncode == 0, shown.stderr
    assert "succeeded" in shown.stdout
    assert "charge" in shown.stdout


@pytest.mark.slow
def test_the_run_of_the_tutorial_survives_its_kill(desk):
    """A recorded step does not run again after its process was killed."""
    here = desk(TUTORIAL)
    here.dev()
    here.until(lambda: here.type("start", "shop.order", '{"id": 43}', "--key", "order:43").returncode == 0)
    assert here.type("start", "shop.order", '{"id": 43}', "--key", "order:43").returncode == 0
    assert len(here.runs()) == 1, "the same key is the same run"
    here.until(lambda: "waiting" in here.runs().values())

    here.kill()
    assert here.type("emit", "packed.43", '{"box": "a large box"}').returncode == 0
    here.dev()

    (run,) = here.runs()
    ended = here.type("result", run, "--timeout", "30")
    assert ended.returncode == 0, ended.stderr
    assert "receipt-43" in ended.stdout
    ledger = (here.folder / "ledger.txt").read_text("utf-8").splitlines()
    assert ledger == ["charged order 43", "shipped order 43 in a large box"]
    assert here.type("trail", run).stdout
    assert here.type("explain", run).returncode == 0
