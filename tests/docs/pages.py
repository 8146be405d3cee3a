"""The pages of the documentation, and their parts that can be executed.

Every ```python block runs. A block that names the database `shop` runs on a database of the test. A block
after a line "`name.py`:" is a file of that name. All other blocks of a page are one session, in which `await`
may stand alone, as in `python -m asyncio`. The output of a session is compared with its comments that begin
with an arrow. A ```py block is code of another engine, which is not installed here: it does not run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servers.databases import Database

ROOT = Path(__file__).resolve().parent.parent.parent
SESSION = Path(__file__).with_name("session.py")
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    if ROOT / "docs" / "reference" not in page.parents
)

SHOP = "://localhost/shop"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^`([\w/]+\.py)`:$")
_ARROW = re.compile(r"# → (.*)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the name of its file, if any."""

    language: str
    text: str
    file: str | None
    line: int


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        before = text[: fence.start()].rstrip().rpartition("\n")[2]
        file = _FILE.match(before)
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(fence[1], fence[2], file[1] if file else None, line))
    return found


def python(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python"]


def commands(page: Path) -> list[str]:
    """Return the lines of fences without a language, which a reader types."""
    fenced = [block.text.splitlines() for block in blocks(page) if not block.language]
    return [line.partition("  #")[0].removeprefix("$ ").strip() for lines in fenced for line in lines if line]


def expected(page: Path) -> list[str]:
    return [arrow for block in python(page) if not block.file for arrow in _ARROW.findall(block.text)]


def links(page: Path) -> list[str]:
    return [link for link in _LINK.findall(page.read_text("utf-8")) if "://" not in link]


def wants_postgres(page: Path) -> bool:
    return any(SHOP in block.text for block in python(page))


def run(page: Path, folder: Path, shop: Database | None = None) -> subprocess.CompletedProcess[str]:
    """Run the whole page in one process, in `folder`."""
    for block in python(page):
        if block.file:
            (folder / block.file).write_text(block.text, "utf-8")
    sessions = [
        folder / f"{name(page).replace('/', '.')}:{block.line}" for block in python(page) if not block.file
    ]
    for path, block in zip(sessions, (b for b in python(page) if not b.file), strict=True):
        path.write_text(block.text if shop is None else _at(shop, block.text), "utf-8")
    argv = [sys.executable, "-W", "error", str(SESSION), *map(str, sessions)]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=50, check=False)


def _at(shop: Database, text: str) -> str:
    text = text.replace(f'hf.App("postgresql{SHOP}"', f'hf.App("{shop.url}"')
    return text.replace(SHOP, "://" + shop.dsn.partition("://")[2])
