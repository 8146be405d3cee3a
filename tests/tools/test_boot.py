"""`./hf` works in a fresh clone, and makes its environment anew only when it has to."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.tools.calls import ROOT, call
from tools import boot, install, stamp


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that `./hf` needs to start, in a folder whose name has a space in it."""
    root = tmp_path / "my clone"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "requirements", root / "requirements")
    for name in ("hf", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    return root


class TestCommandLine:
    def test_alone_it_lists_its_commands(self, clone):
        done = call(clone / "hf", HOLDFAST_PYTHON=sys.executable)
        assert done.returncode == 0
        assert {"demo", "test", "check", "fmt", "bench", "verify"} <= set(done.stdout.split())

    def test_an_unknown_command_is_one_line_and_exit_2(self, clone):
        done = call(clone / "hf", "tset", HOLDFAST_PYTHON=sys.executable)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "'tset'" in done.stderr

    def test_a_symlink_to_it_finds_the_checkout(self, clone, tmp_path):
        (tmp_path / "link").symlink_to(clone / "hf")
        assert call(tmp_path / "link", HOLDFAST_PYTHON=sys.executable).returncode == 0

    def test_an_unfit_interpreter_is_refused_in_one_line(self, clone):
        done = call(clone / "hf", HOLDFAST_PYTHON="/bin/false")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "HOLDFAST_PYTHON=/bin/false" in done.stderr

    def test_without_a_python_one_line_says_what_to_install(self, clone, tmp_path):
        for tool in ("dirname", "readlink"):
            found = shutil.which(tool)
            assert found
            (tmp_path / tool).symlink_to(found)
        done = call("/bin/sh", clone / "hf", PATH=str(tmp_path), HOLDFAST_PYTHON="")
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "install" in done.stderr

    def test_a_shim_that_does_not_run_is_passed_over(self, clone, tmp_path):
        """Version managers leave names on PATH for versions that are not active."""
        (tmp_path / "python3.14").write_text("#!/bin/sh\nexit 127\n")
        (tmp_path / "python3.14").chmod(0o755)
        done = call(clone / "hf", PATH=f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert done.returncode == 0

    def test_with_no_installer_one_line_says_what_to_install(self, clone, monkeypatch):
        monkeypatch.setattr(install, "_runs", lambda _: False)
        monkeypatch.setenv("PATH", str(clone))
        with pytest.raises(SystemExit) as caught:
            install.find_uv(clone)
        assert "install one of them" in str(caught.value)
        assert "\n" not in str(caught.value)


class TestBytecode:
    def test_it_is_kept_in_the_environment_where_it_must_not_be_beside_the_sources(self):
        given = {"PYTHONDONTWRITEBYTECODE": "1", "PATH": "/bin"}
        kept = {"PYTHONPYCACHEPREFIX": str(ROOT / ".venv" / "bytecode"), "PATH": "/bin"}
        assert boot.environment(given) == kept
        assert boot.environment({**given, "PYTHONPYCACHEPREFIX": "/x"}) == {
            **kept,
            "PYTHONPYCACHEPREFIX": "/x",
        }

    def test_nothing_else_is_changed(self):
        assert boot.environment({"PATH": "/bin"}) == {"PATH": "/bin"}


class TestStamp:
    @pytest.fixture
    def made(self, clone: Path) -> Path:
        stamp.python(clone).parent.mkdir(parents=True)
        stamp.python(clone).symlink_to(sys.executable)
        return clone

    def test_nothing_is_current_before_it_is_made(self, clone):
        assert not stamp.current(clone, stamp.RUNTIME)

    def test_the_larger_profile_offers_the_smaller_and_not_the_reverse(self, made):
        stamp.write(made, stamp.DEV)
        assert stamp.current(made, stamp.RUNTIME)
        stamp.write(made, stamp.RUNTIME)
        assert not stamp.current(made, stamp.DEV)

    def test_a_changed_pin_makes_it_stale(self, made):
        stamp.write(made, stamp.DEV)
        with (made / "requirements" / "dev.txt").open("a") as pins:
            pins.write("more==1\n")
        assert not stamp.current(made, stamp.DEV)

    def test_a_changed_lint_rule_does_not(self, made):
        stamp.write(made, stamp.DEV)
        with (made / "pyproject.toml").open("a") as pyproject:
            pyproject.write("\n[tool.other]\nx = 1\n")
        assert stamp.current(made, stamp.DEV)

    def test_a_moved_checkout_is_made_anew(self, made):
        stamp.write(made, stamp.DEV)
        assert not stamp.current(made.rename(made.with_name("moved")), stamp.DEV)

    def test_a_spoiled_stamp_is_no_stamp(self, made):
        stamp.write(made, stamp.DEV)
        (made / ".venv" / "holdfast-stamp.json").write_text("{")
        assert not stamp.current(made, stamp.DEV)
