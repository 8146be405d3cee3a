"""`./hf test` calls pytest with the options of the run that was asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.tools.calls import ROOT
from tools import run_tests
from tools.run_tests import COMPLETE, Run, UsageError, runs


def none() -> list[int]:
    return []


def unexpected() -> list[int]:
    raise AssertionError("only --all looks for Postgres versions")


class TestArguments:
    def test_alone_it_runs_everything_on_two_cores(self):
        assert runs([], unexpected) == [Run(("-n", "3"))]

    def test_other_arguments_go_to_pytest_as_they_are(self):
        assert runs(["-k", "lease", "tests/engine"], unexpected) == [Run(("-k", "lease", "tests/engine"))]

    def test_quick_leaves_out_slow_tests_and_servers(self):
        [quick] = runs(["--quick"], unexpected)
        assert quick.arguments[:5] == ("-n", "3", "-m", "not slow", "--no-postgres")
        assert "--ignore=tests/stores/postgres" in quick.arguments
        assert quick.env == {}

    def test_quick_takes_arguments_of_pytest_too(self):
        [quick] = runs(["--quick", "-k", "lease"], unexpected)
        assert quick.arguments == (*run_tests.quick_options(), "-k", "lease")
        assert "--quick" not in quick.arguments

    def test_all_runs_the_long_forms_and_then_each_other_postgres_version(self):
        first, *more = runs(["--all"], lambda: [16, 18])
        assert first.arguments == ("-n", "3")
        assert first.env == COMPLETE
        assert [run.arguments for run in more] == [
            ("-n", "3", f"--postgres-version={version}", "tests/stores/postgres") for version in (16, 18)
        ]
        assert all("HOLDFAST_LAWS" not in run.env and run.env["CI"] == "1" for run in more)

    def test_all_runs_the_whole_contract_of_redis_on_each_other_server_single_and_in_a_cluster(self):
        _, *more = runs(["--all"], none, lambda: ["valkey-9.1", "redis-6.2"])
        assert [run.arguments for run in more] == [
            ("-n", "3", f"--redis-server={server}", "--redis-cluster", "tests/stores/redis")
            for server in ("valkey-9.1", "redis-6.2")
        ]
        assert all("HOLDFAST_LAWS" not in run.env and run.env["CI"] == "1" for run in more)

    def test_all_takes_arguments_of_pytest_too(self):
        assert [run.arguments[-2:] for run in runs(["--all", "-k", "lease"], lambda: [16])] == [
            ("-k", "lease")
        ] * 2

    def test_all_says_what_it_sets(self):
        first, *_ = runs(["--all"], none)
        assert "HOLDFAST_LAWS=long" in first.title
        assert "HOLDFAST_REQUIRE_PGBOUNCER=1" in first.title

    def test_quick_and_all_exclude_each_other(self, capsys):
        with pytest.raises(UsageError):
            runs(["--quick", "--all"], none)
        assert run_tests.main(["--quick", "--all"]) == 2
        assert capsys.readouterr().err.count("\n") == 1

    def test_help_names_every_option(self, capsys):
        assert run_tests.main(["--help"]) == 0
        shown = capsys.readouterr().out
        assert all(word in shown for word in ("--quick", "--all", "minutes", *COMPLETE))


class TestExitCodes:
    @pytest.fixture
    def codes(self, monkeypatch) -> list[int]:
        """The exit codes of the next calls of pytest."""
        codes: list[int] = []

        def call(command, **_) -> subprocess.CompletedProcess[str]:
            return subprocess.CompletedProcess(command, codes.pop(0))

        monkeypatch.setattr(run_tests.subprocess, "run", call)
        return codes

    def test_a_failure_does_not_stop_the_runs_after_it(self, codes):
        codes += [1, 0, 0]
        assert run_tests.follow([Run(())] * 3) == 1
        assert codes == []

    def test_a_run_that_has_no_such_test_is_no_failure(self, codes):
        codes += [0, 5]
        assert run_tests.follow([Run(())] * 2) == 0


class TestQuick:
    @pytest.mark.parametrize("path", run_tests.NOT_QUICK)
    def test_every_path_that_it_leaves_out_exists(self, path):
        assert (ROOT / path).exists()

    @pytest.mark.slow  # pytest collects many tests
    def test_it_has_tests_of_every_part_and_runs_the_contract_on_memory(self):
        parts = (
            "words",
            "codec",
            "machine",
            "contract",
            "engine/commit",
            "cli/output",
            "stores/sqlite/chores",
        )
        folders = [f"tests/{part}" for part in parts]
        command = [*Run((*run_tests.quick_options(), "--collect-only", "-q", "-n0", *folders)).command()]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
        for folder in folders:
            assert f"{folder}/" in listed
        assert "tests/contract/test_stores.py::TestMemory::" in listed
        assert "tests/contract/test_stores.py::TestSqlite::" not in listed


def test_a_run_uses_the_interpreter_of_the_environment():
    assert Run(("-q",)).command() == [sys.executable, "-m", "pytest", "-q"]
