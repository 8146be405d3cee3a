"""The line that counts runs on a terminal while they are carried."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.cli.questions import counted_so_far, counter
from holdfast.transfer.families import number_of
from holdfast.transfer.lines import runs_in
from tests.transfer.conftest import clock  # noqa: F401  # fixture
from tests.transfer.test_hazards import two
from tests.transfer.test_moving import fresh, loop  # noqa: F401  # fixtures

pytestmark = pytest.mark.spec("STORE-6")


@pytest.mark.parametrize(
    ("count", "total", "seconds", "line"),
    [
        (0, 1000, 5.0, "0 of 1,000 runs moved"),
        (250, 1000, 0.5, "250 of 1,000 runs moved"),
        (250, 1000, 10.0, "250 of 1,000 runs moved, 25 a second, 30 s left"),
        (1200, 1000, 10.0, "1,200 of 1,200 runs moved, 120 a second"),  # with families
        (250, None, 10.0, "250 runs moved, 25 a second"),
    ],
)
def test_the_line_says_how_far_it_is_and_how_long_it_takes(count, total, seconds, line):
    assert counted_so_far("moved", count, total, seconds) == line


def test_it_is_silent_without_a_terminal(capsys):
    with counter("moved", 10) as update:
        update(3)
    assert capsys.readouterr().err == ""


def test_the_total_comes_from_the_store_or_from_the_last_line(fresh, tmp_path):  # noqa: F811
    source, _, _ = two(fresh, 3)
    assert source.run(number_of(source.store, None)) == 3
    source.run(App(source.store).export(tmp_path / "a"))
    assert runs_in(tmp_path / "a") == 3
    text = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(text[:-20])
    assert runs_in(tmp_path / "a") is None
    (tmp_path / "a").write_bytes(b"")
    assert runs_in(tmp_path / "a") is runs_in(tmp_path / "b") is None
