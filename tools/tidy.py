"""The check `files`: the size of code files, and texts that must not be in the repository.

No file names the path of this checkout, and no pin names a registry host.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES_HABIT = 250
LINES_MAX = 400
WHOLE = "src/holdfast/stores/sqlite/schema/whole.sql"  # all tables of a new file, read as one
CODE = {".go", ".lua", ".py", ".sql", ".ts"}
GENERATED = {"__pycache__", "build", "dist"}

# A pin names a package. The registry is chosen by the person who installs.
HOSTS = re.compile(r"://|--(?:extra-)?index-url|--find-links|--trusted-host")


def files(root: Path) -> list[Path]:
    """Return the files of the repository, with new ones that git does not ignore."""
    # The checkout may belong to another user, as in a container; git refuses that by default.
    ask = ["git", "-C", str(root), "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        listed = subprocess.run(ask, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        # An unpacked archive has no git: take every file that no tool has generated.
        found = (path for path in root.rglob("*") if not _generated(path.relative_to(root).parts[:-1]))
    else:
        found = (root / name for name in listed.split("\0") if name)
    return sorted(path for path in found if path.is_file())


def _generated(folders: tuple[str, ...]) -> bool:
    return any(name in GENERATED or (name.startswith(".") and name != ".ci") for name in folders)


def sizes(root: Path, paths: Iterable[Path]) -> Iterator[tuple[int, str]]:
    for path in paths:
        if path.suffix in CODE:
            yield len(path.read_bytes().splitlines()), str(path.relative_to(root))


def leaks(root: Path, paths: Iterable[Path]) -> Iterator[str]:
    # In a folder like /app the path is a common word, not a leak.
    distinctive = len(root.parts) > 2
    here = re.compile(rf"(?<![\w.~/-]){re.escape(str(root))}(?![\w.-])")
    for path in paths:
        name = path.relative_to(root)
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            if distinctive and here.search(line):
                yield f"{name}:{number}: names the path of this checkout"
            if name.parts[0] == "requirements" and HOSTS.search(line):
                yield f"{name}:{number}: names where packages come from"


def main() -> int:
    paths = files(ROOT)
    measured = sorted(sizes(ROOT, paths), reverse=True)
    wrong = [
        f"{name}: {lines} lines, at most {LINES_MAX}"
        for lines, name in measured
        if lines > LINES_MAX and name != WHOLE
    ]
    wrong += leaks(ROOT, paths)
    long_files = sum(LINES_HABIT < lines <= LINES_MAX for lines, _ in measured)
    if long_files:
        print(f"hint: {long_files} files have more than {LINES_HABIT} lines, the longest is {measured[0][1]}")
    print("\n".join(wrong) or f"{len(paths)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
