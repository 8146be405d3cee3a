"""The samples of tests/typing/ say what type checkers must accept and refuse."""

from __future__ import annotations

import pytest

from tests.laws.effort import only_long
from tools import typing_samples
from tools.typing_samples import Line


@only_long  # `./hf check typing` does the same
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.spec("FLOW-27")
def test_both_checkers_refuse_the_marked_lines_and_nothing_else(capsys):
    assert typing_samples.main() == 0, capsys.readouterr().out


def test_an_error_without_a_mark_and_a_mark_without_an_error_are_named(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "one.py").write_text("a = 1\nb = c  # error\n")
    expected = typing_samples.marked(tmp_path)

    assert expected == {Line("bad/one.py", 2)}
    assert list(typing_samples.complaints("mypy", {Line("bad/one.py", 1): "no"}, expected)) == [
        "mypy: bad/one.py:1: unexpected error: no",
        "mypy: bad/one.py:2: marked with `# error`, but there is none",
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("checker", sorted(typing_samples.CHECKERS))
def test_a_checker_finds_an_error_and_its_line(tmp_path, checker):
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "one.py").write_text("a: int = 1\nb: str = a\n")

    assert set(typing_samples.CHECKERS[checker](tmp_path)) == {Line("good/one.py", 2)}
