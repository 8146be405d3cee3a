"""Navigation of the site, read from docs/README.md: its headings, and the links that begin an item."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tools.docs import links
from tools.docs.groups import GROUPS

INDEX = "docs/README.md"
API = "reference/api/README.md"
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")

_HEADING = re.compile(r"^(?:#{2,} +|\*\*)(.+?)(?:\*\*)?$")
_ITEM = re.compile(r"^[-*] ((?:\[[^\]]*\]\([^)]*\)(?:, )?)+)")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#]+)")


def sections(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each heading with the pages that its list names: their addresses and titles."""
    title, found = "", dict[str, str]()
    for line in text.splitlines():
        heading, item = _HEADING.match(line), _ITEM.match(line)
        if heading:
            if found:
                yield title, found
            title, found = heading[1], {}
        elif item:
            for words, link in _LINK.findall(item[1]):
                file = links.target(INDEX, link)
                if file is not None:
                    found.setdefault(links.page_of(file), f"{words[:1].upper()}{words[1:]}")
    if found:
        yield title, found


def _entry(page: str, title: str) -> Any:
    if page == API:
        return {title: [API, *(f"reference/api/{group.file}" for group in GROUPS)]}
    return {title: page}


def nav() -> list[Any]:
    text = (links.ROOT / INDEX).read_text("utf-8")
    listed = [{head: [_entry(*page) for page in pages.items()]} for head, pages in sections(text)]
    project = [links.page_of(path) for path in PROJECT if (links.ROOT / path).is_file()]
    return [{"Home": "index.md"}, *listed, {"Project": project}]
