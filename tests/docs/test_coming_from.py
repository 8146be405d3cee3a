"""The guides for users of other engines: their code compiles, and our code is the same on every page."""

from __future__ import annotations

import ast

import pytest

from tests.docs import pages

GUIDE = pages.ROOT / "docs" / "guide"
THEIRS = {"celery": "celery", "temporal": "temporalio", "dbos": "dbos"}
each = pytest.mark.parametrize("name", THEIRS)


def _page(name):
    return GUIDE / f"coming-from-{name}.md"


def _imported(code):
    for node in ast.walk(code):
        if isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


@each
def test_the_code_of_the_other_engine_compiles_and_imports_that_engine(name):
    """The code cannot run here: these engines are not installed."""
    blocks = [block.text for block in pages.blocks(_page(name)) if block.language == "py"]
    assert blocks
    assert all(THEIRS[name] in set(_imported(ast.parse(text))) for text in blocks)


def test_the_shop_example_is_the_same_on_every_page():
    shops = {block.text for name in THEIRS for block in pages.python(_page(name)) if block.file == "shop.py"}
    assert len(shops) == 1


@each
def test_every_page_has_the_same_parts(name):
    text = _page(name).read_text("utf-8")
    parts = ["## In Holdfast", "## Words", "## What is different", "better:**", "## Moving over"]
    assert [part for part in parts if part not in text] == []
