"""A missing server is a failure. Tests are skipped only on request."""

from __future__ import annotations

import pytest

from servers import installs
from servers.postgres import NAMED_BY

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.delenv(NAMED_BY, raising=False)
    monkeypatch.setattr(installs, "installs", lambda: iter(()))

    def run(test, *options):
        pytester.makepyfile(test)
        return pytester.runpytest_inprocess("-p", "servers.plugin", "-p", "no:cacheprovider", *options)

    return run


DEFAULT = "def test(postgres_database): pass"
BY_VERSION = "def test(postgres_of): postgres_of(18)"


def test_a_missing_server_is_a_failure_that_names_the_remedies(run):
    result = run(DEFAULT)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*Postgres is not installed: install*--no-postgres*"])


@pytest.mark.parametrize("test", [DEFAULT, BY_VERSION])
def test_the_option_no_postgres_skips_tests(run, test):
    run(test, "--no-postgres").assert_outcomes(skipped=1)


def test_a_missing_version_is_skipped_on_a_laptop_and_fails_in_ci(run, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    run(BY_VERSION).assert_outcomes(skipped=1)
    monkeypatch.setenv("CI", "1")
    run(BY_VERSION).assert_outcomes(failed=1)


def test_pgbouncer_is_skipped_unless_it_is_required(run, monkeypatch, tmp_path):
    test = "def test(pgbouncer): pgbouncer(None, 'any')"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("servers.pgbouncer.SYSTEM_FOLDERS", ())
    monkeypatch.delenv("HOLDFAST_REQUIRE_PGBOUNCER", raising=False)
    run(test).assert_outcomes(skipped=1)
    monkeypatch.setenv("HOLDFAST_REQUIRE_PGBOUNCER", "1")
    run(test).assert_outcomes(failed=1)


@pytest.mark.parametrize("variable", ["HOLDFAST_REQUIRE_PROMETHEUS", "CI"])
def test_prometheus_is_skipped_on_a_laptop_and_fails_where_it_is_required(
    run, monkeypatch, tmp_path, variable
):
    test = "def test(prometheus): pass"
    monkeypatch.setenv("PATH", str(tmp_path))
    for one in ("HOLDFAST_REQUIRE_PROMETHEUS", "CI"):
        monkeypatch.delenv(one, raising=False)
    run(test).assert_outcomes(skipped=1)
    monkeypatch.setenv(variable, "1")
    run(test).assert_outcomes(errors=1)
