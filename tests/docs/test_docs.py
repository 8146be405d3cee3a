"""The documentation is tested: its code runs, its links lead to a target, and every public name is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from tests.docs import pages
from tests.laws.effort import longer

EXAMPLES = sorted((pages.ROOT / "examples").glob("*.py"))
ALL = "\n".join(page.read_text("utf-8") for page in pages.PAGES)
DOCS = "\n".join(page.read_text("utf-8") for page in pages.PAGES if page.parts[-2] != "decisions")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(pages.ROOT / "src"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages.PAGES if pages.python(page)], ids=pages.name)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, folder, request):
    """Every Python block can be typed without changes."""
    shop = request.getfixturevalue("postgres_database") if pages.wants_postgres(page) else None
    done = pages.run(page, folder, shop)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    expected = pages.expected(page)
    assert not expected or done.stdout.splitlines() == expected


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite:///example.db", *longer("memory://")])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_to_its_end(example, store, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=folder,
        env=os.environ | {"HOLDFAST_STORE": store},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    # Python prints warnings of loggers that nobody has configured: some examples retry on purpose.
    assert [line for line in done.stderr.splitlines() if " retries step " not in line] == []
    assert done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_in_the_list_of_examples(example):
    assert f"]({example.name})" in (pages.ROOT / "examples" / "README.md").read_text("utf-8")


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    for link in pages.links(page):
        path, _, heading = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not heading or heading in _headings(target), f"{link}: no such heading"


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_is_documented(name):
    """Every name that users can import is explained somewhere in docs/, in code marks."""
    assert re.search(rf"`[^`]*\b{name}\b[^`]*`|^.*\bhf\.{name}\b", DOCS, re.MULTILINE), (
        f"{name} is in no page"
    )


def test_every_page_of_docs_can_be_reached_from_its_index():
    """A page is linked from docs/README.md, or from the README.md of a folder that docs/README.md links."""
    index = pages.ROOT / "docs" / "README.md"
    linked = _linked(index)
    for folder_index in [p for p in linked if p.name == "README.md" and index.parent in p.parents]:
        linked |= _linked(folder_index)
    assert [
        pages.name(p) for p in pages.PAGES if (index.parent in p.parents) and p != index and p not in linked
    ] == []


def _linked(page: Path) -> set[Path]:
    return {(page.parent / link.partition("#")[0]).resolve() for link in pages.links(page)}


def test_decisions_are_short_and_say_what_would_prove_them_wrong():
    for page in sorted((pages.ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        text = page.read_text("utf-8")
        assert len(text.splitlines()) <= 40, f"{page.name} is longer than 40 lines"
        titles = re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)
        titles = [title for title in titles if title != "Considered and left."]
        assert titles == ["The question.", "The choice.", "What we give up.", "What would prove us wrong."], (
            page.name
        )


def _headings(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_nobody_is_told_to_install_holdfast_by_its_name():
    """On PyPI the name belongs to another project."""
    code = (path.read_text("utf-8") for path in (pages.ROOT / "src").rglob("*.py"))
    assert re.findall(r"pip install [^\n`]*\bholdfast\[[^\n]*", "\n".join([DOCS, *code])) == []
