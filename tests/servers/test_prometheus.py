"""A real Prometheus for tests: it answers, it is ours, and it ends with the test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from servers import debian
from servers.private import ServerError
from servers.prometheus import BadQuery, NotYet, find, running_prometheus

pytestmark = pytest.mark.slow


def test_a_wrong_expression_is_refused_by_name(prometheus):
    with pytest.raises(BadQuery, match="rate"):
        prometheus().query("rate(up)")


def test_two_of_them_run_side_by_side_and_each_has_its_own_data(prometheus):
    one, other = prometheus(), prometheus()
    assert one.port != other.port
    assert one.data != other.data


@pytest.mark.usefixtures("prometheus_programs")
def test_it_is_gone_with_its_folder_after_the_test():
    with running_prometheus() as server:
        assert server.value("vector(2)") == 2
    with pytest.raises(NotYet):
        server.ask("status/flags")
    assert not server.data.exists()


def test_promtool_comes_with_it(prometheus_programs, tmp_path):
    good = tmp_path / "rules.yml"
    good.write_text('{"groups": [{"name": "a", "rules": [{"alert": "Down", "expr": "up == 0"}]}]}')
    assert "1 rules found" in prometheus_programs.check("check", "rules", good)
    good.write_text('{"groups": [{"name": "a", "rules": [{"alert": "Down", "expr": "up =="}]}]}')
    with pytest.raises(AssertionError, match="promtool check failed"):
        prometheus_programs.check("check", "rules", good)


def test_a_missing_prometheus_is_reported_with_the_way_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(debian, "available", lambda: False)
    with pytest.raises(ServerError, match="Prometheus is not installed: install it"):
        find(tmp_path, {"PATH": str(tmp_path)})


def test_a_failed_download_is_reported_and_leaves_nothing_that_looks_complete(monkeypatch, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("apt-get", "dpkg"):
        (programs / name).write_text("#!/bin/sh\necho no network >&2\nexit 100\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.defpath}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(ServerError, match=r"not installed, and `apt-get download` failed \(no network\)"):
        find(tmp_path, {"PATH": str(programs)})
    assert list(Path(tmp_path / "cache/holdfast").iterdir()) == []
