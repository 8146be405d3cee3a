"""The command `./hf fmt`: fixes the lint errors that can be fixed, then formats the code."""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    # Lint first: its fixes may leave lines that the formatter has to break.
    lint = subprocess.run([sys.executable, "-m", "ruff", "check", "--fix"], check=False).returncode
    layout = subprocess.run([sys.executable, "-m", "ruff", "format"], check=False).returncode
    return lint or layout


if __name__ == "__main__":
    sys.exit(main())
