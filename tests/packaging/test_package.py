"""`./hf package` finds files that are missing in an sdist or a wheel, and tests every extra."""

from __future__ import annotations

import runpy
import shutil
import tomllib
import zipfile
from pathlib import Path

import pytest

from tools import package
from tools.package import ROOT, Environment, PackageError


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name in ("src/holdfast/__init__.py", "src/holdfast/py.typed", "tests/test_a.py", "README.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.fixture
def unpacked(checkout: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkout, tmp_path / "unpacked"))


def wheel(folder: Path, files: dict[str, str], name: str = "a.whl") -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return folder / name


WHOLE = {"holdfast/__init__.py": "", "holdfast/py.typed": "", "holdfast-1.dist-info/METADATA": ""}


class TestContents:
    def test_a_whole_sdist_and_a_whole_wheel_pass(self, checkout, unpacked, tmp_path):
        assert package.wrong_contents(checkout, unpacked, wheel(tmp_path, WHOLE)) == []

    def test_a_file_that_the_sdist_lacks_is_named(self, checkout, unpacked, tmp_path):
        (unpacked / "tests/test_a.py").unlink()
        found = package.wrong_contents(checkout, unpacked, wheel(tmp_path, WHOLE))
        assert found == ["the sdist lacks tests/test_a.py"]

    def test_a_file_that_the_wheel_lacks_is_named(self, checkout, unpacked, tmp_path):
        files = {name: text for name, text in WHOLE.items() if name != "holdfast/py.typed"}
        found = package.wrong_contents(checkout, unpacked, wheel(tmp_path, files))
        assert found == ["the wheel lacks holdfast/py.typed"]

    def test_a_file_that_is_too_much_in_the_wheel_is_named(self, checkout, unpacked, tmp_path):
        found = package.wrong_contents(checkout, unpacked, wheel(tmp_path, WHOLE | {"tests/a.py": ""}))
        assert found == ["the wheel has tests/a.py, which is not of the package"]

    def test_wheels_are_compared_byte_for_byte(self, tmp_path):
        first = wheel(tmp_path, {"a": "1", "b": "2", "c": "3"})
        second = wheel(tmp_path, {"a": "1", "b": "0", "d": "4"}, "b.whl")
        assert package.different_files(first, second) == ["b", "c", "d"]
        assert package.different_files(first, first) == []


class TestEnvironments:
    def test_there_is_one_without_an_extra_one_for_each_and_one_with_pytest(self, tmp_path):
        pyproject = tmp_path / "pyproject.toml"
        pyproject.write_text('[project.optional-dependencies]\nb = ["x"]\na = ["y"]\n')
        names = [environment.name for environment in package.environments(pyproject)]
        assert names == ["no extra", "a", "b", "pytest"]

    def test_the_wheel_is_required_with_its_extra(self):
        file = Path("/dist/holdfast-1.whl")
        assert Environment("a", "a").requirements(file) == ["holdfast[a] @ file:///dist/holdfast-1.whl"]
        assert Environment("pytest", also=("pytest",)).requirements(file)[1:] == ["pytest"]

    def test_the_smoke_program_knows_every_extra(self):
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
            "optional-dependencies"
        ]
        assert set(runpy.run_path(str(package.SMOKE))["BROUGHT"]) == set(extras)


class TestFailures:
    def test_a_command_that_fails_is_named_with_its_output(self, tmp_path):
        with pytest.raises(PackageError, match=r"ended with 3:\nwhy"):
            package._run(["sh", "-c", "echo why; exit 3"], tmp_path)

    def test_a_test_that_cannot_be_imported_fails(self, tmp_path):
        (tmp_path / "test_a.py").write_text("import nothing_of_this_name\n")
        with pytest.raises(PackageError, match="nothing_of_this_name"):
            package.collect_tests(tmp_path)

    def test_one_line_goes_to_stderr(self, monkeypatch, capsys):
        def fails(*_):
            raise PackageError("the wheel lacks holdfast/py.typed")

        monkeypatch.setattr(package, "_test", fails)
        assert package.main([]) == 1
        assert capsys.readouterr().err == "hf package: the wheel lacks holdfast/py.typed\n"
