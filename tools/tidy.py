"""Rules about files that no linter knows: their size, and what they must not give away."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES_HABIT = 250
LINES_MAX = 400
CODE = {".py", ".sql", ".lua"}
MADE = {"__pycache__", "build", "dist"}

# A pin names a package; where it comes from is the affair of whoever installs.
HOSTS = re.compile(r"://|--(?:extra-)?index-url|--find-links|--trusted-host")


def files(root: Path) -> list[Path]:
    """What is in the repository, or would be with the next commit."""
    # The checkout may belong to another user, as in a container; git refuses that by default.
    ask = ["git", "-C", str(root), "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        told = subprocess.run(ask, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        # An unpacked archive has no git: everything that is not made by tools.
        found = (path for path in root.rglob("*") if not _made(path.relative_to(root).parts[:-1]))
    else:
        found = (root / name for name in told.split("\0") if name)
    return sorted(path for path in found if path.is_file())


def _made(folders: tuple[str, ...]) -> bool:
    return any(name in MADE or (name.startswith(".") and name != ".ci") for name in folders)


def sizes(root: Path, paths: Iterable[Path]) -> Iterator[tuple[int, str]]:
    for path in paths:
        if path.suffix in CODE:
            yield len(path.read_bytes().splitlines()), str(path.relative_to(root))


def leaks(root: Path, paths: Iterable[Path]) -> Iterator[str]:
    # In a folder like /app the path is a common word, not a leak.
    telling = len(root.parts) > 2
    here = re.compile(rf"(?<![\w.~/-]){re.escape(str(root))}(?![\w.-])")
    for path in paths:
        name = path.relative_to(root)
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            if telling and here.search(line):
                yield f"{name}:{number}: names the path of this checkout"
            if name.parts[0] == "requirements" and HOSTS.search(line):
                yield f"{name}:{number}: names where packages come from"


def main() -> int:
    paths = files(ROOT)
    measured = sorted(sizes(ROOT, paths), reverse=True)
    wrong = [f"{name}: {lines} lines, at most {LINES_MAX}" for lines, name in measured if lines > LINES_MAX]
    wrong += leaks(ROOT, paths)
    hints = [f"{lines} {name}" for lines, name in measured if LINES_HABIT < lines <= LINES_MAX]
    if hints:
        print(f"hint: above {LINES_HABIT} lines by habit: {', '.join(hints)}")
    print("\n".join(wrong) or f"{len(paths)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
