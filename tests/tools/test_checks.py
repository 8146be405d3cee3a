"""The checks of `./hf check` find the mistakes that they are for."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tests.tools.calls import ROOT, call
from tools import check, contract, moves, spec, tidy


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
            ("view.note(run, 'woken', step=key)", "writes 'woken' to the trail"),
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
                "writes 'woken' to the trail",
            ),
        ],
    )
    def test_sql_that_decides_is_found(self, source, what):
        assert [found for _, found in moves.in_sql(source)] == [what]

    def test_sql_that_reads_and_writes_is_let_pass(self):
        source = "-- :a\nupdate workflow_run set leased_by = :by where status = 'pending' and fence = :fence"
        assert list(moves.in_sql(source)) == []

    @pytest.mark.slow
    def test_only_the_named_fast_paths_decide(self):
        assert list(moves.findings(moves.STORES)) == []


class TestContractDocstrings:
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

    @pytest.mark.slow
    def test_the_contract_itself_is_right(self):
        assert list(contract.findings(contract.PACKAGE)) == []


class TestFiles:
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


class TestBannedImports:
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
            ("engine/worker/worker.py", False),
            ("backoff.py", False),
            ("codec.py", False),
            ("world.py", True),
            ("stores/sqlite/connection/writer.py", True),
            ("cli/dev.py", True),
        ],
    )
    def test_time_and_chance_stay_out_of_the_engine(self, line, place, allowed):
        argv = ["check", "--select", "TID251", "--stdin-filename", ROOT / "src" / "holdfast" / place, "-"]
        done = call(sys.executable, "-m", "ruff", *argv, stdin=f"{line}\n")
        assert (done.returncode == 0) is allowed, done.stdout
