"""Links between files of the repository, and the pages of the site that those files become.

Pages link to each other as on a git host: by the paths of files, inside and outside of docs/. The site shows
files outside of docs/ too: pages such as README.md, and sources that some page links to.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

HOME = "README.md"
# Files that are another page of the site than their path says.
MOVED = {
    HOME: "index.md",
    "docs/README.md": "contents.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    # Not the index of their folders: the theme would take such a page for the head of a section.
    "docs/decisions/README.md": "decisions/all.md",
    "examples/README.md": "examples.md",
}
_LANGUAGES = {".py": "python", ".sql": "sql", ".toml": "toml", ".sh": "sh", ".yml": "yaml", ".js": "js"}
_FENCED = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def page_of(path: str) -> str:
    """Return the page of the site for a file or folder of the repository."""
    if path in MOVED:
        return MOVED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def target(path: str, link: str) -> str | None:
    """Return the file that a link leads to, from the file with this path; None: it is no file of ours."""
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    whole = ROOT / found
    if whole.is_dir() and (whole / "README.md").is_file():
        return f"{found}/README.md"
    return found if whole.exists() and not found.startswith("..") else None


def rewrite(markdown: str, path: str) -> str:
    """Return the text of a page with its links to files changed into links to pages of the site."""
    folder = posixpath.dirname(page_of(path))

    def replace(link: re.Match[str]) -> str:
        found = target(path, link[1])
        if found is None:
            return link[0]
        return posixpath.relpath(page_of(found), folder or ".") + (link[2] or "")

    return _outside_of_fences(markdown, lambda text: _LINK.sub(replace, _with_bars(text)))


def _with_bars(text: str) -> str:
    """Return the text with the bars in code that stands in tables unescaped.

    Git hosts need the backslash there, and do not show it. The site does not need it, and would show it.
    """
    return _ROW.sub(lambda row: _CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), text)


def _outside_of_fences(markdown: str, change: Callable[[str], str]) -> str:
    done, end = [], 0
    for fence in _FENCED.finditer(markdown):
        done += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*done, change(markdown[end:])])


def linked_from(path: str) -> Iterator[str]:
    """Yield the files that a page links to."""
    text = _FENCED.sub("", (ROOT / path).read_text("utf-8"))
    for link in _LINK.finditer(text):
        found = target(path, link[1])
        if found is not None:
            yield found


def outside() -> list[str]:
    """Return the files and folders that mkdocs does not find in docs/ by itself."""
    seen = {path for path in MOVED if (ROOT / path).is_file()}
    todo = [*seen, *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))]
    while todo:
        for found in linked_from(todo.pop()):
            if found not in seen and not found.startswith("docs/") and found != "docs":
                seen.add(found)
                if found.endswith(".md"):
                    todo.append(found)
    return sorted(seen)


def content(path: str) -> str:
    """Return the text of a page that is not where its file is."""
    whole = ROOT / path
    if path == HOME:
        return f"---\nhide: [navigation]\n---\n\n{whole.read_text('utf-8')}"
    if path.endswith(".md"):
        return whole.read_text("utf-8")
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    if whole.is_dir():
        names = sorted(child.name for child in whole.iterdir() if not child.name.startswith(("_", ".")))
        return head + "\n".join(f"- `{name}`" for name in names) + "\n"
    source = whole.read_text("utf-8")
    # A longer fence than any in the source, or the source would end it.
    return f"{head}``````{_LANGUAGES.get(whole.suffix, 'text')}\n{source}``````\n"
