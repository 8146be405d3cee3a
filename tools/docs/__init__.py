"""Pages of docs/reference that are generated from code, and the site that is built from docs/.

`main` writes the pages; with `--check` it fails when one is stale. `site.py` builds the site.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.http.operation import API, WORKER
from tools.docs import api, cli, errors, http, metrics, moves, openapi
from tools.docs.moves import arrows, edges

__all__ = ["FOLDER", "arrows", "edges", "main", "pages"]

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "docs" / "reference"


def pages() -> dict[str, str]:
    """Return every generated file: its path under docs/reference, and its text."""
    return {
        "moves.md": moves.page(),
        "moves.svg": moves.picture(),
        "errors.md": errors.page(),
        "cli.md": cli.page(),
        "http.md": http.operations(),
        "openapi.json": openapi.page(API),
        "worker-openapi.json": openapi.page(WORKER),
        "problems.md": http.problems(),
        "metrics.md": metrics.page(),
        **{f"api/{name}": text for name, text in api.pages().items()},
    }


def _leftovers(names: Sequence[str]) -> list[Path]:
    """Return files in the generated folder that no generator writes any more."""
    return sorted(path for path in (FOLDER / "api").glob("*") if f"api/{path.name}" not in names)


def main(arguments: Sequence[str]) -> int:
    generated = pages()
    stale = []
    for name, text in generated.items():
        path = FOLDER / name
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote docs/reference/{name}")
    for path in _leftovers(list(generated)):
        stale.append(f"api/{path.name}")
        if "--check" not in arguments:
            path.unlink()
            print(f"removed docs/reference/api/{path.name}")
    if stale and "--check" in arguments:
        print(f"stale: {', '.join(stale)}; `./hf docs` writes them")
        return 1
    return 0
