"""The guide of API keys: its commands work on a real server, and its table of scopes is complete."""

from __future__ import annotations

import re

import pytest

from holdfast.http.access import REMEMBER_SECONDS
from holdfast.http.audit import REFUSALS
from holdfast.http.operation import all_operations
from holdfast.records import Scope
from servers.plugin import need
from tests.docs import pages, shell

PAGE = pages.ROOT / "docs" / "guide" / "keys.md"
TEXT = PAGE.read_text("utf-8")
USED = {
    scope
    for operation in all_operations().values()
    if set(operation.scopes) != set(Scope)  # any key may call that one
    for scope in operation.scopes
}


@pytest.mark.slow
@pytest.mark.spec("TEN-1", "TEN-2", "TEN-3")
def test_the_commands_print_what_the_page_says(tmp_path):
    need("curl")
    (command,) = [line for line in pages.commands(PAGE) if line.startswith("holdfast serve")]
    with shell.serving(tmp_path, *command.split()[2:]) as port:
        assert shell.wrong_outputs(PAGE, tmp_path, port) == []


def test_the_table_of_scopes_is_that_of_the_program():
    """The meanings are those of the docstring of `Scope`; a scope that no operation needs is marked."""
    (rows,) = re.findall(r"^\| scope \| .*\n\| --- .*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    shown = dict(re.findall(r"^\| `([a-z.]+)` \| (.+) \|$", rows, re.MULTILINE))
    meanings = re.findall(r"^    ([a-z.]+) {2,}(.+(?:\n {8,}.+)*)", Scope.__doc__ or "", re.MULTILINE)
    assert shown == {
        name: " ".join(meaning.split()) + ("" if Scope(name) in USED else " (nothing uses it yet)")
        for name, meaning in meanings
    }
    assert list(shown) == list(Scope)


def test_every_named_operation_exists():
    named = set(re.findall(r"`((?:GET|POST) /[a-z/{}]*)`", TEXT))
    assert len(named) >= 5
    assert named <= {f"{one.method} {one.path}" for one in all_operations().values()}


def test_the_numbers_of_the_page_are_those_of_the_program():
    assert f"remember a key for {REMEMBER_SECONDS:g} s" in TEXT
    assert REFUSALS == 10
    assert "at most ten a minute" in TEXT
