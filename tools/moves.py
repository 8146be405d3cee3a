"""The check `moves`: only machine/ decides the effect of a move; stores that share it move rows.

Code in these stores sets no status of a run or step, no attempt, fence or pause, and writes no trail entry of
its own. The exceptions are fast paths. They are listed here with their reasons, and in docs/decisions/0033.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STORES = ROOT / "src/holdfast/stores"
SHARING = ("memory", "redis", "sqlite")
DECIDED = {"status", "resume_to", "attempt", "crashes", "fence", "pause_asked_by", "waits", "owes"}
STATUSES = {"Status", "StepStatus"}

# The files that may decide, and the reason.
ALLOWED = {
    "sqlite/fast_writes.py": "checkpoints, completes and steps of plans, many at once",
    "sqlite/fast_writes.sql": "the same",
    "sqlite/chores/sleeps.sql": "sleeps that are due, many at once",
    "sqlite/claiming/claim.sql": "claims, many at once",
    "redis/plain.py": "checkpoints and completes, many at once",
    "redis/rows.py": "the short form of an answer that is stored",
    "redis/verbs/due_runs.py": "the epoch of a fence",
    "redis/view.py": "rows of the trail that the machine has noted",
    "redis/importing.py": "rows of the trail that come with a run from another store",
    "redis/verbs/keyring.py": "the audit log",
    "redis/messages.py": "messages, which are no runs",
    "redis/verbs/outbox.py": "messages, which are no runs",
    "memory/outbox.py": "messages, which are no runs",
    "sqlite/outbox.sql": "messages, which are no runs",
    "sqlite/schema": "tables",
}

_HEADING = re.compile(r"^-- :(\w+)", re.MULTILINE)
_SETS = re.compile(r"\bupdate workflow_(?:run|step)\b.*?\bset\b(.*?)(?:\bwhere\b|\breturning\b|$)", re.DOTALL)
_ASSIGNED = re.compile(rf"\b({'|'.join(sorted(DECIDED))}) = ")
_TRAIL = re.compile(r"insert into workflow_event\b.*?'(\w+)'", re.DOTALL)


def in_python(source: str) -> Iterator[tuple[int, str]]:
    """Find the lines of a module that decide, with what they set or write."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in (part for one in targets for part in ast.walk(one)):
                stored = isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
                if isinstance(target, ast.Attribute) and stored and target.attr in DECIDED:
                    yield node.lineno, f"sets .{target.attr}"
        elif isinstance(node, ast.Call):
            yield from _in_call(node)


def _in_call(call: ast.Call) -> Iterator[tuple[int, str]]:
    for given in call.keywords:
        if given.arg in DECIDED and _is_status(given.value):
            yield call.lineno, f"gives {given.arg}="
    named = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    words = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if named in {"note", "log"} and words:
        yield call.lineno, f"writes {words[0]!r} to the trail"


def _is_status(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and getattr(value.value, "id", "") in STATUSES


def in_sql(source: str) -> Iterator[tuple[int, str]]:
    """Find the statements of an SQL file that decide: the first line of each, with what it sets or writes."""
    starts = [match.start() for match in _HEADING.finditer(source)] or [0]
    for start, end in zip(starts, [*starts[1:], len(source)], strict=True):
        statement = re.sub(r"--.*", "", source[start:end])
        line = source.count("\n", 0, start) + 1
        for assignments in _SETS.findall(statement):
            for name in _ASSIGNED.findall(assignments):
                yield line, f"sets {name}"
        for word in _TRAIL.findall(statement):
            yield line, f"writes {word!r} to the trail"


def findings(stores: Path) -> Iterator[str]:
    """Find all places outside the fast paths where a store decides."""
    for path in sorted(path for folder in SHARING for path in (stores / folder).rglob("*")):
        name = path.relative_to(stores).as_posix()
        if path.suffix not in {".py", ".sql"} or any(name.startswith(one) for one in ALLOWED):
            continue
        decides = in_python if path.suffix == ".py" else in_sql
        for line, what in decides(path.read_text("utf-8")):
            yield f"{name}:{line}: {what}: the effect of a move is decided in machine/"


def main() -> int:
    found = list(findings(STORES))
    gone = [name for name in ALLOWED if not (STORES / name).exists()]
    print("\n".join([*found, *(f"tools/moves.py allows {name}, which does not exist" for name in gone)]))
    return 1 if found or gone else 0


if __name__ == "__main__":
    sys.exit(main())
