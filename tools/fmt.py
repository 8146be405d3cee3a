"""Mends what lint can mend, then formats."""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    # Lint first: its mends may leave lines that the formatter has to break.
    lint = subprocess.run([sys.executable, "-m", "ruff", "check", "--fix"], check=False).returncode
    layout = subprocess.run([sys.executable, "-m", "ruff", "format"], check=False).returncode
    return lint or layout


if __name__ == "__main__":
    sys.exit(main())
