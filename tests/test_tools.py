"""The tools are part of what is promised: a clone, one command, and checks that can be trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.lifecycle import MOVES, RULES, Move, Status
from tools import check, contract, docs, install, moves, spec, stamp, tidy

ROOT = Path(__file__).resolve().parent.parent


def call(*argv: str | Path, stdin: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, argv)), input=stdin, env=os.environ | env, capture_output=True, text=True, check=False
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of the checkout as boots, in a folder whose name has a space in it."""
    root = tmp_path / "my clone"
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "requirements", root / "requirements")
    for name in ("hf", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    return root


class TestTheDoor:
    def test_alone_it_lists_its_commands(self, clone):
        told = call(clone / "hf", HOLDFAST_PYTHON=sys.executable)
        assert told.returncode == 0
        assert {"demo", "test", "check", "fmt", "bench", "verify"} <= set(told.stdout.split())

    def test_an_unknown_command_is_one_line_and_exit_2(self, clone):
        told = call(clone / "hf", "tset", HOLDFAST_PYTHON=sys.executable)
        assert (told.returncode, told.stderr.count("\n")) == (2, 1)
        assert "'tset'" in told.stderr

    def test_a_symlink_to_it_finds_the_checkout(self, clone, tmp_path):
        (tmp_path / "link").symlink_to(clone / "hf")
        assert call(tmp_path / "link", HOLDFAST_PYTHON=sys.executable).returncode == 0

    def test_an_unfit_interpreter_is_refused_in_one_line(self, clone):
        told = call(clone / "hf", HOLDFAST_PYTHON="/bin/false")
        assert (told.returncode, told.stderr.count("\n")) == (1, 1)
        assert "HOLDFAST_PYTHON=/bin/false" in told.stderr

    def test_without_a_python_one_line_says_what_to_install(self, clone, tmp_path):
        for tool in ("dirname", "readlink"):
            found = shutil.which(tool)
            assert found
            (tmp_path / tool).symlink_to(found)
        told = call("/bin/sh", clone / "hf", PATH=str(tmp_path), HOLDFAST_PYTHON="")
        assert (told.returncode, told.stderr.count("\n")) == (1, 1)
        assert "install" in told.stderr

    def test_a_shim_that_does_not_run_is_passed_over(self, clone, tmp_path):
        """Version managers leave names on PATH for versions that are not active."""
        (tmp_path / "python3.14").write_text("#!/bin/sh\nexit 127\n")
        (tmp_path / "python3.14").chmod(0o755)
        told = call(clone / "hf", PATH=f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert told.returncode == 0

    def test_with_no_installer_one_line_says_what_to_install(self, clone, monkeypatch):
        monkeypatch.setattr(install, "_runs", lambda _: False)
        monkeypatch.setenv("PATH", str(clone))
        with pytest.raises(SystemExit) as caught:
            install.find_uv(clone)
        assert "install one of them" in str(caught.value)
        assert "\n" not in str(caught.value)


class TestTheStamp:
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


class TestSpecCoverage:
    SPEC = "# Spec\n\n- MOVE-1 One.\n- **MOVE-2** Two, see MOVE-9.\n"

    @pytest.mark.parametrize(
        "source",
        [
            '@pytest.mark.spec("MOVE-1", "MOVE-2")\ndef test_a(): ...',
            'pytestmark = [pytest.mark.spec("MOVE-1"), pytest.mark.spec("MOVE-2")]',
            'CASES = [param(1, marks=pytest.mark.spec("MOVE-1")), param(2, marks=mark.spec("MOVE-2"))]',
        ],
    )
    def test_a_mark_counts_wherever_it_stands(self, source):
        assert spec.problems(self.SPEC, {"t.py": source}) == []

    def test_a_line_without_a_test_is_named(self):
        source = 'pytest.mark.spec("MOVE-1")'
        assert spec.problems(self.SPEC, {"t.py": source}) == ["MOVE-2 has no test"]

    def test_an_id_that_is_not_in_the_spec_is_named_with_its_place(self):
        source = 'pytest.mark.spec("MOVE-1", "MOVE-2")\npytest.mark.spec("MOVE-9")'
        assert spec.problems(self.SPEC, {"t.py": source}) == ["t.py:2: MOVE-9 is not in docs/spec.md"]

    def test_an_id_that_is_not_written_out_is_refused(self):
        source = 'pytest.mark.spec("MOVE-1", "MOVE-2", *MORE)'
        assert spec.problems(self.SPEC, {"t.py": source}) == ["t.py:1: write the id out as a string"]

    def test_an_id_that_stands_twice_is_refused(self):
        source = 'pytest.mark.spec("MOVE-1", "MOVE-2")'
        assert spec.problems(self.SPEC + "- MOVE-1 Again.\n", {"t.py": source}) == [
            "docs/spec.md has MOVE-1 twice"
        ]


class TestMoves:
    @pytest.mark.parametrize(
        ("source", "what"),
        [
            ("row.status = Status.PENDING", "sets .status"),
            ("row.run_at, row.attempt = now, 0", "sets .attempt"),
            ("row.fence += 1", "sets .fence"),
            ("replace(step, status=StepStatus.FAILED)", "gives status="),
            ("view.note(run, 'woken', step=key)", "tells 'woken'"),
        ],
    )
    def test_python_that_decides_is_found(self, source, what):
        assert [found for _, found in moves.in_python(source)] == [what]

    @pytest.mark.parametrize(
        "source",
        [
            "if row.status is Status.PENDING: pass",
            "self._state.note(run, what, data, now)",
            "Step(status=_STATUSES[row[3]])",
            "row.lease = 5",
            "counted[row.status] += 1",
        ],
    )
    def test_python_that_reads_and_writes_is_let_pass(self, source):
        assert list(moves.in_python(source)) == []

    @pytest.mark.parametrize(
        ("source", "what"),
        [
            (
                "-- :a\nupdate workflow_run set status = 'pending', rev = rev + 1 where id = :run",
                "sets status",
            ),
            ("-- :a\nupdate workflow_step\nset cost = 1, waits = waits + 1", "sets waits"),
            (
                "insert into workflow_event (event_type)\nselect 'woken' from json_each(:runs)",
                "tells 'woken'",
            ),
        ],
    )
    def test_sql_that_decides_is_found(self, source, what):
        assert [found for _, found in moves.in_sql(source)] == [what]

    def test_sql_that_reads_and_writes_is_let_pass(self):
        source = "-- :a\nupdate workflow_run set leased_by = :by where status = 'pending' and fence = :fence"
        assert list(moves.in_sql(source)) == []

    def test_only_the_named_fast_paths_decide(self):
        assert list(moves.findings(moves.STORES)) == []


class TestTheContract:
    def part(self, root: Path, words: str) -> list[str]:
        for name in ("contract", "machine"):
            (root / name).mkdir()
        verb = f'    async def park(self):\n        """{words}"""\n'
        source = f'"""Part."""\nclass Part(Protocol):\n    """Verbs."""\n{verb}'
        (root / "contract" / "part.py").write_text(source)
        (root / "machine" / "moves.py").write_text('def park():\n    """park."""\ndef retry():\n    pass\n')
        return [found.partition(": ")[2] for found in contract.findings(root)]

    def test_a_docstring_of_25_lines_is_let_pass(self, tmp_path):
        assert self.part(tmp_path, "\n".join(["law"] * 25)) == []

    def test_a_longer_one_is_found(self, tmp_path):
        found = self.part(tmp_path, "\n".join(["law"] * 26))
        assert found == ["park has 26 lines of docstring: 1 to 25"]

    def test_a_pointer_leads_to_a_docstring(self, tmp_path):
        assert self.part(tmp_path, "See `machine.moves.park`.") == []

    @pytest.mark.parametrize("name", ["machine.moves.retry", "machine.moves.gone", "machine.gone"])
    def test_one_that_leads_nowhere_is_found(self, tmp_path, name):
        assert self.part(tmp_path, f"See `{name}`.") == [f"`{name}` has no docstring"]

    def test_the_contract_itself_is_right(self):
        assert list(contract.findings(contract.PACKAGE)) == []


class TestTidiness:
    def test_the_readme_goes_along_with_the_package(self):
        """The build fails on a readme that is named but missing, so both come together."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        assert (project.get("readme") == "README.md") is (ROOT / "README.md").exists()

    def test_the_path_of_the_checkout_is_found(self, tmp_path):
        page = tmp_path / "page.md"
        page.write_text(f"fine\nsee {tmp_path}/src\n{tmp_path}-other is another\n")
        assert list(tidy.leaks(tmp_path, [page])) == ["page.md:2: names the path of this checkout"]

    def test_a_host_in_the_pins_is_found(self, tmp_path):
        pins = tmp_path / "requirements" / "dev.txt"
        pins.parent.mkdir()
        pins.write_text("click==1\n--index-url https://example.org/simple\n")
        assert list(tidy.leaks(tmp_path, [pins])) == [
            "requirements/dev.txt:2: names where packages come from"
        ]

    def test_without_git_it_looks_at_what_is_there(self, tmp_path):
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "made.py").touch()
        (tmp_path / "ours.py").write_text("1\n2\n")
        assert list(tidy.sizes(tmp_path, tidy.files(tmp_path))) == [(2, "ours.py")]

    def test_a_check_that_does_not_exist_is_refused(self, capsys):
        assert check.main(["mypi"]) == 2
        assert "'mypi'" in capsys.readouterr().err


class TestGeneratedPages:
    def test_a_stale_page_fails_the_check_and_writing_mends_it(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(docs, "FOLDER", tmp_path)
        assert docs.main(["--check"]) == 1
        assert docs.main([]) == 0
        assert docs.main(["--check"]) == 0
        (tmp_path / "moves.md").write_text("edited by hand")
        assert docs.main(["--check"]) == 1
        assert "stale: moves.md" in capsys.readouterr().out

    def test_no_arrow_but_claim_leads_to_a_lease(self):
        giving = {rule.move for rule in MOVES for a, b in docs.edges(rule) if a != b and b is Status.LEASED}
        assert giving == {Move.CLAIM}

    def test_every_move_has_its_arrow_from_each_source_to_each_target(self):
        for rule in MOVES:
            pairs = set(docs.edges(rule))
            assert {a for a, _ in pairs} == (rule.sources or {"[*]"})
            assert {b for _, b in pairs} == rule.targets

    def test_a_move_that_keeps_the_status_draws_no_arrow(self):
        """`restore` shows a run as it was: it makes no way from one status to another."""
        assert all(a == b for a, b in docs.edges(RULES[Move.RESTORE]))
        assert "restore" not in docs.run_diagram()
        for source, target in ((Status.PENDING, Status.SUCCEEDED), (Status.SUCCEEDED, Status.PENDING)):
            assert f"{source} --> {target}" not in docs.run_diagram()


class TestTheWalls:
    @pytest.mark.parametrize(
        "line",
        [
            "import time",
            "import random",
            "from uuid import uuid4",
            "import threading",
            "from time import sleep",
        ],
    )
    @pytest.mark.parametrize(
        ("place", "allowed"),
        [
            ("engine/worker.py", False),
            ("backoff.py", False),
            ("codec.py", False),
            ("world.py", True),
            ("stores/sqlite/writer.py", True),
            ("cli/dev.py", True),
        ],
    )
    def test_time_and_chance_stay_out_of_the_engine(self, line, place, allowed):
        argv = ["check", "--select", "TID251", "--stdin-filename", ROOT / "src" / "holdfast" / place, "-"]
        told = call(sys.executable, "-m", "ruff", *argv, stdin=f"{line}\n")
        assert (told.returncode == 0) is allowed, told.stdout
