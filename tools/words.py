"""Plain words: the rules of style that a program can check.

1. A process is "it" and people are "they": no masculine pronouns.
2. No docstring and no comment begins with a word that turns the sentence into a riddle (`RIDDLES`).
3. No folder has more than `MODULES_MAX` modules side by side.
4. The subject of a commit has at most `SUBJECT_MAX` characters, in commits after `SUBJECTS_SINCE`.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tools import tidy

ROOT = Path(__file__).resolve().parent.parent

PROSE = (
    "src",
    "docs",
    "clients",
    "tests",
    "verify",
    "tools",
    "bench",
    "servers",
    "README.md",
    "CONTRIBUTING.md",
)
CODE = ("src", "tests", "verify", "tools", "bench", "servers")

# Files that may have the forbidden words, each with its reason. A folder stands for all files in it.
ALLOWED = {
    "src/holdfast/stores/sqlite/schema": "a published schema file never changes, not even its comments",
    "docs/assets/pages": "pictures",
    "tests/pages/vendor": "files of others, as they were published",
    "tools/words.py": "names the words",
    "tests/tools/test_words.py": "shows that the words are found",
}

PRONOUNS = ("he", "his", "him", "himself")
RIDDLES = ("What", "Who", "Where", "Of", "Whose", "Whoever")

MODULES_MAX = 25
# The contract suite has one module for each topic, and users read it as a list.
MANY_MODULES = ("src/holdfast/testing/contract",)

SUBJECT_MAX = 72
# Subjects of this commit and of the commits before it stay as they are.
SUBJECTS_SINCE = "578192f2b801275afb412355f37d64674955d58c"

# Between underscores too: the names of tests are sentences.
_PRONOUN = re.compile(rf"(?<![a-z0-9])({'|'.join(PRONOUNS)})(?![a-z0-9])", re.IGNORECASE)
_RIDDLE = re.compile(rf"\W*({'|'.join(RIDDLES)})\b")


def pronouns(root: Path, paths: Iterable[Path]) -> Iterator[str]:
    """Find masculine pronouns in prose and code."""
    for name, path in _named(root, paths, PROSE):
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            for found in _PRONOUN.finditer(line):
                yield f"{name}:{number}: says {found[1]!r}: name the thing, or say it, its, they, their"


def riddles(root: Path, paths: Iterable[Path]) -> Iterator[str]:
    """Find docstrings and comments that begin with one of `RIDDLES`."""
    readers = {".py": _python_openings, ".sql": _sql_comments}
    for name, path in _named(root, paths, CODE):
        if read := readers.get(path.suffix):
            for number, kind, text in sorted(read(path.read_text("utf-8"))):
                if found := _RIDDLE.match(text):
                    yield f"{name}:{number}: {kind} begins with {found[1]!r}: begin with a noun or a verb"


def folders(root: Path, paths: Iterable[Path]) -> Iterator[str]:
    """Find folders with too many modules. Python and SQL files count separately."""
    names = [Path(name) for name, _ in _named(root, paths, CODE)]
    modules = (name for name in names if name.suffix in {".py", ".sql"} and name.name != "__init__.py")
    counts = Counter((name.parent.as_posix(), name.suffix) for name in modules)
    for (folder, suffix), count in sorted(counts.items()):
        if count > MODULES_MAX and folder not in MANY_MODULES:
            yield f"{folder}:1: has {count} {suffix} files, at most {MODULES_MAX}: group them in folders"


def subjects(root: Path, since: str) -> Iterator[str]:
    """Find commits after `since` with a subject that is too long.

    A shallow clone may lack that commit. Its history is then younger, and all of it is checked.
    """
    if _git(root, "rev-parse", "--show-toplevel") != str(root.resolve()):
        yield "hint: subjects of commits were not checked: this folder is no git repository"
        return
    new = [f"{since}..HEAD"]
    if _git(root, "merge-base", "--is-ancestor", since, "HEAD") is None:
        if _git(root, "rev-parse", "--is-shallow-repository") != "true":
            yield f"hint: subjects of commits were not checked: {since[:8]} is not in the history"
            return
        new = ["HEAD"]
    for line in (_git(root, "log", "--no-merges", "--format=%h %s", *new) or "").splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) > SUBJECT_MAX:
            yield (
                f"commit {commit}:1: the subject has {len(subject)} characters, at most {SUBJECT_MAX}: "
                "say the rest in the body"
            )


def findings(root: Path) -> Iterator[str]:
    paths = tidy.files(root)
    for rule in (pronouns, riddles, folders):
        yield from rule(root, paths)
    yield from subjects(root, SUBJECTS_SINCE)


def _named(root: Path, paths: Iterable[Path], places: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Return the files in these places, with their names relative to the root, without `ALLOWED`."""
    for path in paths:
        name = path.relative_to(root).as_posix()
        if _inside(name, places) and not _inside(name, tuple(ALLOWED)):
            yield name, path


def _inside(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}/") for place in places)


def _python_openings(source: str) -> Iterator[tuple[int, str, str]]:
    """Return each docstring and comment: its line, its kind and its text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, "the docstring", text
    lines = source.splitlines()
    before = -1  # the last line that was a comment and nothing else
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number, column = token.start
        alone = not lines[number - 1][:column].strip()
        if not (alone and before == number - 1):
            yield number, "the comment", token.string
        before = number if alone else -1


def _sql_comments(source: str) -> Iterator[tuple[int, str, str]]:
    """Return the first line of each block of comment lines."""
    before = -1
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("--"):
            if before != number - 1:
                yield number, "the comment", line.lstrip()
            before = number


def _git(root: Path, *arguments: str) -> str | None:
    """Return the output of git, or None where git or a repository is missing, or the answer is no."""
    # The checkout may belong to another user, as in a container; git refuses that by default.
    command = ["git", "-C", str(root), "-c", "safe.directory=*", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def main() -> int:
    found = list(findings(ROOT))
    print("\n".join(found))
    return 1 if any(not line.startswith("hint: ") for line in found) else 0


if __name__ == "__main__":
    sys.exit(main())
