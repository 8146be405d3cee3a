"""The command `./hf check`: runs all checks, prints one line for each, and the output of those that failed.

`./hf check mypy layers` runs only these two.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TYPED = ("src/holdfast", "tools", "verify", "bench", "servers", "examples")


@dataclass(frozen=True)
class Outcome:
    """The result of one check."""

    ok: bool
    seconds: float
    output: str


def checks() -> dict[str, list[str]]:
    python = sys.executable
    typed = [name for name in TYPED if any((ROOT / name).rglob("*.py"))]
    return {
        "lint": [python, "-m", "ruff", "check", "--quiet", "--output-format=concise"],
        "format": [python, "-m", "ruff", "format", "--check", "--output-format=concise"],
        "mypy": [python, "-m", "mypy", *typed],
        "typing": [python, "-m", "tools.typing_samples"],
        "layers": [str(Path(python).with_name("lint-imports")), "--no-logo"],
        "docs": [python, "-m", "tools.docs", "--check"],
        "site": [python, "-m", "tools.docs.site"],
        "openapi": [python, "-m", "tools.openapi"],
        "spec": [python, "-m", "tools.spec"],
        "files": [python, "-m", "tools.tidy"],
        "moves": [python, "-m", "tools.moves"],
        "contract": [python, "-m", "tools.contract"],
        "words": [python, "-m", "tools.words"],
    }


def run(argv: Sequence[str]) -> Outcome:
    began = time.monotonic()
    # No colours: the output is indented, and shown only when the check failed.
    env = os.environ | {"NO_COLOR": "1", "COLUMNS": "110"}
    done = subprocess.run(
        argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return Outcome(ok=done.returncode == 0, seconds=time.monotonic() - began, output=done.stdout.strip())


def report(name: str, outcome: Outcome) -> None:
    print(f"{'ok  ' if outcome.ok else 'FAIL'}  {name:<8}{outcome.seconds:6.1f} s", flush=True)
    hints = [line for line in outcome.output.splitlines() if line.startswith("hint: ")]
    for line in hints if outcome.ok else outcome.output.splitlines():
        print(f"      {line}")


def main(names: Sequence[str]) -> int:
    known = checks()
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no check {unknown[0]!r}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = {name: argv for name, argv in known.items() if not names or name in names}
    failed = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        # All run at once and are reported in order: mypy takes longer than the others together.
        for name, outcome in zip(chosen, pool.map(run, chosen.values()), strict=True):
            report(name, outcome)
            if not outcome.ok:
                failed.append(name)
    summary = f"{len(failed)} of {len(chosen)} failed: {', '.join(failed)}"
    print(summary if failed else f"all {len(chosen)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
