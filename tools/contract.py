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
    """Each docstring that is too long or missing, and each pointer that leads nowhere."""
    for path in sorted((package / "contract").glob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, Documented):
                continue
            where = f"contract/{path.name}:{getattr(node, 'lineno', 1)}"
            words = ast.get_docstring(node, clean=False)
            if words is None:
                yield f"{where}: no docstring, and so no law"
                continue
            lines = len(words.splitlines())
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines > LINES_MAX:
                yield f"{where}: {node.name} has {lines} lines of docstring, at most {LINES_MAX}"
            for module, names in _POINTER.findall(words):
                if not _is_documented(package / "machine" / f"{module}.py", names.split(".")[1:]):
                    yield f"{where}: `machine.{module}{names}` has no docstring"


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
