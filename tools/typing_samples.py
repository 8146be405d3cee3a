"""The check `./hf check typing`: mypy and pyright, both strict, over the samples in tests/typing/.

Files in good/ must have no error: their `assert_type` says what has to be inferred. In bad/ every line marked
with `# error` must have one, and no other line. So both the types and the marks are kept honest.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "typing"
MARK = re.compile(r"# error$")


class Line(NamedTuple):
    """One line of a sample."""

    file: str
    number: int


class Failed(Exception):
    """A checker that could not do its work."""


def marked(samples: Path) -> set[Line]:
    """Return the lines that must have an error."""
    return {
        Line(str(path.relative_to(samples)), number)
        for path in samples.glob("bad/*.py")
        for number, text in enumerate(path.read_text("utf-8").splitlines(), 1)
        if MARK.search(text)
    }


def mypy(samples: Path) -> dict[Line, str]:
    """Return the lines with errors and what mypy --strict says; the project's own settings do not count."""
    options = ["--strict", "--config-file=", "--python-version=3.11", "--output=json"]
    where = ["--explicit-package-bases", f"--cache-dir={ROOT / '.mypy_cache' / 'typing'}", *_folders(samples)]
    done = _run([sys.executable, "-m", "mypy", *options, *where], samples)
    lines = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    if not lines and "{" not in done and "Success" not in done:
        raise Failed(done)
    found = [(one["file"], one["line"], one["message"]) for one in lines if one["severity"] == "error"]
    return _by_line(samples, found)


def pyright(samples: Path) -> dict[Line, str]:
    """Return the lines with errors and what pyright says in strict mode; see pyrightconfig.json."""
    program = Path(sys.executable).with_name("basedpyright")
    done = _run([str(program), "--outputjson", f"--pythonpath={sys.executable}"], samples)
    try:
        said: dict[str, Any] = json.loads(done)
    except ValueError:
        raise Failed(done) from None
    errors = [one for one in said["generalDiagnostics"] if one["severity"] == "error"]
    found = [(one["file"], one["range"]["start"]["line"] + 1, one["message"]) for one in errors]
    return _by_line(samples, found)


def complaints(checker: str, found: dict[Line, str], expected: set[Line]) -> Iterator[str]:
    """Yield one text for each line where the errors are not those that are marked."""
    for line in sorted(found.keys() - expected):
        yield f"{checker}: {line.file}:{line.number}: unexpected error: {found[line]}"
    for line in sorted(expected - found.keys()):
        yield f"{checker}: {line.file}:{line.number}: marked with `# error`, but there is none"


def main(samples: Path = SAMPLES) -> int:
    expected = marked(samples)
    try:
        with ThreadPoolExecutor(2) as pool:
            checked = {name: pool.submit(check, samples) for name, check in CHECKERS.items()}
        said = [text for name, one in checked.items() for text in complaints(name, one.result(), expected)]
    except Failed as failed:
        said = [f"a checker did not run: {failed}"]
    print("\n".join(said))
    return 1 if said else 0


CHECKERS = {"mypy": mypy, "pyright": pyright}


def _folders(samples: Path) -> list[str]:
    return [name for name in ("good", "bad") if (samples / name).is_dir()]


def _run(argv: list[str], folder: Path) -> str:
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False).stdout


def _by_line(samples: Path, found: list[tuple[str, int, str]]) -> dict[Line, str]:
    lines: dict[Line, str] = {}
    for file, number, message in found:
        path = (samples / file).resolve()
        line = Line(str(path.relative_to(samples.resolve())), number)
        lines.setdefault(line, message.splitlines()[0])
    return lines


if __name__ == "__main__":
    sys.exit(main())
