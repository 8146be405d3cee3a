"""The guide of the Python client: its programs and commands talk to a real server."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.client.client import TIMEOUT_SECONDS
from holdfast.client.operations import OPERATIONS
from holdfast.client.reads import WAIT_SECONDS
from holdfast.http.call import PAGE_MAX
from tests.docs import pages, shell

PAGE = pages.ROOT / "docs" / "guide" / "client.md"
TEXT = PAGE.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.spec("HTTP-8", "CLI-6")
def test_the_programs_and_commands_print_what_the_page_says(tmp_path):
    shell.write_files(PAGE, tmp_path)
    with shell.serving(tmp_path, "shop:app", "--worker") as port:
        assert shell.wrong_outputs(PAGE, tmp_path, port) == []


def test_the_numbers_and_lists_of_the_page_are_those_of_the_program():
    assert f"A call has {TIMEOUT_SECONDS:g} s" in TEXT
    assert f"asks again every {WAIT_SECONDS:g} s" in TEXT
    assert f"at most {PAGE_MAX} rows" in TEXT
    unsafe = [name for name, one in OPERATIONS.items() if not one.repeatable]
    (line,) = [one for one in TEXT.split("\n\n") if "are not sent again" in one]
    assert all(f"`{name}`" in line for name in unsafe)
    assert all(
        hasattr(hf, name)
        for name in ("Unavailable", "NotAllowed", "RateLimited", "TooManyRuns", "StoreError")
    )
