"""The docstrings of the contract stay short, and what they point at in machine/ is there.

A verb of `src/holdfast/contract/` has at most 25 lines of docstring. The law of a move stands in the
docstring of that move; a name like `machine.moves.park` in the contract must lead to one.
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

_POINTER = re.compile(r"`machine\.([a-z_]+)((?:\.\w+)*)`")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def findings(package: Path) -> Iterator[str]:
    """Each docstring of a verb that is too long or missing, and each pointer that leads nowhere."""
    for path in sorted((package / "contract").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for verb in _verbs(tree):
            lines = len((ast.get_docstring(verb, clean=False) or "").splitlines())
            if not 0 < lines <= LINES_MAX:
                where = f"contract/{path.name}:{verb.lineno}"
                yield f"{where}: {verb.name} has {lines} lines of docstring: 1 to {LINES_MAX}"
        for node in ast.walk(tree):
            for module, names in _POINTER.findall(_words(node)):
                if not _is_documented(package / "machine" / f"{module}.py", names.split(".")[1:]):
                    where = f"contract/{path.name}:{getattr(node, 'lineno', 1)}"
                    yield f"{where}: `machine.{module}{names}` has no docstring"


def _verbs(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The methods of protocols."""
    for part in tree.body:
        if isinstance(part, ast.ClassDef) and any(getattr(one, "id", "") == "Protocol" for one in part.bases):
            yield from (one for one in part.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))


def _words(node: ast.AST) -> str:
    return (ast.get_docstring(node, clean=False) or "") if isinstance(node, Documented) else ""


def _is_documented(path: Path, names: list[str]) -> bool:
    """Whether the thing that these names lead to is there, with words of its own."""
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
