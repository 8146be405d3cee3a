"""The check `contract`: docstrings of the contract are short, and their references to machine/ exist.

A verb in `src/holdfast/contract/` has a docstring of at most 25 lines. The rules of a move are in the
docstring of that move: a name like `machine.moves.park` in the contract must lead to a docstring.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/holdfast"
LINES_MAX = 25

_REFERENCE = re.compile(r"`machine\.([a-z_]+)((?:\.\w+)*)`")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def findings(package: Path) -> Iterator[str]:
    """Find docstrings of verbs that are too long or missing, and references that lead nowhere."""
    for path in sorted((package / "contract").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for verb in _verbs(tree):
            lines = len((ast.get_docstring(verb, clean=False) or "").splitlines())
            if not 0 < lines <= LINES_MAX:
                where = f"contract/{path.name}:{verb.lineno}"
                yield f"{where}: {verb.name} has {lines} lines of docstring: 1 to {LINES_MAX}"
        for node in ast.walk(tree):
            for module, names in _REFERENCE.findall(_docstring(node)):
                if not _is_documented(package / "machine" / f"{module}.py", names.split(".")[1:]):
                    where = f"contract/{path.name}:{getattr(node, 'lineno', 1)}"
                    yield f"{where}: `machine.{module}{names}` has no docstring"


def _verbs(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the methods of protocols."""
    for part in tree.body:
        if isinstance(part, ast.ClassDef) and any(
            getattr(base, "id", "") == "Protocol" for base in part.bases
        ):
            yield from (
                node for node in part.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )


def _docstring(node: ast.AST) -> str:
    return (ast.get_docstring(node, clean=False) or "") if isinstance(node, Documented) else ""


def _is_documented(path: Path, names: list[str]) -> bool:
    """Return whether these names lead to a thing that has a docstring."""
    if not path.exists():
        return False
    node: Documented | None = ast.parse(path.read_text("utf-8"))
    for name in names:
        inside = (one for one in ast.iter_child_nodes(node) if isinstance(one, Documented)) if node else ()
        node = next((one for one in inside if getattr(one, "name", "") == name), None)
    return node is not None and ast.get_docstring(node) is not None


def main() -> int:
    found = list(findings(PACKAGE))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
