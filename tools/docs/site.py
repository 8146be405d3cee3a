"""The site: mkdocs over docs/, strict, without anything from the network.

Run as a program it builds the site into a folder that is thrown away. `./hf check` does that.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "site"

# Links that a reader follows (`<a href>`) and the address of the page itself may lead anywhere.
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*>"""
)
_STYLED = re.compile(r"""url\(["']?(?:https?:)?//[^)]*\)""")


def _mkdocs(*arguments: str, output: int | None = None) -> subprocess.CompletedProcess[str]:
    # The theme prints an advertisement to stderr unless it is told not to.
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    argv = [sys.executable, "-m", "mkdocs", *arguments]
    return subprocess.run(
        argv, cwd=ROOT, env=env, check=False, stdout=output, stderr=subprocess.STDOUT, text=True
    )


def build(folder: Path = FOLDER) -> int:
    """Build the site. A link or an anchor that leads nowhere fails the build."""
    # Not with --quiet: mkdocs does not count the warnings that it does not print, and is not strict then.
    done = _mkdocs("build", "--strict", "--clean", "--site-dir", str(folder), output=subprocess.PIPE)
    for line in done.stdout.splitlines():
        if line and not line.startswith("INFO"):
            print(line)
    if not done.returncode:
        print(f"built {folder.name}/index.html")
    return done.returncode


def serve() -> int:
    """Serve the site on this machine, and build it again after every change, until Ctrl-C."""
    return _mkdocs("serve", "--no-strict").returncode


def foreign(folder: Path) -> Iterator[str]:
    """Yield what the pages of a built site would load from elsewhere: scripts, styles, fonts, pictures."""
    for page in sorted(folder.rglob("*.html")):
        text = page.read_text("utf-8")
        for tag in (*_LOADED.findall(text), *_STYLED.findall(text)):
            yield f"{page.relative_to(folder)}: {tag}"
    for style in sorted(folder.rglob("*.css")):
        for url in _STYLED.findall(style.read_text("utf-8")):
            yield f"{style.relative_to(folder)}: {url}"


def check() -> int:
    """Build the site into a folder that is thrown away, and see that it loads nothing from elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        if failed := build(site):
            return failed
        loaded = list(foreign(site))
    for line in loaded:
        print(f"loads from elsewhere: {line}")
    return 1 if loaded else 0


if __name__ == "__main__":
    try:
        sys.exit(check())
    except KeyboardInterrupt:
        sys.exit(130)
