"""Run files one after the other in one namespace, in which `await` may stand alone."""

import ast
import asyncio
import inspect
import logging
import sys
from pathlib import Path

sys.path.insert(0, ".")


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Runs of some pages fail, or reach their budget, on purpose. No other line is expected on stderr."""
    return not hasattr(record, "error_kind") and " paused: " not in record.getMessage()


for _name in ("holdfast.run", "holdfast.worker"):
    logging.getLogger(_name).addFilter(_is_unexpected)


def _runs_itself(code: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.run" for node in ast.walk(code)
    )


def main(paths: list[str]) -> None:
    names: dict[str, object] = {"__name__": "__session__"}
    with asyncio.Runner() as runner:
        for path in paths:
            text = Path(path).read_text("utf-8")
            code = compile(text, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if _runs_itself(ast.parse(text)) or not code.co_flags & inspect.CO_COROUTINE:
                exec(code, names)  # the page's own code
            else:
                runner.run(eval(code, names))


if __name__ == "__main__":
    main(sys.argv[1:])
