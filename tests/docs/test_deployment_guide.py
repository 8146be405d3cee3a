"""The deployment guide: its units start real commands, and leave a worker time to stop."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from holdfast.cli.main import cli
from tests.docs import pages

PAGE = pages.ROOT / "docs" / "guide" / "deployment.md"
BLOCKS: dict[str, str] = {}
for _block in pages.blocks(PAGE):
    BLOCKS[_block.language] = BLOCKS.get(_block.language, "") + _block.text
SPARE_SECONDS = 20  # the spare time of a process manager after the grace period, as on the page


def _commands():
    """Return the commands of systemd, the container and Kubernetes, without the path of the program."""
    for line in BLOCKS["ini"].splitlines():
        if line.startswith("ExecStart="):
            yield shlex.split(line)[1:]
    lists = [*re.findall(r"^CMD (\[.*\])$", BLOCKS["dockerfile"], re.MULTILINE)]
    lists += re.findall(r"^ *command: (\[.*\])$", BLOCKS["yaml"], re.MULTILINE)
    for words in map(json.loads, lists):
        assert words[0] == "holdfast"
        yield words[1:]


@pytest.mark.parametrize("words", list(_commands()), ids=" ".join)
def test_every_started_command_exists_with_its_options(words):
    name, *rest = words
    command = cli.get_command(None, name)
    assert command is not None
    command.make_context(name, rest)


def test_all_commands_of_the_guide_are_found():
    assert sorted({words[0] for words in _commands()}) == ["doctor", "migrate", "worker"]
    assert [words[0] for words in _commands()].count("worker") == 3


def test_process_managers_wait_longer_than_the_grace_period():
    text = PAGE.read_text("utf-8")
    (grace,) = {words[words.index("--grace") + 1] for words in _commands() if "--grace" in words}
    waits = [
        *re.findall(r"TimeoutStopSec=(\d+)", text),
        *re.findall(r"--stop-timeout (\d+)", text),
        *re.findall(r"stop_grace_period: (\d+)s", text),
        *re.findall(r"terminationGracePeriodSeconds: (\d+)", text),
    ]
    assert grace.endswith("s")
    assert len(waits) == 4
    assert {int(wait) for wait in waits} == {int(grace[:-1]) + SPARE_SECONDS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "before", "code"),
    [
        ("sqlite:///shop.db", [["migrate"]], 0),
        ("sqlite:///shop.db", [], 3),
        ("postgresql://me@127.0.0.1:1/shop", [], 3),
    ],
    ids=["migrated", "not there yet", "not reached"],
)
def test_the_exit_codes_of_doctor_match_the_table(store, before, code, tmp_path):
    documented = re.findall(r"^\| (\d) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    env = os.environ | {"HOLDFAST_STORE": store, "PYTHONPATH": str(pages.ROOT / "src")}
    codes = [
        subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *words],
            cwd=tmp_path, env=env, capture_output=True, timeout=40, check=False,
        ).returncode
        for words in [*before, ["doctor"]]
    ]  # fmt: skip

    assert codes == [0] * len(before) + [code]
    assert str(code) in documented
