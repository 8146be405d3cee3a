"""`holdfast conformance`: the table, the JSON, the exit code, and wrong calls."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.cli import INTERRUPTED
from holdfast.conformance.running import CASES

PLAIN = (sys.executable, str(Path(__file__).parents[2] / "conformance" / "plain"))


class TestCommand:
    """`holdfast conformance`."""

    @pytest.mark.slow
    def test_a_failed_case_is_told_in_words_and_by_the_exit_code(self, cli_):
        """The table has the sentence and the section; the exit code is 1."""
        result = cli_("conformance", "--only", "hello", "--", *PLAIN, "--broken", "no-fence")
        assert result.exit_code == 1
        assert "hello: no-fence\n  the worker writes without fence (" in result.stdout
        assert "\n  see docs/worker-protocol.md#life-of-a-lease\n" in result.stdout
        assert "0 cases passed, 1 failed, 0 not run" in result.stdout

    @pytest.mark.slow
    def test_json_has_each_case(self, cli_):
        """With --json the verdicts are one document; a passed case has no sentence."""
        result = cli_("conformance", "--only", "hello", "--json", "--", *PLAIN)
        assert result.exit_code == 0
        told = json.loads(result.stdout)
        assert told["passed"] is True
        (case,) = told["cases"]
        assert (case["case"], case["verdict"], case["mistake"], case["says"]) == ("hello", "passed", "", "")

    def test_list_names_the_cases(self, cli_):
        """--list starts nothing."""
        result = cli_("conformance", "--list")
        assert result.exit_code == 0
        assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == list(CASES)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ([], "give the command of the worker, as in `holdfast conformance -- ./my-worker`"),
            (["--only", "helo", "--", "x"], "there is no case 'helo'; did you mean hello?"),
            (["--", "/no/such/program"], "the command '/no/such/program' cannot be started: No such file"),
        ],
    )
    def test_a_wrong_call_is_one_line(self, cli_, arguments, said):
        """A wrong call has one clear line and exit code 2."""
        result = cli_("conformance", *arguments)
        assert result.exit_code == 2
        assert said in result.stderr
        assert len(result.stderr.splitlines()) <= 3

    @pytest.mark.slow
    def test_sigterm_leaves_no_worker_behind(self, tmp_path):
        """A kit that is stopped in the middle of a case ends its worker first."""
        noted = tmp_path / "pid"
        worker = f"echo $$ > {noted}; exec {shlex.join(PLAIN)}"
        command = [sys.executable, "-m", "holdfast.cli", "conformance", "--only", "blocked-thread"]
        kit = subprocess.Popen([*command, "--", "sh", "-c", worker], stderr=subprocess.DEVNULL)
        try:
            until(lambda: noted.exists() and noted.read_text().strip())
            kit.send_signal(signal.SIGTERM)
            assert kit.wait(20) == INTERRUPTED
            until(lambda: not is_alive(int(noted.read_text())))
        finally:
            kit.kill()
            kit.wait()


def until(condition):
    """Wait for what another process does."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
