"""The plugin as pytest loads it, and the contract suite as the author of a store runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import contract
from holdfast.testing.contract import suite
from tests.docs import pages

SRC = str(Path(suite.__file__).parents[3])

USERS = """
import holdfast as hf
from holdfast.stores.memory import MemoryStore
from holdfast.testing import contract

app = hf.App("memory://")


@app.workflow("shop.nap.v1")
async def nap(ctx: hf.Context) -> str:
    await ctx.sleep(days=30)
    return "rested"


def test_a_nap(rehearsal):
    stage = rehearsal(app)
    run = stage.start(nap)
    stage.advance(days=30)
    assert run.status == "succeeded"


def test_any_crash(explore):
    assert explore(nap).ok


class Careless(MemoryStore):
    async def emit(self, event):
        await super().emit(event)
        return "sent"


TestGood = contract(lambda clock, folder: MemoryStore(clock=clock))


class TestCareless(contract(lambda clock, folder: Careless(clock=clock))):
    pass
"""


def run(folder, *argv):
    env = os.environ | {
        "PYTHONPATH": SRC,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, *argv], cwd=folder, env=env, capture_output=True, text=True, timeout=50, check=False
    )


def pytest_in(folder, *argv):
    """Run pytest without other plugins, and with the strictest settings that a user may have."""
    plugins = ("-p", "holdfast.testing.plugin", "-p", "no:cacheprovider")
    return run(folder, "-m", "pytest", "-q", *plugins, "--strict-markers", "-W", "error", *argv)


@pytest.mark.slow
@pytest.mark.spec("TEST-3", "TEST-4")
def test_a_users_tests_have_the_fixtures_and_a_stores_author_the_suite(tmp_path):
    """Both work with strict markers and warnings as errors; a verb that a store lacks fails by name."""
    (tmp_path / "users.py").write_text(USERS)
    # A file pattern of their own: otherwise pytest rewrites the asserts of our test_*.py by their names.
    done = pytest_in(
        tmp_path, "-o", "python_files=users.py", "-k", "test_a_nap or test_any_crash or counts_them"
    )
    assert "1 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "TestCareless::test_an_event_wakes_everyone_who_waits_and_counts_them" in done.stdout
    assert "assert 'sent' == Emitted(" in done.stdout


@pytest.mark.slow
@pytest.mark.spec("TEST-3", "TEST-4")
def test_the_files_that_the_guide_shows_are_tests_that_pass(tmp_path):
    shown = [block for block in pages.blocks(pages.ROOT / "docs" / "guide" / "testing.md") if block.file]
    for block in shown:
        (tmp_path / block.file).write_text(block.text)
    chosen = "test_a_month or test_any_crash or wakes_everyone"
    done = pytest_in(tmp_path, "-k", chosen)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.spec("TEST-3")
def test_loading_the_plugin_loads_nothing_of_the_engine(tmp_path):
    """Every run of pytest loads the plugin, also a run without any test of Holdfast."""
    heavy = "{'msgspec', 'apsw', 'asyncio', 'holdfast.engine', 'holdfast.records'}"
    code = (
        "import sys, pytest; known = set(sys.modules); import holdfast.testing.plugin; "
        f"print(sorted({heavy} & (set(sys.modules) - known)))"
    )
    done = run(tmp_path, "-c", code)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_kit_works_without_pytest(tmp_path):
    code = (
        "import sys; sys.modules['pytest'] = None; from holdfast.testing import Rehearsal, explore, contract"
    )
    done = run(tmp_path, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.spec("TEST-4")
def test_every_test_of_the_package_is_in_the_suite():
    """Every file with tests is part of the suite of every store."""
    made = contract(lambda *_: None)
    folder = Path(suite.__file__).parent
    names = [
        line.removeprefix("def ").partition("(")[0]
        for file in folder.glob("test_*.py")
        for line in file.read_text("utf-8").splitlines()
        if line.startswith("def test_")
    ]
    assert len(names) > 150
    assert sorted(name for name in vars(made) if name.startswith("test_")) == sorted(names)
    assert "make_store" in vars(made)
