"""Pieces of Markdown that every generated page is made of."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `./hf docs` from {source}: change it there. -->"


def page(title: str, source: str, *blocks: str) -> str:
    return "\n\n".join([f"# {title}", NOTE.format(source=source), *blocks]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def docstring(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def prose(written: str, names: Iterable[str]) -> str:
    """Return a docstring as Markdown. Lines such as "key: …" that explain a parameter become a list."""
    known = "|".join(sorted(names, key=len, reverse=True))
    if not known:
        return written
    explained = re.compile(rf"(?:^|(?<=\. ))`?((?:{known})(?:, (?:{known}))*)`?: ", re.MULTILINE)
    return "\n\n".join(_listed(part, explained) for part in written.split("\n\n"))


def _listed(paragraph: str, explained: re.Pattern[str]) -> str:
    before, *pairs = explained.split(paragraph)
    items = [
        f"- `{name.replace(', ', '`, `')}`: {one_line(words)}"
        for name, words in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    return "\n\n".join(
        [*([before.strip()] if before.strip() else []), *(["\n".join(items)] if items else [])]
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


def first_words(thing: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return one_line(docstring(thing).split("\n\n")[0])


def anchor(title: str) -> str:
    """Return the anchor that git hosts and the site give to a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in "-_ ")
    return kept.replace(" ", "-")
