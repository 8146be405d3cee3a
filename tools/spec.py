"""The check `spec`: every line of docs/spec.md has a test with its id, and no test has an unknown id."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINE = re.compile(r"^- \**([A-Z]+-\d+)\b", re.MULTILINE)


@dataclass(frozen=True)
class Mark:
    """One id in one `pytest.mark.spec(...)`; None when it is not a literal string."""

    id: str | None
    where: str


def promised(text: str) -> list[str]:
    return LINE.findall(text)


def marks(source: str, name: str) -> Iterator[Mark]:
    """Return the marks in a source text. It is parsed, not imported: broken tests count too."""
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.Call) and _is_spec_mark(node.func):
            for argument in node.args:
                where = f"{name}:{argument.lineno}"
                match argument:
                    case ast.Constant(value=str(id_)):
                        yield Mark(id_, where)
                    case _:
                        yield Mark(None, where)


def problems(spec: str, tests: dict[str, str]) -> list[str]:
    ids = promised(spec)
    shown = [mark for name, source in tests.items() for mark in marks(source, name)]
    covered = {mark.id for mark in shown}
    return [
        *(f"docs/spec.md has {id_} twice" for id_ in sorted({i for i in ids if ids.count(i) > 1})),
        *(f"{id_} has no test" for id_ in ids if id_ not in covered),
        *(f"{mark.where}: write the id out as a string" for mark in shown if mark.id is None),
        *(f"{mark.where}: {mark.id} is not in docs/spec.md" for mark in shown if mark.id not in {None, *ids}),
    ]


def main() -> int:
    page = ROOT / "docs" / "spec.md"
    if not page.exists():
        print("there is no docs/spec.md")
        return 1
    spec = page.read_text("utf-8")
    tests = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for folder in ("tests", "verify", "src/holdfast/testing")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    found = problems(spec, tests)
    print("\n".join(found) or f"{len(promised(spec))} lines, each with a test")
    return 1 if found else 0


def _is_spec_mark(function: ast.expr) -> bool:
    """Return whether this is `pytest.mark.spec` or `mark.spec`."""
    match function:
        case ast.Attribute(attr="spec", value=ast.Attribute(attr="mark") | ast.Name(id="mark")):
            return True
        case _:
            return False


if __name__ == "__main__":
    sys.exit(main())
