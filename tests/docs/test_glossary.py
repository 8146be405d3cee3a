"""The glossary: every file that it names exists, and its words are in order, each with one entry."""

from __future__ import annotations

import re

import pytest

from tests.docs import pages

PAGE = pages.ROOT / "docs" / "glossary.md"
ENTRIES = re.findall(r"^### (.+)\n\n((?:.+\n)+)", PAGE.read_text("utf-8"), re.MULTILINE)
WORDS = [word for word, _ in ENTRIES]


def files(entry: str) -> list[tuple[str, str]]:
    """Return the files that an entry names: the text of each link, and its target."""
    return re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", entry)


def test_the_words_are_in_alphabetical_order_without_repetition():
    assert sorted(set(WORDS), key=str.lower) == WORDS


@pytest.mark.parametrize(("word", "entry"), ENTRIES, ids=WORDS)
def test_every_word_has_a_sentence_and_files_that_exist(word, entry):
    sentence, _, link = entry.rstrip().rpartition("\n")
    assert sentence.endswith((".", ".)"))
    assert 1 <= len(files(link)) <= 3
    for name, target in files(entry):
        assert target == f"../src/holdfast/{name}"
        assert (pages.ROOT / "src" / "holdfast" / name).is_file(), f"{word}: there is no {name}"


@pytest.mark.parametrize(
    "word", ["fence", "lease", "keeper", "committer", "journal", "stage", "lane", "trail"]
)
def test_the_words_of_every_docstring_are_explained(word):
    assert word in WORDS
